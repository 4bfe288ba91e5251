package layers

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// evidence matches a package and its tests in a table row.
var evidence = regexp.MustCompile("`([a-z][a-z0-9/]*)`: ((?:`(?:Test|Fuzz)\\w+`(?:, )?)+)")

// Each row of a table with a tests column names existing tests.
func TestPromisesNameExistingTests(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"docs/reliability.md", "SECURITY.md"} {
		page := readFile(t, filepath.Join("..", "..", filepath.FromSlash(name)))
		rows, inTable, named := 0, false, false
		for line := range strings.Lines(page) {
			header := !inTable
			inTable = strings.HasPrefix(line, "|")
			switch {
			case !inTable || strings.HasPrefix(line, "|---"):
				continue
			case header:
				named = strings.HasSuffix(line, "| tests |\n")
				continue
			case !named:
				continue
			}
			rows++
			found := evidence.FindAllStringSubmatch(line, -1)
			if len(found) == 0 {
				t.Errorf("%s: a row without a test: %s", name, line)
			}
			for _, f := range found {
				tests := testFiles(t, f[1])
				for test := range strings.SplitSeq(f[2], ", ") {
					if test = strings.Trim(test, "`"); !strings.Contains(tests, "\nfunc "+test+"(") {
						t.Errorf("%s: no test %s in %s", name, test, f[1])
					}
				}
			}
		}
		if rows == 0 {
			t.Errorf("%s has no rows", name)
		}
	}
}

// testFiles returns the concatenated test files of a package.
func testFiles(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, f := range files {
		all.WriteString(readFile(t, f))
	}
	return all.String()
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
