package main

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/urfave/cli/v2"

	"muster/internal/testutil"
	"muster/internal/yamlstrict"
	"muster/jobs/pipeline"
	"muster/orchestrator/config"
	"muster/sites/definition"
)

// YAML blocks in the documentation load: site definitions, pipelines, settings, and fields of a definition.
// Files of other programs are skipped.
func TestDocumentedYAMLLoads(t *testing.T) {
	t.Parallel()
	var pages []string
	for _, pattern := range []string{"../../*.md", "../../docs/*.md", "../../docs/*/*.md"} {
		found := testutil.Must(filepath.Glob(pattern))(t)
		pages = append(pages, found...)
	}
	sections := map[string]bool{}
	for _, key := range yamlstrict.KeysOf(reflect.TypeFor[config.Config]()) {
		sections[key] = true
	}
	loaded := map[string]int{}
	for _, page := range pages {
		text := testutil.Must(os.ReadFile(page))(t)
		for _, m := range regexp.MustCompile("(?ms)^```yaml\n(.*?)^```").FindAllStringSubmatchIndex(string(text), -1) {
			block := string(text[m[2]:m[3]])
			where := fmt.Sprintf("%s:%d", page, strings.Count(string(text[:m[2]]), "\n")+1)
			kind, err := loadDocumented(t, sections, block)
			if err != nil {
				t.Errorf("%s: %s: %v", where, kind, err)
			}
			loaded[kind]++
		}
	}
	for _, kind := range []string{"definition", "pipeline", "settings", "fields"} {
		if loaded[kind] == 0 {
			t.Errorf("no page shows a block of kind %s; got %v", kind, loaded)
		}
	}
}

// loadDocumented loads a block as the kind that its keys indicate.
func loadDocumented(t *testing.T, sections map[string]bool, block string) (kind string, err error) {
	t.Helper()
	const secret = "d2hhdC1pcy1pbi10aGUtdmFyaWFibGU="
	block = strings.ReplaceAll(block, "whsec_…", "whsec_"+secret)
	keys := map[string]any{}
	if err := yaml.Unmarshal([]byte(block), &keys); err != nil {
		return "YAML", err
	}
	settings := true
	for key := range keys {
		settings = settings && sections[key]
	}
	switch {
	case keys["site"] != nil:
		if keys["records"] == nil { // it shows the head of a definition
			block += "base_url: http://s.example\nstart: [/]\nrecords: {r: {fields: {f: h1}}}\n"
		}
		_, err := definition.Parse("block", []byte(block))
		return "definition", err
	case keys["stages"] != nil:
		_, err := pipeline.Parse("block", []byte(block))
		return "pipeline", err
	case settings:
		file := filepath.Join(t.TempDir(), "muster.yaml")
		testutil.Ok(t, os.WriteFile(file, []byte(block), 0o600))
		var environ []string // a value for each variable
		for _, m := range regexp.MustCompile(`\$\{(\w+)\}`).FindAllStringSubmatch(block, -1) {
			environ = append(environ, m[1]+"="+secret)
		}
		_, err := config.Load(config.Sources{File: file, Environ: environ})
		return "settings", err
	case keys["apiVersion"] != nil, keys["scrape_configs"] != nil, keys["distributor"] != nil:
		return "other", nil
	}
	const head = "site: s\nbase_url: http://s.example\nstart: [/]\nrecords:\n  r:\n    fields:\n"
	lines := strings.SplitAfter(strings.TrimRight(block, "\n"), "\n")
	_, err = definition.Parse("block", []byte(head+"      "+strings.Join(lines, "      ")+"\n"))
	return "fields", err
}

var (
	codeOnPage  = regexp.MustCompile("(?ms)^```.*?^```|`[^`\n]+`")
	nextCommand = regexp.MustCompile(`\s*(?:&&|\|\||[|;\n])\s*|\\\n\s*`)
	flagOfUse   = regexp.MustCompile(`(?:^|\s)(--?[a-z][a-z-]*)`)
	settingName = regexp.MustCompile(`^[a-z]+(?:\.[a-z_]+)+$`)
	settingEnv  = regexp.MustCompile(`\bMUSTER_[A-Z]+(?:__[A-Z_]+)?\b`)
	fileName    = regexp.MustCompile(`\.(go|conf|json|pac|md)$`)
	makeTarget  = regexp.MustCompile(`^make ([a-z0-9]+)`)
)

// The commands, flags, settings, variables and make targets on handwritten pages exist.
func TestReferencesOnPagesExist(t *testing.T) {
	t.Parallel()
	settings, sections := map[string]bool{}, map[string]bool{}
	loaded := testutil.Must(config.Load(config.Sources{File: filepath.Join("..", "..", "muster.example.yaml")}))(t)
	for _, s := range loaded.Settings() {
		settings[s.Path], settings[s.Env] = true, true
		for at := range s.Path {
			if s.Path[at] == '.' {
				sections[s.Path[:at]] = true
			}
		}
	}
	makefile := rootFile(t, "Makefile")
	seen := 0
	for _, page := range handwritten(t) {
		text := rootFile(t, page)
		for _, name := range settingEnv.FindAllString(text, -1) {
			if name = strings.TrimSuffix(name, "_FILE"); strings.Contains(name, "__") && !strings.HasSuffix(name, "_") && !settings[name] {
				t.Errorf("%s: no setting has the variable %s", page, name)
			}
		}
		for _, code := range codeOnPage.FindAllString(text, -1) {
			code = strings.Trim(code, "`")
			section, _, _ := strings.Cut(code, ".")
			if settingName.MatchString(code) && sections[section] && !settings[code] && !sections[code] && !fileName.MatchString(code) {
				t.Errorf("%s: unknown setting %s", page, code)
			}
			for _, line := range nextCommand.Split(code, -1) {
				line = strings.NewReplacer("go run ./cmd/muster", "muster", "bin/muster", "muster").Replace(strings.TrimPrefix(line, "$ "))
				if m := makeTarget.FindStringSubmatch(line); m != nil && !strings.Contains(makefile, "\n"+m[1]+":") {
					t.Errorf("%s: the Makefile has no target %s", page, m[1])
				}
				if args, ok := strings.CutPrefix(line, "muster "); ok {
					seen++
					if err := typable(newApp(environment{}), args); err != nil {
						t.Errorf("%s: %s: %v", page, line, err)
					}
				}
			}
		}
	}
	if seen < 100 {
		t.Errorf("saw %d commands; are they read as they should be?", seen)
	}
}

// handwritten lists the pages of the tree that no program makes.
func handwritten(t *testing.T) []string {
	t.Helper()
	pages := []string{"README.md", "CONTRIBUTING.md", "SECURITY.md", "sites/README.md", "examples/README.md", "examples/agents/README.md"}
	root := filepath.Join("..", "..")
	var found []string
	for _, pattern := range []string{"*.md", filepath.Join("*", "*.md")} {
		in := testutil.Must(filepath.Glob(filepath.Join(root, "docs", pattern)))(t)
		found = append(found, in...)
	}
	for _, path := range found {
		text := testutil.Must(os.ReadFile(path))(t)
		if name, _ := filepath.Rel(root, path); !strings.Contains(string(text), "\nMade by `go generate") {
			pages = append(pages, name)
		}
	}
	return pages
}

// typable returns an error if the program has no such command, or the command no such flag.
func typable(app *cli.App, args string) error {
	args, _, _ = strings.Cut(args, " #")
	words, list, flags := strings.Fields(args), app.Commands, app.Flags
	path := "muster"
	for len(words) > 0 && len(list) > 0 {
		at := slices.IndexFunc(list, func(c *cli.Command) bool { return c.HasName(words[0]) })
		if at < 0 {
			break
		}
		path, words, flags, list = path+" "+words[0], words[1:], list[at].Flags, list[at].Subcommands
	}
	if len(list) > 0 && len(words) > 0 && regexp.MustCompile(`^[a-z][a-z-]*$`).MatchString(words[0]) {
		return fmt.Errorf("%s has no command %s", path, words[0])
	}
	for _, m := range flagOfUse.FindAllStringSubmatch(args, -1) {
		name := strings.TrimLeft(m[1], "-")
		if name != "help" && name != "version" && !slices.ContainsFunc(flags, func(f cli.Flag) bool { return slices.Contains(f.Names(), name) }) {
			return fmt.Errorf("%s has no flag %s", path, m[1])
		}
	}
	return nil
}
