package layers

import (
	"go/ast"
	"path"
	"path/filepath"
	"regexp"
	"testing"
)

// pageIdentifier matches an identifier of a package for users of tasks, or a method of the variables that pages use.
var pageIdentifier = regexp.MustCompile(`\b(tasks|tasktype|taskstest|client|run|worker|scheduler)\.([A-Z]\w+)`)

// The identifiers of Go that the pages name exist.
func TestPagesNameExistingIdentifiers(t *testing.T) {
	t.Parallel()
	receivers := map[string]string{"client": "Client", "run": "AsyncResult", "worker": "Worker", "scheduler": "Scheduler"}
	known := map[string]bool{"client.Enqueue": true} // asynq's
	for _, f := range goFiles(t) {
		dir := path.Dir(f.path)
		if f.test || dir != "tasks" && path.Dir(dir) != "tasks" {
			continue
		}
		for _, decl := range f.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					known[path.Base(dir)+"."+d.Name.Name] = true
					continue
				}
				ast.Inspect(d.Recv.List[0].Type, func(n ast.Node) bool {
					for variable, receiver := range receivers {
						if id, ok := n.(*ast.Ident); ok && dir == "tasks" && id.Name == receiver {
							known[variable+"."+d.Name.Name] = true
						}
					}
					return true
				})
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch s := spec.(type) {
					case *ast.TypeSpec:
						known[path.Base(dir)+"."+s.Name.Name] = true
					case *ast.ValueSpec:
						for _, name := range s.Names {
							known[path.Base(dir)+"."+name.Name] = true
						}
					}
				}
			}
		}
	}
	seen := 0
	for _, pattern := range []string{"README.md", "docs/*.md", "docs/*/*.md"} {
		pages, err := filepath.Glob(filepath.Join("..", "..", pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, page := range pages {
			for _, m := range pageIdentifier.FindAllStringSubmatch(readFile(t, page), -1) {
				seen++
				if !known[m[1]+"."+m[2]] {
					t.Errorf("%s: unknown identifier %s", page, m[0])
				}
			}
		}
	}
	if seen < 300 {
		t.Errorf("saw %d identifiers, want more than 300", seen)
	}
}
