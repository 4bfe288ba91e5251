package layers

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// CONTRIBUTING.md names every direct dependency and its state.
func TestDependenciesAreDocumented(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../../CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "mod", "edit", "-json")
	cmd.Dir, cmd.Stderr = "../..", os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go mod edit: %v", err)
	}
	var mod struct {
		Require []struct {
			Path     string
			Indirect bool
		}
	}
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatal(err)
	}
	for _, r := range mod.Require {
		if r.Indirect {
			continue
		}
		module := r.Path
		parts := strings.Split(module, "/")
		name := parts[len(parts)-1]
		if len(parts) > 1 && len(name) == 2 && name[0] == 'v' { // the major version
			name = parts[len(parts)-2]
		}
		if !strings.Contains(string(doc), name) {
			t.Errorf("%s is not in the table of dependencies in CONTRIBUTING.md: say what it is for and how it is kept", module)
		}
	}
}
