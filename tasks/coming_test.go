package tasks_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"muster/tasks"
	"muster/tasks/tasktype"
)

// What the pages for those who come from elsewhere name is there, under that name.
func TestPagesNameWhatThereIs(t *testing.T) {
	t.Parallel()
	known := map[string]map[string]bool{"tasks": exported(t)}
	members := func(name string, types ...reflect.Type) {
		known[name] = map[string]bool{}
		for _, typ := range types {
			for i := range typ.NumMethod() {
				known[name][typ.Method(i).Name] = true
			}
			if typ.Kind() == reflect.Pointer {
				typ = typ.Elem()
			}
			for i := range typ.NumField() {
				known[name][typ.Field(i).Name] = true
			}
		}
	}
	members("client", reflect.TypeFor[*tasks.Client]())
	members("run", reflect.TypeFor[*tasks.AsyncResult[any]]())
	members("mux", reflect.TypeFor[*tasks.Mux]())
	members("worker", reflect.TypeFor[*tasks.Worker]())
	members("WorkerConfig", reflect.TypeFor[tasks.WorkerConfig]())
	members("InfoFrom(ctx)", reflect.TypeFor[tasktype.Info]())
	name := regexp.MustCompile(`(\btasks|\bclient|\brun|\bmux|\bworker|\bWorkerConfig|\bInfoFrom\(ctx\))\.([A-Z]\w*)`)
	for _, page := range []string{"COMING-FROM-ASYNQ.md", "COMING-FROM-CELERY.md"} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for n, line := range strings.Split(string(text), "\n") {
			if cells := strings.Split(line, "|"); len(cells) > 2 && cells[0] == "" {
				line = strings.Join(cells[2:], "|") // the first column is theirs
			}
			for _, m := range name.FindAllStringSubmatch(line, -1) {
				found++
				if !known[m[1]][m[2]] {
					t.Errorf("%s:%d: there is no %s.%s", page, n+1, m[1], m[2])
				}
			}
		}
		if found < 20 {
			t.Errorf("%s names %d things; is it read as it should be?", page, found)
		}
	}
}

// exported is what package tasks exports.
func exported(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					names[d.Name.Name] = true
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					switch s := s.(type) {
					case *ast.TypeSpec:
						names[s.Name.Name] = true
					case *ast.ValueSpec:
						for _, n := range s.Names {
							names[n.Name] = true
						}
					}
				}
			}
		}
	}
	return names
}
