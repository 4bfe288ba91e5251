//go:build e2e && unix

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muster/internal/testutil"
)

// TestReadmeProgram makes the program of README.md in a module outside of the repository, with the commands of the page.
func TestReadmeProgram(t *testing.T) {
	t.Parallel()
	p := newTutorial(t, "../../README.md")
	root := testutil.Must(filepath.Abs("../.."))(t)
	testutil.Ok(t, os.Symlink(root, filepath.Join(p.dir, "muster")))
	p.env = os.Environ()
	_, module, _ := strings.Cut(p.blocks["sh"][1], "\n") // the clone is there
	p.shell(t, module).wait(t, 0)
	p.dir = filepath.Join(p.dir, "hello")
	p.file(t, "main.go", p.blocks["go"][0])
	program := p.shell(t, "go mod tidy && go run .")
	if program.wait(t, 0); !strings.HasSuffix(program.stdout.String(), "10 words\n") {
		t.Errorf("got %q, want 10 words", program.stdout.String())
	}
	p.dir = root
	p.shell(t, "go doc ./tasks").wait(t, 0)
}
