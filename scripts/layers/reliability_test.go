package layers

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// evidence finds the packages of a row of docs/reliability.md and the tests that it names in each.
var evidence = regexp.MustCompile("`([a-z][a-z0-9/]*)`: ((?:`(?:Test|Fuzz)\\w+`(?:, )?)+)")

// Each row of a table with a column of tests names some, and all of them exist.
func TestReliabilityPageNamesTestsThatExist(t *testing.T) {
	t.Parallel()
	page := readFile(t, filepath.Join("..", "..", "docs", "reliability.md"))
	rows, named := 0, false
	for line := range strings.Lines(page) {
		switch {
		case !strings.HasPrefix(line, "| "):
			continue
		case strings.HasPrefix(line, "| promise |"), strings.HasPrefix(line, "| what |"), strings.HasPrefix(line, "| command |"):
			named = strings.HasSuffix(line, "| tests |\n")
			continue
		case !named:
			continue
		}
		rows++
		found := evidence.FindAllStringSubmatch(line, -1)
		if len(found) == 0 {
			t.Errorf("docs/reliability.md: a row without a test: %s", line)
		}
		for _, f := range found {
			tests := testFiles(t, f[1])
			for name := range strings.SplitSeq(f[2], ", ") {
				if name = strings.Trim(name, "`"); !strings.Contains(tests, "\nfunc "+name+"(") {
					t.Errorf("docs/reliability.md: there is no %s in %s", name, f[1])
				}
			}
		}
	}
	if rows == 0 {
		t.Error("docs/reliability.md has no rows")
	}
}

// testFiles returns all test files of a package in one.
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
