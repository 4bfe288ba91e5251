package main

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"muster/orchestrator/config"
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

// Every setting and every variable of the environment that a command's help names exists.
func TestHelpNamesSettingsThatExist(t *testing.T) {
	t.Parallel()
	loaded, err := config.Load(config.Sources{File: os.DevNull})
	if err != nil {
		t.Fatal(err)
	}
	sections, known := map[string]bool{}, map[string]bool{"MUSTER_CONFIG": true, apiKeyVariable: true}
	for _, s := range loaded.Settings() {
		section, _, _ := strings.Cut(s.Path, ".")
		variable := "MUSTER_" + strings.ToUpper(strings.ReplaceAll(s.Path, ".", "__"))
		sections[section], known[s.Path], known[variable], known[variable+"_FILE"] = true, true, true, true
	}
	setting, variable := regexp.MustCompile(`\b([a-z]+)\.[a-z_]+\b`), regexp.MustCompile(`\bMUSTER_[A-Z_]+\b`)
	found := 0
	var walk func(list []*cli.Command)
	walk = func(list []*cli.Command) {
		for _, c := range list {
			text := c.Usage + "\n" + c.Description
			for _, f := range c.Flags {
				text += "\n" + f.String()
			}
			for _, m := range setting.FindAllStringSubmatch(text, -1) {
				if sections[m[1]] && !strings.HasSuffix(m[0], ".yaml") {
					if found++; !known[m[0]] {
						t.Errorf("%s: help names the setting %s, which does not exist", c.Name, m[0])
					}
				}
			}
			for _, name := range variable.FindAllString(text, -1) {
				if found++; !known[name] {
					t.Errorf("%s: help names %s, which does not exist", c.Name, name)
				}
			}
			walk(c.Subcommands)
		}
	}
	walk(commands(environment{}))
	if found < 2 {
		t.Errorf("help names %d settings, want some", found)
	}
}
