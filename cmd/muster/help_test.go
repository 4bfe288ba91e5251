package main

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/urfave/cli/v2"
)

// Every command has a page of help that fits a terminal, the same by --help and
// by muster help.
func TestHelpFits(t *testing.T) {
	t.Parallel()
	ask := func(args ...string) string {
		var out, errs bytes.Buffer
		env := environment{stdin: strings.NewReader(""), stdout: &out, stderr: &errs, hard: t.Context()}
		if code := run(t.Context(), env, append([]string{"muster"}, args...)); code != exitDone || errs.Len() > 0 {
			t.Errorf("%v: exit %d, %s", args, code, errs.String())
		}
		return out.String()
	}
	pages := 0
	var walk func(path []string, list []*cli.Command)
	walk = func(path []string, list []*cli.Command) {
		page := ask(append(path, "--help")...)
		if other := ask(append([]string{"help"}, path...)...); other != page {
			t.Errorf("help %v: got\n%s\nwant\n%s", path, other, page)
		}
		for line := range strings.Lines(page) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > helpWidth || strings.HasSuffix(line, " \n") {
				t.Errorf("%v: %d characters: %q", path, n, line)
			}
		}
		if want := "NAME:\n   " + strings.Join(append([]string{"muster"}, path...), " ") + " - "; !strings.HasPrefix(page, want) {
			t.Errorf("%v: got\n%s\nwant it to begin with\n%s", path, page, want)
		}
		pages++
		for _, c := range list {
			if c.Hidden {
				continue
			}
			if !strings.Contains(page, "\n   "+c.Name) {
				t.Errorf("%v does not list %s", path, c.Name)
			}
			walk(append(path[:len(path):len(path)], c.Name), c.Subcommands)
		}
	}
	walk(nil, commands(environment{}))
	if pages < 50 {
		t.Errorf("saw %d pages", pages)
	}
}
