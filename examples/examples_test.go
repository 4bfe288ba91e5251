// Package examples_test builds and runs every example, and compares its output with the comment at its end.
package examples_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster/internal/redistest"
)

const (
	firstProgram = "firstprogram"  // the program of README.md and tasks/doc.go
	limit        = 2 * time.Minute // for one example, while the tests of other packages run
)

func TestMain(m *testing.M) { redistest.Main(m) }

// Every example prints the output in the comment at its end, and exits.
func TestExamplesPrintTheirOutput(t *testing.T) {
	if testing.Short() {
		t.Skip("long: it links all examples")
	}
	t.Parallel()
	bin := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-o", bin, "./...").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	for name, source := range sources(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want, ok := output(source)
			if !ok {
				t.Fatal("main.go does not end with a comment that begins with // Output:")
			}
			if got := run(t, filepath.Join(bin, name)); got != want {
				t.Errorf("got:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}

// README.md and the package comment of tasks contain the first program.
func TestFirstProgramIsQuoted(t *testing.T) {
	t.Parallel()
	source, _, _ := strings.Cut(sources(t)[firstProgram], "\n// Output:")
	_, program, _ := strings.Cut(source, "\npackage main\n")
	for file, prefix := range map[string]string{"../README.md": "", "../tasks/doc.go": "//\t"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var quoted strings.Builder
		for line := range strings.Lines(strings.TrimSpace(program)) {
			if line == "\n" {
				quoted.WriteString(strings.TrimSuffix(prefix, "\t"))
			} else {
				quoted.WriteString(prefix)
			}
			quoted.WriteString(line)
		}
		if !strings.Contains(string(text), quoted.String()) {
			t.Errorf("%s does not have the program of examples/%s:\n%s", file, firstProgram, quoted.String())
		}
	}
}

// sources returns main.go of each example, by directory name.
func sources(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("*/main.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("got %d examples, %v", len(files), err)
	}
	all := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all[filepath.Dir(file)] = string(text)
	}
	return all
}

// output returns the output in the comment at the end of an example.
func output(source string) (want string, ok bool) {
	_, comment, ok := strings.Cut(source, "\n// Output:\n")
	var lines []string
	for line := range strings.Lines(comment) {
		text, isComment := strings.CutPrefix(line, "//")
		if !isComment {
			return "", false
		}
		lines = append(lines, strings.TrimPrefix(text, " "))
	}
	return strings.TrimSpace(strings.Join(lines, "")), ok
}

// run runs a program with a separate Redis and returns its output.
func run(t *testing.T, program string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, program)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "REDIS_URL="+redistest.URL(t))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("%v (%v)\n%s", err, context.Cause(ctx), stderr.String())
	}
	return strings.TrimSpace(string(out))
}
