package examples_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"muster/internal/testutil"
)

var (
	goBlock = regexp.MustCompile("(?ms)^```go\n(.*?)^```")
	// A declaration with its indented lines; everything else of a block is in a function.
	declaration = regexp.MustCompile(`(?m)^(?:func|type|var) .*\n(?:(?:[\t})].*|)\n)*`)
	packageName = regexp.MustCompile(`\b([a-z]+)\.[A-Z]`)
	// What a block leaves to the reader: names of the reader's program, and the function around the block.
	ofTheReader = regexp.MustCompile(`undefined: \w+$|declared and not used|imported and not used|redeclared in this block|other declaration of|return values?$|^\s+(?:have|want) \(`)
)

// packagesOnPages are the packages of which blocks use names.
var packagesOnPages = map[string]string{}

func init() {
	for _, path := range strings.Fields("context errors fmt log/slog math/rand/v2 net/http os os/signal slices strings syscall testing time github.com/hibiken/asynq " +
		"muster/tasks muster/tasks/api muster/tasks/outbox muster/tasks/taskstest muster/tasks/ui muster/tasks/workqueue") {
		packagesOnPages[filepath.Base(path)] = path
	}
}

// The names of packages in the Go blocks of the documentation exist, and are used with the right types.
func TestGoOnPagesCompiles(t *testing.T) {
	if testing.Short() {
		t.Skip("long: it links what the pages use")
	}
	t.Parallel()
	root := testutil.Must(filepath.Abs(".."))(t)
	pages := append(testutil.Must(filepath.Glob("../docs/*/*.md"))(t), "../README.md")
	dir, overlay, blocks := t.TempDir(), map[string]string{}, 0
	for _, page := range pages {
		text := string(testutil.Must(os.ReadFile(page))(t))
		for i, at := range goBlock.FindAllStringSubmatchIndex(text, -1) {
			blocks++
			name := fmt.Sprintf("p%d/b%d.go", blocks, i)
			if i > 0 && !strings.HasPrefix(text[at[2]:], "package") { // blocks of a page see each other's declarations
				name = fmt.Sprintf("p%d/b%d.go", blocks-i, i)
			}
			line := fmt.Sprintf("//line %s:%d\n", strings.TrimPrefix(page, "../"), strings.Count(text[:at[2]], "\n")+1)
			file := filepath.Join(dir, strings.ReplaceAll(name, "/", "_"))
			testutil.Ok(t, os.WriteFile(file, []byte(compilable(text[at[2]:at[3]], line, i == 0)), 0o600))
			overlay[filepath.Join(root, "examples", "pages", name)] = file
		}
	}
	if blocks < 30 {
		t.Errorf("saw %d blocks of Go; are they read as they should be?", blocks)
	}
	list := filepath.Join(dir, "overlay.json")
	testutil.Ok(t, os.WriteFile(list, testutil.Must(json.Marshal(map[string]any{"Replace": overlay}))(t), 0o600))
	out, _ := exec.CommandContext(t.Context(), "go", "build", "-gcflags=-e", "-overlay", list, "./pages/...").CombinedOutput() // it fails by what is left to readers
	for line := range strings.Lines(string(out)) {
		if line = strings.TrimSuffix(line, "\n"); !strings.HasPrefix(line, "#") && !ofTheReader.MatchString(line) {
			t.Error(line)
		}
	}
}

// compilable returns a file of Go with a block of a page that begins at a line. The first block of a page declares what all pages use.
func compilable(block, line string, first bool) string {
	if strings.HasPrefix(block, "package") {
		return line + block
	}
	b := strings.Builder{}
	b.WriteString("package pages\n\n")
	used := map[string]bool{}
	for _, m := range packageName.FindAllStringSubmatch(block, -1) {
		if path := packagesOnPages[m[1]]; path != "" && !used[path] {
			used[path] = true
			fmt.Fprintf(&b, "import %q\n", path)
		}
	}
	if first {
		b.WriteString("import readers \"muster/tasks\"\nimport background \"context\"\n" +
			"var (\n\tctx background.Context\n\tclient *readers.Client\n\tmux *readers.Mux\n\tid string\n\trun *readers.Run[string]\n)\n")
	}
	statements := declaration.ReplaceAllStringFunc(block, func(d string) string {
		fmt.Fprintf(&b, "%s%s", line, d)
		return strings.Repeat("\n", strings.Count(d, "\n"))
	})
	fmt.Fprintf(&b, "func _() (_ any, _ error) {\n%s%s\nreturn nil, nil\n}\n", line, strings.ReplaceAll(statements, "\n…\n", "\n\n"))
	return b.String()
}
