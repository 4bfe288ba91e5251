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

// goFile is a parsed file of the module.
type goFile struct {
	path string // relative to the root of the module
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
		if strings.HasPrefix(name, "dist/") { // contains copies
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
