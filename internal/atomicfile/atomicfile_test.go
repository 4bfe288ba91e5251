package atomicfile

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func text(s string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, s)
		return err
	}
}

func TestWriteReplaces(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x.json")
	for _, want := range []string{"one", "two, longer"} {
		if err := Write(path, 0o600, text(want)); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil || string(got) != want {
			t.Fatalf("read %q, %v; want %q", got, err, want)
		}
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("permissions are %v, %v; want 0600", info.Mode().Perm(), err)
	}
}

func TestFailedWriteKeepsTheOldFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "x.json")
	if err := Write(path, 0o600, text("old")); err != nil {
		t.Fatal(err)
	}
	boom := errors.New("boom")
	err := Write(path, 0o600, func(w io.Writer) error {
		_, _ = io.WriteString(w, "half of the n")
		return boom
	})
	if !errors.Is(err, boom) {
		t.Fatalf("err = %v, want boom", err)
	}
	if got, _ := os.ReadFile(path); string(got) != "old" {
		t.Fatalf("file has %q, want the old content", got)
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Fatalf("%d files in the folder, want 1: %v", len(left), left)
	}
}

func TestAbandonedWriteKeepsTheOldFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "x.json")
	if err := Write(path, 0o600, text("old")); err != nil {
		t.Fatal(err)
	}
	err := Write(path, 0o600, func(w io.Writer) error {
		if err := text("of one who slept")(w); err != nil {
			return err
		}
		if err := Abandon(dir); err != nil {
			t.Error(err)
		}
		return Write(path, 0o600, text("new"))
	})
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want an error that says that the file is gone", err)
	}
	if got, _ := os.ReadFile(path); string(got) != "new" {
		t.Errorf("file has %q, want %q", got, "new")
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("%d files in the folder, want 1: %v", len(left), left)
	}
	if err := Abandon(filepath.Join(dir, "none")); err != nil {
		t.Errorf("a folder that is not there: %v", err)
	}
}
