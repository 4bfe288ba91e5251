package layers

import (
	"errors"
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"testing"
)

// plain are the packages whose exported declarations mention no type of an internal package.
var plain = []string{"tasks", "tasks/tasktype", "tasks/taskstest", "tasks/metrics", "tasks/otel", "tasks/limit"}

// module is the path of the module, with a slash behind it.
var module = strings.TrimSuffix(reflect.TypeFor[pkg]().PkgPath(), "scripts/layers")

// Exported declarations are not aliases, and their types mention neither internal packages nor any.
func TestExportedDeclarationsArePlain(t *testing.T) {
	t.Parallel()
	imp := importer.ForCompiler(token.NewFileSet(), "gc", exportData(t))
	for _, path := range plain {
		pkg, err := imp.Import(module + path)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range pkg.Scope().Names() {
			obj := pkg.Scope().Lookup(name)
			if !obj.Exported() {
				continue
			}
			if err := shows(obj); err != nil {
				t.Errorf("%s.%s %v: go doc does not show it to users", path, name, err)
			}
		}
	}
}

// exportData returns the function by which the importer opens the export data of a package.
func exportData(t *testing.T) importer.Lookup {
	t.Helper()
	cmd := exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", "./tasks/...")
	cmd.Dir, cmd.Stderr = "../..", os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	files := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		files[path] = file
	}
	return func(path string) (io.ReadCloser, error) { return os.Open(files[path]) }
}

// shows returns what is wrong with the type of a declaration and, if it declares a type, with its fields and methods.
func shows(obj types.Object) error {
	decl, ok := obj.(*types.TypeName)
	if !ok {
		return mentions(obj.Type())
	}
	if decl.IsAlias() {
		return fmt.Errorf("is an alias of %s", types.Unalias(decl.Type()))
	}
	errs := []error{mentions(decl.Type().Underlying())}
	named := decl.Type().(*types.Named)
	for m := range named.Methods() {
		if m.Exported() {
			errs = append(errs, mentions(m.Type()))
		}
	}
	return errors.Join(errs...)
}

// mentions returns an error for each part of a type that no exported declaration may mention. It does not look into
// named types.
func mentions(t types.Type) error {
	var errs []error
	look := func(part types.Type) { errs = append(errs, mentions(part)) }
	switch t := t.(type) {
	case *types.Alias:
		look(types.Unalias(t))
	case *types.Named:
		if pkg := t.Obj().Pkg(); pkg != nil && strings.HasPrefix(pkg.Path(), module) && strings.Contains(pkg.Path()+"/", "/internal/") {
			return fmt.Errorf("mentions %s", t)
		}
		for arg := range t.TypeArgs().Types() {
			look(arg)
		}
	case *types.Interface:
		if t.NumMethods() == 0 && t.NumEmbeddeds() == 0 {
			return errors.New("mentions any")
		}
		for m := range t.Methods() {
			if m.Exported() {
				look(m.Type())
			}
		}
	case *types.Signature:
		for v := range t.Params().Variables() {
			look(v.Type())
		}
		for v := range t.Results().Variables() {
			look(v.Type())
		}
	case *types.Struct:
		for f := range t.Fields() {
			if f.Exported() {
				look(f.Type())
			}
		}
	case *types.Map:
		look(t.Key())
		look(t.Elem())
	case interface{ Elem() types.Type }: // pointers, slices, arrays and channels
		look(t.Elem())
	}
	return errors.Join(errs...)
}
