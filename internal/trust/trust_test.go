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
		testutil.Ok(t, os.WriteFile(path, nil, 0o600))
		testutil.Ok(t, os.Chmod(path, mode))
		return path
	}
	link := filepath.Join(dir, "link")
	testutil.Ok(t, os.Symlink(file("target", 0o646), link))
	mounted := filepath.Join(dir, "..data") // like a mounted ConfigMap in Kubernetes
	testutil.Ok(t, os.Symlink(file("mounted", 0o644), mounted))
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
	inMemory := testutil.Must(fstest.MapFS{"f": {Mode: 0o666}}.Stat("f"))(t)
	if err := Check("f", inMemory); err != nil {
		t.Errorf("file without an owner: %v", err)
	}
}

func TestFileOfAnotherUserIsNotOpened(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	testutil.Ok(t, os.WriteFile(path, nil, 0o600))
	testutil.GiveToNobody(t, path)
	if f, err := Open(path); !errors.Is(err, ErrUntrusted) {
		t.Errorf("Open = %v, %v; want ErrUntrusted", f, err)
	}
}
