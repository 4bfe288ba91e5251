package store

import (
	"regexp"
	"strings"
	"testing"
)

func TestConstantsOfScripts(t *testing.T) {
	files, err := sources.ReadDir("lua")
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, f := range files {
		all.WriteString(source(strings.TrimSuffix(f.Name(), ".lua")))
	}
	for name := range constants {
		if !regexp.MustCompile(`\b` + name + `\b`).MatchString(all.String()) {
			t.Errorf("no script uses the constant %s", name)
		}
	}

	const script = "put(id, FAILED) string.find('^[{WAITING}]|', {SPANS, 'FAILED', OTHER})"
	if got, want := WithConstants(script), "put(id, 'F') string.find('^[DTLHQ]|', {'d', 'FAILED', OTHER})"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
