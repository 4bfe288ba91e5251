package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"muster/orchestrator/config"
)

// The names that messages and settings may mention: commands, flags, settings and
// their environment variables.
var (
	advisedCommand = regexp.MustCompile(`\bmuster ((?:[a-z][a-z-]*)(?: [a-z][a-z-]*)*)`)
	advisedFlag    = regexp.MustCompile(`(?:^|[\s(\[|'"])--([a-z][a-z-]+)`)
	advisedSetting = regexp.MustCompile(`(?:^|[\s(\[|'"` + "`" + `])((?:redis|log|workers|queue|proxies|sites|wait|api|jobs|agents|webhooks|shutdown)\.[a-z_.]*[a-z])\b`)
	ofRedis        = regexp.MustCompile(`redis-[a-z-]+ --\S+`) // a flag of Redis's programs
	advisedVar     = regexp.MustCompile(`\bMUSTER_[A-Z]+_[A-Z_]*[A-Z]`)
)

// advice checks texts against the command tree and the settings.
type advice struct {
	commands []*cli.Command
	flags    []string // of any command
	settings map[string]bool
	vars     map[string]bool
}

func newAdvice(t *testing.T) *advice {
	t.Helper()
	app := newApp(environment{})
	a := &advice{commands: app.Commands, settings: map[string]bool{}, vars: map[string]bool{}}
	a.flags = append(flagNames(app.Flags), "generate-bash-completion")
	var walk func([]*cli.Command)
	walk = func(list []*cli.Command) {
		for _, c := range list {
			a.flags = append(a.flags, flagNames(c.Flags)...)
			walk(c.Subcommands)
		}
	}
	walk(app.Commands)
	loaded, err := config.Load(config.Sources{File: filepath.Join("..", "..", "muster.example.yaml")})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range loaded.Settings() {
		a.settings[s.Path] = true
		if at := strings.LastIndex(s.Path, "."); at >= 0 {
			a.settings[s.Path[:at]] = true // api.jwt is a part of the settings
		}
		a.vars[s.Env], a.vars[s.Env+"_FILE"] = true, true // a secret of both kinds
	}
	return a
}

func flagNames(flags []cli.Flag) []string {
	var names []string
	for _, f := range flags {
		if hidden, ok := f.(cli.VisibleFlag); !ok || hidden.IsVisible() {
			names = append(names, f.Names()...)
		}
	}
	return append(names, "help", "version")
}

// wrong lists the names in a text that do not exist.
func (a *advice) wrong(text string) []string {
	var bad []string
	text = ofRedis.ReplaceAllString(text, "")
	for _, m := range advisedCommand.FindAllStringSubmatch(text, -1) {
		list, path := a.commands, "muster"
		for word := range strings.FieldsSeq(m[1]) {
			i := slices.IndexFunc(list, func(c *cli.Command) bool { return c.HasName(word) })
			if i < 0 {
				if list != nil {
					bad = append(bad, path+" "+word)
				}
				break
			}
			path += " " + word
			list = list[i].Subcommands
		}
	}
	for _, m := range advisedFlag.FindAllStringSubmatch(text, -1) {
		if !slices.Contains(a.flags, m[1]) {
			bad = append(bad, "--"+m[1])
		}
	}
	for _, m := range advisedSetting.FindAllStringSubmatch(text, -1) {
		if !a.settings[m[1]] {
			bad = append(bad, m[1])
		}
	}
	for _, name := range advisedVar.FindAllString(text, -1) {
		if strings.Contains(name, "__") && !a.vars[name] {
			bad = append(bad, name)
		}
	}
	return bad
}

// Each flag, command, setting and variable that a message or a file of settings names exists.
func TestAdviceNamesWhatExists(t *testing.T) {
	t.Parallel()
	a := newAdvice(t)
	root := filepath.Join("..", "..")
	texts := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel := strings.TrimPrefix(path, root+string(filepath.Separator))
		switch {
		case d.IsDir() && (rel == "scripts" || rel == "examples" || d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && path != root):
			return filepath.SkipDir
		case strings.HasSuffix(rel, ".yaml") && !strings.Contains(rel, "/"):
			text, err := os.ReadFile(path)
			for i, line := range strings.Split(string(text), "\n") {
				texts++
				for _, bad := range a.wrong(line) {
					t.Errorf("%s:%d names %s, which does not exist", rel, i+1, bad)
				}
			}
			return err
		case strings.HasSuffix(rel, ".go") && !strings.HasSuffix(rel, "_test.go"):
			files := token.NewFileSet()
			file, err := parser.ParseFile(files, path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				literal, ok := n.(*ast.BasicLit)
				if !ok || literal.Kind != token.STRING {
					return true
				}
				// A single word is an argument or a name; advice has several.
				text, err := strconv.Unquote(literal.Value)
				if err != nil || !strings.Contains(strings.TrimSpace(text), " ") {
					return true
				}
				texts++
				for _, bad := range a.wrong(text) {
					t.Errorf("%s:%d names %s, which does not exist", rel, files.Position(literal.Pos()).Line, bad)
				}
				return true
			})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if texts < 1000 {
		t.Errorf("saw %d texts, want at least 1000", texts)
	}
}

// The check of advice finds wrong names, and only those.
func TestAdviceIsChecked(t *testing.T) {
	t.Parallel()
	a := newAdvice(t)
	for text, want := range map[string]string{
		"or run with the built-in Redis (--redis-mode embedded)": "--redis-mode",
		"see muster jobs bury, or muster jobs list":              "muster jobs bury",
		"begin with `muster strat`":                              "muster strat",
		"name its key in proxies.judge_keys_file":                "proxies.judge_keys_file",
		"set MUSTER_REDIS__MODES=child":                          "MUSTER_REDIS__MODES",
		"begin with `muster start`, or give its address with --redis; set redis.mode (MUSTER_REDIS__MODE=child)": "",
		"look with redis-cli --scan": "",
	} {
		if got := strings.Join(a.wrong(text), ", "); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
