package main

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"reflect"
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

// docs/reference/cli.md is the manual of these commands. go generate writes it.
func TestManual(t *testing.T) {
	t.Parallel()
	want := manual(newApp(environment{}))
	testutil.Page(t, "../../docs/reference/cli.md", []byte(want), *update, "go generate ./cmd/muster")
	leaves(func(path string, _ *cli.Command) {
		if !strings.Contains(want, "\n## "+path+"\n") {
			t.Errorf("the manual has nothing on %s", path)
		}
	})
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

// The manual has the JSON of each command that prints it, and of no other.
func TestAnswersAreOfCommands(t *testing.T) {
	t.Parallel()
	known := maps.Clone(jsonOutputs)
	leaves(func(path string, c *cli.Command) {
		name := strings.TrimPrefix(path, "muster ")
		if _, ok := known[name]; ok != slices.Contains(flagNames(c.Flags), "json") {
			t.Errorf("%s has --json: %v, and in jsonOutputs: %v; add the type that it prints to json_outputs.go", path, !ok, ok)
		}
		delete(known, name)
	})
	for name := range known {
		t.Errorf("jsonOutputs has %s, which is not a command", name)
	}
}

// checkJSONOutput exits when a command prints a type that the manual does not list.
// All scripts of the manual run with it.
func checkJSONOutput(c *cli.Command, v any) {
	path := strings.TrimPrefix(c.HelpName, "muster ")
	for _, a := range jsonOutputs[path] {
		if got, want := reflect.TypeOf(v), reflect.TypeOf(a.value); got == want || got == reflect.PointerTo(want) {
			return
		}
	}
	fmt.Fprintf(os.Stderr, "muster %s prints a %T as JSON, which is not in json_outputs.go\n", path, v)
	os.Exit(3)
}

func TestShapesOfJSON(t *testing.T) {
	t.Parallel()
	type inner struct {
		Hidden string `json:"-"`
		N      int    `json:"n,omitempty"`
	}
	type outer struct {
		inner
		Name string           `json:"name"`
		List []inner          `json:"list"`
		By   map[string]*bool `json:"by"`
		Self []outer          `json:"self"`
	}
	const want = `{
  "n"?: number
  "name": string
  "list": [{
    "n"?: number
  }, …]
  "by": {"…": boolean}
  "self": [{…}, …]
}`
	if got := shapeOf(reflect.TypeFor[outer]()); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// Completion lists commands, their flags and sites, and nothing in place of a value or a file.
func TestCompletion(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for line, want := range map[string]string{
		"que":                      "queue",
		"jobs sta":                 "start status",
		"jobs list --sta":          "--status --stats",
		"--redis redis://h jobs w": "wait",
		"jobs list --status ":      "",
		"jobs start --document ":   "",
		"completion ":              "bash fish zsh",
		"scrape quotes":            "quotes-tableful quotes.toscrape.com",
		"scrape --wait books":      "books.toscrape.com",
		"jobs wait ":               "",
		"nothing ":                 "",
	} {
		var out bytes.Buffer
		env := environment{stdin: strings.NewReader(""), stdout: &out, stderr: &out, hard: t.Context(), environ: []string{"MUSTER_DATA_DIR=" + dir}}
		words := strings.Split(line, " ")
		if code := run(t.Context(), env, append([]string{"muster", completeWord}, words...)); code != exitDone {
			t.Errorf("%q: exit %d", line, code)
		}
		var got []string
		for l := range strings.Lines(out.String()) {
			word, _, _ := strings.Cut(l, "\t")
			got = append(got, word)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q: got %q, want %q", line, got, want)
		}
	}
}
