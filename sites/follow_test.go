package sites

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/sites/internal/sitetest"
)

func TestFollowPassesEachRecordOnOnce(t *testing.T) {
	t.Parallel()
	a, c := `{"a":1}`, `{"c":2}`
	path, read, got := filepath.Join(t.TempDir(), "item.jsonl"), int64(0), ""
	for i, step := range []struct{ text, want string }{{"", ""}, {a + "\n{\"b\"", a}, {a + "\n" + c + "\n", a + c}, {a + "\n" + c + "\n", a + c}} { // the torn line is cut off
		if step.text != "" {
			testutil.Ok(t, os.WriteFile(path, []byte(step.text), 0o600))
		}
		n, err := passOn(t.Context(), path, read, func(record []byte) error { got += string(record); return nil })
		if read += n; err != nil || got != step.want {
			t.Errorf("step %d: got %s, %v, want %s", i, got, err, step.want)
		}
	}
}

func TestFollowEnds(t *testing.T) {
	t.Parallel()
	site := sitetest.NewShop(t, 1, 10)
	s := newService(t, redistest.New(t))
	sum := scrape(t, s, "j1", site.Definition(t, ""), ScrapeOptions{BaseURL: site.URL})
	seen := 0
	count := func([]byte) error { seen++; return nil }
	if err := s.Follow(t.Context(), "j1", count); err != nil || seen != sum.Records {
		t.Errorf("a job that is over: got %d records and error %v, want %d and none", seen, err, sum.Records)
	}
	full := errors.New("no")
	if err := s.Follow(t.Context(), "j1", func([]byte) error { return full }); !errors.Is(err, full) {
		t.Errorf("when the function fails: got error %v, want %v", err, full)
	}
	testutil.Ok(t, s.Follow(t.Context(), "unknown", count)) // a job that does not exist
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Follow(ctx, "j1", count); !errors.Is(err, context.Canceled) {
		t.Errorf("when ctx has ended: got error %v, want %v", err, context.Canceled)
	}
}

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
