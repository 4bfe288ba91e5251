package tasks_test

import (
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// A wrong combination does not compile, and the message names the types.
func TestWrongCodeDoesNotCompile(t *testing.T) {
	t.Parallel()
	check := typeChecker(t)
	for code, want := range map[string][]string{
		`tasks.Chain(Number.S(1), Upper)`:                                            {"tasks.Task[string, string]", "tasks.Task[int,"},
		`tasks.Chain3(Text.S(1), Upper, Number)`:                                     {"tasks.Task[int, int]", "tasks.Task[string,"},
		`tasks.Chord(tasks.Each([]int{1}, Number), Upper)`:                           {"tasks.Task[string, string]", "tasks.Task[[]int,"},
		`tasks.Chord(Number.S(1), Sum)`:                                              {"tasks.Signature[int]", "tasks.Signature[[]"},
		`tasks.Map(Number.S(1), Number)`:                                             {"tasks.Signature[int]", "tasks.Signature[[]"},
		`tasks.Each([]string{"a"}, Number)`:                                          {"tasks.Task[int, int]", "tasks.Task[string,"},
		`tasks.Group(Number.S(1), Upper.S("a"))`:                                     {"tasks.Signature[string]", "tasks.Signature[int]"},
		`Number.S("a")`:                                                              {`"a"`, "int"},
		`Number.S(1).Rescue(Text)`:                                                   {"tasks.Task[int, string]", "tasks.Task[tasks.Failure, int]"},
		`tasks.OnError(Number.S(1), Upper)`:                                          {"tasks.Task[string, string]", "tasks.Task[tasks.Failure,"},
		`tasks.Bind(Number, 2)`:                                                      {"tasks.Task[int, int]", "tasks.Task[tasks.Pair["},
		`tasks.Handle(mux, Number, strings.ToUpper)`:                                 {"func(s string) string", "func(context.Context, I) (O, error)"},
		`var run *tasks.AsyncResult[string]; run, _ = Number.S(1).Send(ctx, client)`: {"*tasks.AsyncResult[int]", "*tasks.AsyncResult[string]"},
	} {
		errs := check(code)
		if !slices.ContainsFunc(errs, func(err error) bool {
			return !slices.ContainsFunc(want, func(w string) bool { return !strings.Contains(err.Error(), w) })
		}) {
			t.Errorf("%s: got %v, want an error with %q", code, errs, want)
		}
	}
	if errs := check("_ = Number.S(1)"); len(errs) > 0 {
		t.Errorf("without wrong code: got %v, want none", errs)
	}
}

// codePrelude has the declarations that the code uses.
const codePrelude = `package page

import (
	"context"
	"strings"

	"muster/tasks"
)

var (
	ctx    context.Context
	client *tasks.Client
	mux    *tasks.Mux

	Number = tasks.New[int, int]("t.number")
	Sum    = tasks.New[[]int, int]("t.sum")
	Text   = tasks.New[int, string]("t.text")
	Upper  = tasks.New[string, string]("t.upper")
)

func _(context.Context, strings.Builder) {
	%s
}
`

// typeChecker returns a function that returns the type errors of a statement.
func typeChecker(t *testing.T) func(code string) []error {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", ".")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	files := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		files[path] = file
	}
	fset := token.NewFileSet()
	imports := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(files[path]) })
	return func(code string) (errs []error) {
		f, err := parser.ParseFile(fset, "", fmt.Sprintf(codePrelude, code), parser.SkipObjectResolution)
		if err != nil {
			return []error{err}
		}
		cfg := types.Config{Importer: imports, Error: func(err error) {
			if e := (types.Error{}); !errors.As(err, &e) || !e.Soft {
				errs = append(errs, err)
			}
		}}
		_, _ = cfg.Check("page", fset, []*ast.File{f}, nil) // Error gets its errors
		return errs
	}
}
