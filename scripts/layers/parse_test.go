package layers

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// goFile is a parsed file of the module.
type goFile struct {
	path string // from the module's root
	test bool
	fset *token.FileSet
	*ast.File
}

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

// read are the endings of the files that people read.
var read = []string{".go", ".md", ".lua", ".yaml", ".yml", ".sh", ".txtar", ".html", ".tmpl", ".py", "Makefile"}

// tracked returns the files of the module that git knows, or that are new and not ignored.
func tracked(t *testing.T) []string {
	t.Helper()
	cmd := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard")
	cmd.Dir, cmd.Stderr = "../..", os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Skipf("NOT COVERED: not a git checkout: %v", err)
	}
	var files []string
	for path := range strings.Lines(string(out)) {
		path = strings.TrimSpace(path)
		if _, err := os.Stat(filepath.Join("../..", path)); err == nil {
			files = append(files, path)
		}
	}
	return files
}

// where returns the place of a byte of a file, as path:line.
func where(path, text string, at int) string {
	return fmt.Sprintf("%s:%d", path, 1+strings.Count(text[:at], "\n"))
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
