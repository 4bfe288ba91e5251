package main

import (
	"flag"
	"fmt"
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

// docs/reference/cli.md has a line per command: its usage. go generate writes it.
func TestManual(t *testing.T) {
	t.Parallel()
	page := new(strings.Builder)
	page.WriteString(`# Commands

Made by ` + "`go generate ./cmd/muster`" + ` from the help of the program. ` + "`muster COMMAND --help`" + ` has its options and examples; ` + "`muster man`" + ` prints a manual page.

Results are on standard output, everything else is on standard error. On a terminal, tables are cut to its width and states have colours unless ` + "`NO_COLOR`" + ` is set.
Exit codes: 0 success, 1 failure, 2 wrong usage, 130 interrupted (0 if a server received SIGTERM), 141 closed pipe.

All commands have `)
	for _, f := range globalFlags() {
		name, _ := flagText(f)
		page.WriteString("`" + name + "`, ")
	}
	page.WriteString("and most `--json`, which prints the response of the [HTTP API](api.md), and `--server URL`, which calls an orchestrator with the key in `MUSTER_API_KEY`.\n")
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
