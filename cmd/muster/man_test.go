package main

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"muster/internal/testutil"
)

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

// docs/reference/cli.md has the help of each command. go generate writes it.
func TestManual(t *testing.T) {
	t.Parallel()
	page := new(strings.Builder)
	page.WriteString(`# Commands

Made by ` + "`go generate ./cmd/muster`" + ` from the help of the program: ` + "`muster COMMAND --help`. `muster man`" + ` prints a manual page.

Results are on standard output, all else is on standard error. On a terminal tables are cut to its width, states have colours unless ` + "`NO_COLOR`" + ` is set, and the log has warnings only. In a file or a pipe nothing is cut and nothing has colours.

Two options are the same in all commands that have them, and are described only here. ` + "`--server URL`" + ` calls the orchestrator at a URL with the key in ` + "`MUSTER_API_KEY`" + `. ` + "`--json`" + ` prints the response of the [HTTP API](api.md).
`)
	add := func(path, usage string, about any) {
		help := new(strings.Builder)
		printHelp(help, "", about)
		_, text, _ := strings.Cut(help.String(), "USAGE:\n") // the name is the heading
		fmt.Fprintf(page, "\n## %s\n\n%s%s.\n\n```\n%s```\n", path, strings.ToUpper(usage[:1]), usage[1:], strings.ReplaceAll(text, "\nDESCRIPTION:\n", "\n"))
	}
	app := newApp(environment{})
	app.HelpName, app.Version = "muster", ""
	add("muster", app.Usage, app)
	leaves(func(path string, c *cli.Command) {
		c.HelpName, c.Flags = path, slices.DeleteFunc(c.Flags, func(f cli.Flag) bool {
			return isGlobal(f) || slices.Contains([]string{"server", "json"}, f.Names()[0]) // the page describes them above
		})
		add(path, c.Usage, c)
	})
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
