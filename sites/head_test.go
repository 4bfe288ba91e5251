package sites

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muster/internal/testutil"
)

// Head reads the first records of a file of any size, also while the file grows.
func TestHeadReadsTheFirstRecords(t *testing.T) {
	t.Parallel()
	const record = `{"name":"x"}` + "\n"
	huge := `{"name":"` + strings.Repeat("y", maxHead) + `"}` + "\n"
	for name, c := range map[string]struct {
		text string
		want int
		more bool
	}{
		"few":                   {record + record, 2, false},
		"more":                  {strings.Repeat(record, 4), 3, true},
		"none":                  {"", 0, false},
		"one is being written":  {record + `{"na`, 1, true},
		"one is huge":           {record + huge + record, 1, true},
		"the first one is huge": {huge, 0, true},
		"a damaged line":        {record + "no JSON\n" + record, 2, false},
	} {
		path := filepath.Join(t.TempDir(), "item.jsonl")
		testutil.Ok(t, os.WriteFile(path, []byte(c.text), 0o600))
		head, err := headOf(path, 3)
		if err != nil || head.Type != "item" || len(head.Records) != c.want || head.More != c.more {
			t.Errorf("%s: got %d records of %q, more %v, %v; want %d and %v", name, len(head.Records), head.Type, head.More, err, c.want, c.more)
		}
	}
	if head, err := headOf(filepath.Join(t.TempDir(), "item.jsonl"), 3); err != nil || len(head.Records) != 0 || head.More {
		t.Errorf("a missing file: got %+v, %v, want no records", head, err)
	}
}
