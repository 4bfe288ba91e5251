// Package layers tests the import graph against the README, and that every
// package has a doc comment.
package layers

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// mayImport lists, for each top-level folder, the others that its packages may import.
var mayImport = map[string][]string{
	"cmd":          {"orchestrator", "sites", "proxies", "tasks", "internal"},
	"orchestrator": {"sites", "proxies", "tasks", "internal"},
	"sites":        {"tasks", "internal"},
	"proxies":      {"tasks", "internal"},
	"tasks":        {"internal"},
	"internal":     {},        // leaves that two or more of the others need
	"examples":     {"tasks"}, // like a user's program
	"scripts":      {"cmd", "orchestrator", "sites", "proxies", "tasks", "internal"},
}

// topLevel lists the folders that may be at the root.
var topLevel = []string{".ci", ".git", "cmd", "tasks", "orchestrator", "proxies", "sites", "internal", "scripts", "examples", "docs", "deploy", "bin", "data", "dist"}

// confined lists the packages that may import a module. A path that ends in a
// slash includes all packages below it.
var confined = map[string][]string{
	"github.com/hibiken/asynq":            {"tasks", "tasks/internal/", "scripts/"},
	"github.com/hibiken/asynqmon":         {"orchestrator/api"},
	"github.com/danielgtaylor/huma/v2":    {"orchestrator/api"},
	"github.com/go-jose/go-jose/v4":       {"orchestrator/access"},
	"github.com/rs/cors":                  {"orchestrator/api"},
	"github.com/urfave/cli/v2":            {"cmd/"},
	"github.com/alicebob/miniredis/v2":    {"tasks/redistest", "tasks/taskstest", "orchestrator/redisd"},
	"github.com/prometheus/client_golang": {"tasks/", "orchestrator/", "proxies/"},
	"go.opentelemetry.io/otel":            {"tasks/otel", "orchestrator/tracing", "orchestrator/tracing/otlp", "internal/logctx"},
}

// handedRedis are packages that import go-redis without a keys.go: they start a
// server, pass a client on, read scripts, or have their keys in an internal/store.
var handedRedis = []string{
	"orchestrator/redisd", "tasks/redistest", "tasks/taskstest", "tasks/internal/engine", "tasks",
	"sites", "sites/record", "internal/luascript",
}

// pkg is a package as go list prints it.
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
			t.Errorf("%s has no package doc: add a sentence that says what it does", p.path())
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
				t.Errorf("%s imports %s: %s may import only %v", p.path(), ours, from, mayImport[from])
			}
			if strings.HasSuffix(ours, "test") && !strings.HasSuffix(p.path(), "test") &&
				!strings.HasPrefix(p.path(), "orchestrator/demo") && from != "scripts" {
				t.Errorf("%s imports %s: only tests may import packages for tests", p.path(), ours)
			}
		}
	}
}

// A name on a list that no longer exists, or is no longer needed, is an error.
func TestListsHaveNoStaleNames(t *testing.T) {
	t.Parallel()
	paths, imports := map[string]bool{}, map[string]bool{}
	folders := map[string]bool{}
	for _, p := range packages(t) {
		paths[p.path()] = true
		for dir := p.path(); dir != "."; dir = path.Dir(dir) {
			folders[dir] = true
		}
		for _, imp := range p.Imports {
			imports[p.path()+" "+imp] = true
		}
	}
	for from, tos := range mayImport {
		for _, folder := range append(tos, from) {
			if !folders[folder] {
				t.Errorf("mayImport names the folder %s, which has no package: remove it", folder)
			}
		}
	}
	for _, p := range handedRedis {
		if !paths[p] || !imports[p+" github.com/redis/go-redis/v9"] {
			t.Errorf("handedRedis names %s, which does not exist or does not import go-redis: remove it", p)
		}
	}
	for _, p := range plain {
		if !paths[p] {
			t.Errorf("plain names %s, which does not exist: remove it", p)
		}
	}
	for module, places := range confined {
		for _, place := range places {
			if !importedBelow(imports, module, place) {
				t.Errorf("confined allows %s in %s, where nothing imports it: remove it", module, place)
			}
		}
	}
}

// importedBelow reports whether a package of a place of confined imports a module. The keys of imports are a package
// and its import, with a space between.
func importedBelow(imports map[string]bool, module, place string) bool {
	for key := range imports {
		from, imp, _ := strings.Cut(key, " ")
		if (from == place || strings.HasSuffix(place, "/") && strings.HasPrefix(from+"/", place)) && (imp == module || strings.HasPrefix(imp, module+"/")) {
			return true
		}
	}
	return false
}

// confine checks that a package may import a package of another module.
func confine(t *testing.T, p pkg, imp string) {
	for module, places := range confined {
		if imp != module && !strings.HasPrefix(imp, module+"/") {
			continue
		}
		if !slices.ContainsFunc(places, func(place string) bool {
			return p.path() == place || strings.HasSuffix(place, "/") && strings.HasPrefix(p.path()+"/", place)
		}) {
			t.Errorf("%s imports %s: only %v may import it", p.path(), imp, places)
		}
	}
	if imp == "github.com/redis/go-redis/v9" && !hasKeys(p) {
		t.Errorf("%s imports go-redis but has no keys.go: name its Redis keys there", p.path())
	}
}

func hasKeys(p pkg) bool {
	return slices.Contains(handedRedis, p.path()) || slices.Contains(p.GoFiles, "keys.go") || strings.HasPrefix(p.path(), "scripts/")
}

func TestTopLevel(t *testing.T) {
	t.Parallel()
	entries, err := os.ReadDir("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() && !slices.Contains(topLevel, e.Name()) {
			t.Errorf("folder %s is at the top level, want one of %v: move it into the folder that uses it", e.Name(), topLevel)
		}
	}
}

func TestLuaHeaders(t *testing.T) {
	t.Parallel()
	err := filepath.WalkDir("../..", func(path string, e os.DirEntry, err error) error {
		// A file that is prepended to other scripts returns nothing.
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
				t.Errorf("%s: the comment at its head does not describe its %s", strings.TrimPrefix(path, "../../"), strings.Replace(word, "eturns", "returns", 1))
			}
		}
		if strings.Contains(string(src), "cjson") {
			t.Errorf("%s uses cjson, which turns [] into {} and rounds large numbers", strings.TrimPrefix(path, "../../"))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
