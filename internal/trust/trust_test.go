package trust

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"muster/internal/testutil"
)

func TestFilesWritableByOthersAreNotOpened(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(file("target", 0o646), link); err != nil {
		t.Fatal(err)
	}
	mounted := filepath.Join(dir, "..data") // like a mounted ConfigMap in Kubernetes
	if err := os.Symlink(file("mounted", 0o644), mounted); err != nil {
		t.Fatal(err)
	}
	for path, ok := range map[string]bool{
		file("private", 0o600):      true,
		file("public", 0o644):       true,
		file("of the group", 0o664): true,
		mounted:                     true,
		os.DevNull:                  true,
		file("of all", 0o666):       false,
		link:                        false,
	} {
		f, err := Open(path)
		if err == nil {
			_ = f.Close()
		}
		if got := err == nil; got != ok || !ok && !errors.Is(err, ErrUntrusted) {
			t.Errorf("Open(%s) = %v, want trusted: %v", path, err, ok)
		}
	}
	if _, err := Open(filepath.Join(dir, "missing")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: %v, want ErrNotExist", err)
	}
	inMemory, err := fstest.MapFS{"f": {Mode: 0o666}}.Stat("f")
	if err != nil {
		t.Fatal(err)
	}
	if err := Check("f", inMemory); err != nil {
		t.Errorf("file without an owner: %v", err)
	}
}

func TestFileOfAnotherUserIsNotOpened(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	testutil.GiveToNobody(t, path)
	if f, err := Open(path); !errors.Is(err, ErrUntrusted) {
		t.Errorf("Open = %v, %v; want ErrUntrusted", f, err)
	}
}
