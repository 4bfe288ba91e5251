package layers

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The files that docs/concepts/architecture.md and CONTRIBUTING.md send readers to exist.
func TestArchitectureNamesFilesThatExist(t *testing.T) {
	t.Parallel()
	var files []string
	for _, f := range goFiles(t) {
		files = append(files, "/"+f.path)
	}
	name := regexp.MustCompile("`([a-z_/]+\\.go)`")
	for _, page := range []string{"docs/concepts/architecture.md", "CONTRIBUTING.md"} {
		text, err := os.ReadFile("../../" + page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range name.FindAllStringSubmatch(string(text), -1) {
			if !slices.ContainsFunc(files, func(f string) bool { return strings.HasSuffix(f, "/"+m[1]) }) {
				t.Errorf("%s names %s: no file has this name", page, m[1])
			}
		}
	}
}
