package layers

import (
	"go/ast"
	"path"
	"slices"
	"strings"
	"testing"
)

// imported are the packages that other programs import.
var imported = []string{
	"tasks", "tasks/limit", "tasks/metrics", "tasks/otel", "tasks/taskstest", "tasks/tasktype", "tasks/ui", "tasks/workqueue",
}

// byOthers are methods that are called through interfaces of the standard library.
var byOthers = []string{"MarshalJSON", "UnmarshalJSON", "MarshalText", "UnmarshalText", "Error", "Unwrap", "String", "Format", "LogValue"}

// Each exported function and method of a package that other programs import is called by a test, or by an example, which
// is a test, too.
func TestExportedFunctionsAreTested(t *testing.T) {
	t.Parallel()
	files := goFiles(t)
	used := map[string]bool{}
	for _, f := range files {
		if !f.test && !strings.HasPrefix(f.path, "examples/") {
			continue
		}
		ast.Inspect(f.File, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				used[id.Name] = true
			}
			return true
		})
	}
	for _, f := range files {
		if f.test || !slices.Contains(imported, path.Dir(f.path)) {
			continue
		}
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || !fn.Name.IsExported() || fn.Recv != nil && !ast.IsExported(receiver(fn)) || slices.Contains(byOthers, fn.Name.Name) {
				continue
			}
			if !used[fn.Name.Name] {
				t.Errorf("%s: no test calls %s", f.path, fn.Name.Name)
			}
		}
	}
}
