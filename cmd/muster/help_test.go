package main

import (
	"bytes"
	"flag"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"muster/internal/testutil"
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

var update = flag.Bool("update", false, "write docs/reference/cli.md")

// leaves calls fn with each command that help shows and that has no commands below it.
func leaves(fn func(path string, c *cli.Command)) {
	var walk func(path string, list []*cli.Command)
	walk = func(path string, list []*cli.Command) {
		for _, c := range list {
			if c.Hidden {
				continue
			}
			if walk(path+" "+c.Name, c.Subcommands); len(c.Subcommands) == 0 {
				fn(path+" "+c.Name, c)
			}
		}
	}
	walk("muster", newApp(environment{}).Commands)
}

// docs/reference/cli.md has a line per command: its usage. go generate writes it.
func TestManual(t *testing.T) {
	t.Parallel()
	page := new(strings.Builder)
	page.WriteString(`# Commands

Made by ` + "`go generate ./cmd/muster`" + ` from the help of the program. ` + "`muster COMMAND --help`" + ` has its options and examples; ` + "`muster man`" + ` prints a manual page.

Results are on standard output, everything else is on standard error. On a terminal, tables are cut to its width and states have colours unless ` + "`NO_COLOR`" + ` is set.
Exit codes: 0 success, 1 failure, 2 wrong usage, 130 interrupted (0 if a server received SIGTERM), 141 closed pipe.

All commands have these options, before or after their name:

`)
	for _, f := range programFlags("") {
		name, usage := flagText(f)
		if f.Names()[0] == "server" {
			page.WriteString("\nSome commands have these, too. `--json` prints the response of the [HTTP API](api.md).\n\n")
		}
		fmt.Fprintf(page, "* `%s`: %s.\n", name, usage)
	}
	var groups []string
	rows := map[string]string{}
	leaves(func(path string, c *cli.Command) {
		group := "muster"
		if words := strings.Fields(path); len(words) > 2 {
			group += " " + words[1]
		}
		if rows[group] == "" {
			groups = append(groups, group)
		}
		rows[group] += fmt.Sprintf("* `%s`: %s.\n", strings.TrimSpace(strings.TrimPrefix(path, group+" ")+" "+c.ArgsUsage), c.Usage)
	})
	for _, group := range groups {
		fmt.Fprintf(page, "\n## %s\n\n%s", group, rows[group])
	}
	testutil.Page(t, "../../docs/reference/cli.md", []byte(page.String()), *update, "go generate ./cmd/muster")
}

// Each command shows how it is used: a line of its description that can be typed.
func TestCommandsHaveExamples(t *testing.T) {
	t.Parallel()
	leaves(func(path string, c *cli.Command) {
		if !strings.Contains("\n"+c.Description, "\n    "+path) && !strings.Contains(c.Description, "| "+path) {
			t.Errorf("%s has no example; add a line \"    %s …\" to its description", path, path)
		}
	})
}
