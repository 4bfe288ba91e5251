// Package layers tests the import graph and the presence of package comments.
package layers

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// mayImport lists the top-level directories that each top-level directory may import.
var mayImport = map[string][]string{
	"cmd":          {"orchestrator", "jobs", "sites", "proxies", "tasks", "internal"},
	"orchestrator": {"jobs", "sites", "proxies", "tasks", "internal"},
	"jobs":         {"tasks", "internal"},
	"sites":        {"tasks", "internal"},
	"proxies":      {"tasks", "internal"},
	"tasks":        {"internal"},
	"internal":     {},        // leaf packages with at least two importers
	"examples":     {"tasks"}, // like user programs
	"scripts":      {"cmd", "orchestrator", "jobs", "sites", "proxies", "tasks", "internal"},
}

// confined lists the packages that may import a module. A trailing slash includes all packages below a path.
var confined = map[string][]string{
	"github.com/hibiken/asynq":            {"tasks", "tasks/internal/", "orchestrator"},
	"github.com/hibiken/asynqmon":         {"orchestrator/api"},
	"github.com/danielgtaylor/huma/v2":    {"orchestrator/api", "tasks/api", "internal/humaapi"},
	"github.com/go-jose/go-jose/v4":       {"orchestrator/access"},
	"github.com/rs/cors":                  {"orchestrator/api"},
	"github.com/urfave/cli/v2":            {"cmd/"},
	"github.com/alicebob/miniredis/v2":    {"internal/redistest", "tasks/taskstest", "tasks/embedded"},
	"github.com/prometheus/client_golang": {"tasks/metrics", "orchestrator/", "jobs/", "proxies/"},
	"go.opentelemetry.io/otel":            {"tasks/otel", "internal/tracing", "internal/tracing/otlp", "internal/logctx"},
}

// handedRedis are packages that import go-redis without a keys.go: they start a server, pass a client on, read scripts, or have
// their keys in an internal/store.
var handedRedis = []string{
	"orchestrator/redisd", "internal/redistest", "tasks/taskstest", "tasks/embedded", "tasks/internal/engine", "tasks",
	"sites", "sites/crawl", "sites/record", "internal/luascript",
}

// pkg is a package in the output of go list.
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
			t.Errorf("%s has no package comment", p.path())
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
				t.Errorf("%s imports %s: only tests may import test packages", p.path(), ours)
			}
		}
	}
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
