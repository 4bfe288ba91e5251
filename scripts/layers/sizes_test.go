package layers

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// Limits of what a reader can hold in mind at once.
const (
	maxFuncLines  = 80 // a function fits on a screen
	maxComplexity = 25 // cyclomatic: branches, loops, cases, && and ||, plus one
	maxMethods    = 25 // of a type; with more it does more than one thing
	maxLongFiles  = 12 // files of more than longFile lines
	longFile      = 500
)

// mayInit are the files with a function init, and why they cannot do without.
var mayInit = map[string]string{
	"sites/all/all.go":              "sites in Go register themselves when the package is imported",
	"tasks/redistest/full_linux.go": "the test binary starts itself again to mount a full disk",
}

// goFile is a parsed file of the module.
type goFile struct {
	path string // from the module's root
	test bool
	fset *token.FileSet
	*ast.File
}

func (f goFile) line(p token.Pos) int { return f.fset.Position(p).Line }

// goFiles parses all Go files of the module.
func goFiles(t *testing.T) []goFile {
	t.Helper()
	var files []goFile
	fset := token.NewFileSet()
	err := filepath.WalkDir("../..", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || filepath.Ext(path) != ".go" {
			return err
		}
		name := strings.TrimPrefix(filepath.ToSlash(path), "../../")
		if strings.HasPrefix(name, "dist/") { // copies
			return nil
		}
		parsed, err := parser.ParseFile(fset, path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		files = append(files, goFile{path: name, test: strings.HasSuffix(name, "_test.go"), fset: fset, File: parsed})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// Functions fit on a screen, and types have few methods.
func TestFunctionsAndTypesAreSmall(t *testing.T) {
	t.Parallel()
	methods := map[string]int{}
	var long []string
	for _, f := range goFiles(t) {
		if f.line(f.FileEnd) > longFile {
			long = append(long, f.path)
		}
		for _, decl := range f.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			if n := f.line(fn.End()) - f.line(fn.Pos()) + 1; n > maxFuncLines {
				t.Errorf("%s: %s has %d lines, want at most %d: split it where it changes its subject", f.path, fn.Name, n, maxFuncLines)
			}
			if n := complexity(fn); n > maxComplexity {
				t.Errorf("%s: %s has a cyclomatic complexity of %d, want at most %d: name its parts", f.path, fn.Name, n, maxComplexity)
			}
			if fn.Recv != nil && !f.test {
				methods[filepath.Dir(f.path)+"."+receiver(fn)]++
			}
			if fn.Recv == nil && fn.Name.Name == "init" && mayInit[f.path] == "" {
				t.Errorf("%s has a function init: start things where they are used, or say in mayInit which library needs it", f.path)
			}
		}
	}
	for name, n := range methods {
		if n > maxMethods {
			t.Errorf("%s has %d methods, want at most %d: it does more than one thing", name, n, maxMethods)
		}
	}
	if len(long) > maxLongFiles {
		t.Errorf("%d files have more than %d lines, want at most %d: %v", len(long), longFile, maxLongFiles, long)
	}
}

// complexity is the cyclomatic complexity of a function with the functions in it.
func complexity(fn *ast.FuncDecl) int {
	n := 1
	ast.Inspect(fn, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.IfStmt, *ast.ForStmt, *ast.RangeStmt:
			n++
		case *ast.CaseClause:
			if node.List != nil {
				n++
			}
		case *ast.CommClause:
			if node.Comm != nil {
				n++
			}
		case *ast.BinaryExpr:
			if node.Op == token.LAND || node.Op == token.LOR {
				n++
			}
		}
		return true
	})
	return n
}

// receiver is the name of a method's type.
func receiver(fn *ast.FuncDecl) string {
	expr := fn.Recv.List[0].Type
	for {
		switch e := expr.(type) {
		case *ast.StarExpr:
			expr = e.X
		case *ast.IndexExpr:
			expr = e.X
		case *ast.IndexListExpr:
			expr = e.X
		case *ast.Ident:
			return e.Name
		default:
			return ""
		}
	}
}
