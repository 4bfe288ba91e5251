package definition

import (
	"os"
	"regexp"
	"testing"

	"muster/internal/testutil"
)

// The definitions in the README load.
func TestReadmeExamplesLoad(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../README.md")
	testutil.Ok(t, err)
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(readme, -1)
	if len(blocks) == 0 {
		t.Fatal("no YAML in README.md")
	}
	for _, b := range blocks {
		if _, err := Parse("README.md", b[1]); err != nil {
			t.Errorf("%v", err)
		}
	}
	// The README's forms of next load.
	for _, m := range regexp.MustCompile("`(next: [^`]+)`").FindAllSubmatch(readme, -1) {
		text := "site: s\nbase_url: http://s.example\nstart: [/]\nlisting:\n  format: json\n  " + string(m[1]) + "\nrecords: {r: {from: listing, each_json: a, fields: {t: {json: b}}}}\n"
		if _, err := Parse("README.md", []byte(text)); err != nil {
			t.Errorf("%s: %v", m[1], err)
		}
	}
}
