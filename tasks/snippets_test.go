package tasks_test

import (
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/scanner"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"muster/tasks"
	"muster/tasks/taskstest"
)

// The Go code on every page compiles.
func TestSnippetsCompile(t *testing.T) {
	t.Parallel()
	pages := []string{"../README.md", "doc.go"}
	for _, pattern := range []string{"*.md", "../docs/*.md", "../docs/*/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, found...)
	}
	c := newCompiler(t)
	programs := 0
	for _, page := range pages {
		var parts []string // of the page, as the files of a package
		for _, s := range readSnippets(t, page) {
			source, err := s.source()
			switch {
			case err != nil:
				t.Error(err)
			case s.program():
				programs++
				report(t, c.check(source))
			default:
				parts = append(parts, source)
			}
		}
		report(t, c.check(append(parts, prelude)...))
	}
	if programs < 2 {
		t.Errorf("got %d complete programs, want the first one in README.md and in doc.go", programs)
	}
}

func report(t *testing.T, errs []error) {
	t.Helper()
	for _, err := range errs {
		t.Error(err)
	}
}

// The first program is the same on the page of the repository and on that of the package, and short.
func TestFirstProgramIsTheSameOnBothPages(t *testing.T) {
	t.Parallel()
	first := func(page string) string {
		for _, s := range readSnippets(t, page) {
			if s.program() {
				return s.text
			}
		}
		t.Fatalf("%s has no program", page)
		return ""
	}
	readme, doc := first("../README.md"), first("doc.go")
	if readme != doc {
		t.Errorf("README.md has\n%s\ndoc.go has\n%s", readme, doc)
	}
	if n := strings.Count(readme, "\n"); n > 50 {
		t.Errorf("got %d lines, want at most 50", n)
	}
}

// What is joined wrongly, or given where it has no meaning, does not compile, and the message names the types.
func TestWrongCodeDoesNotCompile(t *testing.T) {
	t.Parallel()
	c := newCompiler(t)
	for code, want := range map[string][]string{
		`tasks.Chain(Number.S(1), Upper)`:                                              {"tasks.Task[string, string]", "tasks.Task[int,"},
		`tasks.Chain3(Text.S(1), Upper, Number)`:                                       {"tasks.Task[int, int]", "tasks.Task[string,"},
		`tasks.Chord(tasks.Each([]int{1}, Number), Upper)`:                             {"tasks.Task[string, string]", "tasks.Task[[]int,"},
		`tasks.Chord(Number.S(1), Sum)`:                                                {"tasks.Signature[int]", "tasks.Signature[[]"},
		`tasks.Map(Number.S(1), Number)`:                                               {"tasks.Signature[int]", "tasks.Signature[[]"},
		`tasks.Each([]string{"a"}, Number)`:                                            {"tasks.Task[int, int]", "tasks.Task[string,"},
		`tasks.Group(Number.S(1), Upper.S("a"))`:                                       {"tasks.Signature[string]", "tasks.Signature[int]"},
		`Number.S("a")`:                                                                {`"a"`, "int"},
		`Number.S(1).Rescue(Text)`:                                                     {"tasks.Task[int, string]", "tasks.Task[tasks.Failure, int]"},
		`tasks.OnError(Number.S(1), Upper)`:                                            {"tasks.Task[string, string]", "tasks.Task[tasks.Failure,"},
		`tasks.Bind(Number, 2)`:                                                        {"tasks.Task[int, int]", "tasks.Task[tasks.Pair["},
		`tasks.Handle(mux, Number, strings.ToUpper)`:                                   {"func(s string) string", "func(context.Context, I) (O, error)"},
		`var run *tasks.AsyncResult[string]; run, err = Number.S(1).Send(ctx, client)`: {"*tasks.AsyncResult[int]", "*tasks.AsyncResult[string]"},
		`Number.S(1, tasks.AtMost(2))`:                                                 {"tasks.GroupOption", "tasks.CallOption"},
		`Number.With(tasks.AtMost(2))`:                                                 {"tasks.GroupOption", "tasks.CallOption"},
		`Number.S(1).With(tasks.AtMost(2))`:                                            {"tasks.GroupOption", "tasks.CallOption"},
		`tasks.New[int, int]("t.at", tasks.At(time.Now()))`:                            {"tasks.StartOption", "tasks.TaskOption"},
		`tasks.New[int, int]("t.id", tasks.ID("a"))`:                                   {"tasks.SendOption", "tasks.TaskOption"},
		`Number.S(1, tasks.ID("a"))`:                                                   {"tasks.SendOption", "tasks.CallOption"},
		`Number.S(1, tasks.RateLimit(1, time.Second))`:                                 {"tasks.TaskOption", "tasks.CallOption"},
		`Number.S(1).Send(ctx, client, tasks.FailFast())`:                              {"tasks.GroupOption", "tasks.SendOption"},
		`Number.S(1).Send(ctx, client, tasks.LinkError(Excuse))`:                       {"tasks.StepOption", "tasks.SendOption"},
		`tasks.GroupOf([]tasks.Signature[int]{}, tasks.Queue("a"))`:                    {"tasks.Option", "tasks.GroupOption"},
		`tasks.MapFunc(Numbers.S(1), double, tasks.MaxRetry(1))`:                       {"tasks.Option", "tasks.GroupOption"},
		`tasks.Each([]int{1}, Number, tasks.Retention(time.Hour))`:                     {"tasks.SendOption", "tasks.EachOption"},
	} {
		s := snippet{"code", 1, code + "\n"}
		source, err := s.source()
		if err != nil {
			t.Error(err)
			continue
		}
		errs := c.check(source, prelude, wrongPrelude)
		if !slices.ContainsFunc(errs, func(err error) bool {
			return !slices.ContainsFunc(want, func(w string) bool { return !strings.Contains(err.Error(), w) })
		}) {
			t.Errorf("%s: got %v, want an error with %q", code, errs, want)
		}
	}
	if errs := c.check(prelude, wrongPrelude); len(errs) > 0 {
		t.Errorf("without wrong code: got %v, want none", errs)
	}
}

// What JSON cannot write is an error of Send: types do not show it.
func TestInputThatDoesNotMarshalIsAnErrorOfSend(t *testing.T) {
	t.Parallel()
	f := taskstest.New(t, tasks.NewMux())
	call := tasks.New[func(), int]("t.call")
	for name, s := range map[string]tasks.Signature[int]{
		"an input":      call.S(func() {}),
		"a member":      tasks.Chord(tasks.Each([]func(){nil}, call), tasks.New[[]int, int]("t.sum")),
		"a constant":    tasks.Chain(tasks.Value(func() {}), call),
		"a second half": tasks.Chain(tasks.Value(1), tasks.Bind(tasks.New[tasks.Pair[int, func()], int]("t.bound"), func() {})),
	} {
		if _, err := s.Send(t.Context(), f.Client()); err == nil || !strings.Contains(err.Error(), "does not marshal to JSON") {
			t.Errorf("%s: got %v, want an error that says what does not marshal", name, err)
		}
	}
}

// wrongPrelude has what the wrong code uses.
const wrongPrelude = `package page

import "muster/tasks"

var (
	Number  = tasks.New[int, int]("t.number", tasks.RateLimit(1, 1), nil)
	Numbers = tasks.New[int, []int]("t.numbers")
	Sum     = tasks.New[[]int, int]("t.sum")
	Text    = tasks.New[int, string]("t.text")
	Upper   = tasks.New[string, string]("t.upper")
	Excuse  = tasks.New[tasks.Failure, int]("t.excuse")
)

func double(n tasks.Signature[int]) tasks.Signature[int] { return tasks.Chain(n, Number) }
`

// imports stand before every snippet that is no program.
const imports = `package page

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"muster/tasks"
	"muster/tasks/metrics"
	"muster/tasks/otel"
	"muster/tasks/tasktype"
	"muster/tasks/taskstest"
)

`

// prelude has the names that every snippet can use.
const prelude = imports + `
var (
	ctx    context.Context
	client *tasks.Client
	mux    *tasks.Mux
	worker *tasks.Worker
	err    error

	sources []Source
	urls    []string
)

func body() {}

type (
	Source    struct{}
	Candidate struct{}
	Proxy     struct{}
	Page      struct{}
	Report    struct{}
)
`

// A snippet is Go code on a page: a program, or declarations and after them statements.
type snippet struct {
	file string
	line int // of its first line in the file
	text string
}

func (s snippet) program() bool { return strings.HasPrefix(s.text, "package main\n") }

// source returns s as a file, whose positions are those on the page.
func (s snippet) source() (string, error) {
	if s.program() {
		return fmt.Sprintf("//line %s:%d\n%s", s.file, s.line, s.text), nil
	}
	lines := strings.SplitAfter(s.text, "\n")
	var furthest scanner.Error
	for n := len(lines); n >= 0; n-- { // so many lines of declarations
		source := fmt.Sprintf("%s//line %s:%d\n%s\nfunc _() {\n//line %s:%d\n%s\n}\n", imports,
			s.file, s.line, strings.Join(lines[:n], ""), s.file, s.line+n, strings.Join(lines[n:], ""))
		_, err := parser.ParseFile(token.NewFileSet(), "", source, parser.SkipObjectResolution)
		if err == nil {
			return source, nil
		}
		if list := (scanner.ErrorList)(nil); errors.As(err, &list) && list[0].Pos.Line >= furthest.Pos.Line {
			furthest = *list[0]
		}
	}
	return "", furthest
}

// readSnippets returns the Go code of a page: what stands in fences marked go, or what is indented in the comment of a
// package, but for drawings.
func readSnippets(t *testing.T, page string) (out []snippet) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	code := inFence()
	if strings.HasSuffix(page, ".go") {
		code = inComment()
	}
	joined := false // to the line before
	for n, line := range strings.Split(string(text), "\n") {
		line, ok := code(line)
		if ok && !joined {
			out = append(out, snippet{page, n + 1, ""})
		}
		if ok {
			out[len(out)-1].text += line + "\n"
		}
		joined = ok
	}
	for i := range out {
		out[i].text = strings.TrimRight(out[i].text, "\n") + "\n"
	}
	return slices.DeleteFunc(out, func(s snippet) bool { return strings.Contains(s.text, "▶") })
}

// inFence returns a function that takes the lines of a page and reports which are Go code.
func inFence() func(line string) (code string, ok bool) {
	fence := ""
	return func(line string) (string, bool) {
		if !strings.HasPrefix(line, "```") {
			return line, fence == "```go"
		}
		if fence == "" {
			fence = line
		} else {
			fence = ""
		}
		return "", false
	}
}

// inComment is inFence for the comment of a package.
func inComment() func(line string) (code string, ok bool) {
	in := false
	return func(line string) (string, bool) {
		code, indented := strings.CutPrefix(line, "//\t")
		in = indented || in && line == "//"
		if !indented {
			code = ""
		}
		return code, in
	}
}

// A compiler checks the types of sources. It belongs to one goroutine.
type compiler struct {
	fset *token.FileSet
	imp  types.Importer
}

func newCompiler(t *testing.T) *compiler {
	t.Helper()
	files, err := exportData()
	if err != nil {
		t.Fatal(err)
	}
	fset := token.NewFileSet()
	return &compiler{fset, importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		if files[path] == "" {
			return nil, fmt.Errorf("package %s is not among those that tasks imports", path)
		}
		return os.Open(files[path])
	})}
}

// exportData returns the files with the types of the packages that snippets can import, by their paths.
var exportData = sync.OnceValues(func() (map[string]string, error) {
	cmd := exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", "./...")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	files := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		files[path] = file
	}
	return files, nil
})

// check returns what is wrong with a package of sources. Only programs must use what they import and assign.
func (c *compiler) check(sources ...string) []error {
	_, errs := c.load(sources...)
	return errs
}

func (c *compiler) load(sources ...string) (*types.Package, []error) {
	var files []*ast.File
	var errs []error
	for _, source := range sources {
		f, err := parser.ParseFile(c.fset, "", source, parser.SkipObjectResolution)
		if err != nil {
			return nil, []error{err}
		}
		files = append(files, f)
	}
	cfg := types.Config{Importer: c.imp, Error: func(err error) {
		if e := (types.Error{}); !errors.As(err, &e) || !e.Soft || files[0].Name.Name == "main" {
			errs = append(errs, err)
		}
	}}
	pkg, _ := cfg.Check("page", c.fset, files, nil) // its error is the first one that it has reported
	return pkg, errs
}
