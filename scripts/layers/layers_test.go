// Package layers keeps the import graph as the README draws it, and sees that
// every package says what it does.
package layers

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// mayImport says, for each top-level folder, which others its packages use.
var mayImport = map[string][]string{
	"cmd":          {"orchestrator", "sites", "proxies", "tasks", "internal"},
	"orchestrator": {"sites", "proxies", "tasks", "internal"},
	"sites":        {"tasks", "internal"},
	"proxies":      {"tasks", "internal"},
	"tasks":        {"internal"},
	"internal":     {},        // leaves, that two or more of the others need
	"examples":     {"tasks"}, // as users do
	"scripts":      {"cmd", "orchestrator", "sites", "proxies", "tasks", "internal"},
}

// topLevel is what may lie at the root, besides files.
var topLevel = []string{".ci", ".git", "cmd", "tasks", "orchestrator", "proxies", "sites", "internal", "scripts", "examples", "docs", "bin", "data"}

// confined says where a module may be imported, by package path within the
// module, a trailing slash standing for all below.
var confined = map[string][]string{
	"github.com/hibiken/asynq":            {"tasks", "tasks/internal/", "orchestrator/api", "scripts/"},
	"github.com/hibiken/asynqmon":         {"orchestrator/api"},
	"github.com/urfave/cli/v2":            {"cmd/"},
	"github.com/alicebob/miniredis/v2":    {"tasks/redistest", "tasks/taskstest", "orchestrator/redisd"},
	"github.com/prometheus/client_golang": {"tasks", "tasks/", "orchestrator/", "proxies/"},
	"go.opentelemetry.io/otel":            {"tasks/otel"},
}

// pkg is what go list knows of a package.
type pkg struct {
	ImportPath, Dir, Doc      string
	GoFiles, TestGoFiles      []string
	Imports                   []string
	TestImports, XTestImports []string
	Module                    struct{ Path string }
}

func (p pkg) path() string { return strings.TrimPrefix(p.ImportPath, p.Module.Path+"/") }

func packages(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,Doc,GoFiles,TestGoFiles,Imports,TestImports,XTestImports,Module", "./...")
	cmd.Dir = "../.."
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var list []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return list
		} else if err != nil {
			t.Fatal(err)
		}
		list = append(list, p)
	}
}

func TestLayers(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		if p.Doc == "" && len(p.GoFiles) > 0 {
			t.Errorf("%s has no package doc: say in a sentence what it does", p.path())
		}
		from, _, _ := strings.Cut(p.path(), "/")
		for _, imp := range p.Imports {
			ours, ok := strings.CutPrefix(imp, p.Module.Path+"/")
			if !ok {
				confine(t, p, imp)
				continue
			}
			to, _, _ := strings.Cut(ours, "/")
			if to != from && !slices.Contains(mayImport[from], to) {
				t.Errorf("%s imports %s: %s may use only %v", p.path(), ours, from, mayImport[from])
			}
			if strings.HasSuffix(ours, "test") && !strings.HasSuffix(p.path(), "test") &&
				!strings.HasPrefix(p.path(), "orchestrator/demo") && from != "scripts" {
				t.Errorf("%s imports %s: packages for tests are for tests", p.path(), ours)
			}
		}
	}
}

// confine sees that an import from outside is made where it may be.
func confine(t *testing.T, p pkg, imp string) {
	for module, places := range confined {
		if imp != module && !strings.HasPrefix(imp, module+"/") {
			continue
		}
		if !slices.ContainsFunc(places, func(place string) bool {
			return p.path() == place || strings.HasSuffix(place, "/") && strings.HasPrefix(p.path()+"/", place)
		}) {
			t.Errorf("%s imports %s: only %v may", p.path(), imp, places)
		}
	}
	if imp == "github.com/redis/go-redis/v9" && !hasKeys(p) {
		t.Errorf("%s imports go-redis but has no keys.go: whoever talks to Redis names its keys there", p.path())
	}
}

func hasKeys(p pkg) bool {
	switch p.path() {
	case "orchestrator/redisd", "tasks/redistest", "tasks/taskstest", "tasks/internal/engine", "tasks",
		"sites", "sites/crawl", "sites/record":
		return true // a server, not its contents; a client that is handed through; keys that are in an internal/store
	}
	return slices.Contains(p.GoFiles, "keys.go") || strings.HasPrefix(p.path(), "scripts/")
}

func TestTopLevel(t *testing.T) {
	t.Parallel()
	entries, err := os.ReadDir("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() && !slices.Contains(topLevel, e.Name()) {
			t.Errorf("folder %s at the top level: helpers live under the folder that owns them", e.Name())
		}
	}
}

func TestLuaHeaders(t *testing.T) {
	t.Parallel()
	err := filepath.WalkDir("../..", func(path string, e os.DirEntry, err error) error {
		// What is put in front of other scripts returns nothing of its own.
		shared := []string{"common.lua", "lib.lua", "index.lua", "flow.lua"}
		if err != nil || e.IsDir() || filepath.Ext(path) != ".lua" || slices.Contains(shared, e.Name()) {
			return err
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		head, _, _ := strings.Cut(string(src), "\n\n")
		for _, word := range []string{"KEYS", "ARGV", "eturns"} {
			if !strings.Contains(head, word) {
				t.Errorf("%s: the comment at its head should tell its %s", strings.TrimPrefix(path, "../../"), strings.Replace(word, "eturns", "returns", 1))
			}
		}
		if strings.Contains(string(src), "cjson") {
			t.Errorf("%s uses cjson: it turns [] into {} and rounds large numbers", strings.TrimPrefix(path, "../../"))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
