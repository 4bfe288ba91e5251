package atomicfile

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"muster/internal/testutil"
)

func text(s string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, s)
		return err
	}
}

func TestWriteReplacesTheFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x.json")
	for _, want := range []string{"one", "two, longer"} {
		testutil.Ok(t, Write(path, 0o600, text(want)))
		got, err := os.ReadFile(path)
		if err != nil || string(got) != want {
			t.Fatalf("got %q, %v, want %q", got, err, want)
		}
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("got %v, %v, want permissions 0600", info, err)
	}
}

func TestFailedWriteKeepsTheOldFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "x.json")
	testutil.Ok(t, Write(path, 0o600, text("old")))
	boom := errors.New("boom")
	err := Write(path, 0o600, func(w io.Writer) error {
		_, _ = io.WriteString(w, "half of the n")
		return boom
	})
	if !errors.Is(err, boom) {
		t.Fatalf("got %v, want boom", err)
	}
	if got, _ := os.ReadFile(path); string(got) != "old" {
		t.Fatalf("got %q, want the old content", got)
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Fatalf("got files %v, want one", left)
	}
}

func TestAbandonedWriteKeepsTheOldFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "x.json")
	testutil.Ok(t, Write(path, 0o600, text("old")))
	err := Write(path, 0o600, func(w io.Writer) error {
		if err := text("of a suspended process")(w); err != nil {
			return err
		}
		if err := Abandon(dir); err != nil {
			t.Error(err)
		}
		return Write(path, 0o600, text("new"))
	})
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want fs.ErrNotExist", err)
	}
	if got, _ := os.ReadFile(path); string(got) != "new" {
		t.Errorf("got %q, want %q", got, "new")
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("got files %v, want one", left)
	}
	if err := Abandon(filepath.Join(dir, "none")); err != nil {
		t.Errorf("a missing directory: got %v, want no error", err)
	}
}
