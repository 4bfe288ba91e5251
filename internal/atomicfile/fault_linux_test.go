package atomicfile

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"muster/internal/testutil/faultdisk"
)

// Whichever call to the disk fails, the file has its old content or the new one, and the new one if there is no error.
func TestEachFailingCallKeepsAContent(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 100<<10) // more than the buffer
	faultdisk.Each(t, func(dir string) error {
		path := filepath.Join(dir, "file")
		return WriteBytes(path, 0o600, []byte(long))
	}, func(dir string, failed faultdisk.Call, err error) {
		got, rerr := os.ReadFile(filepath.Join(dir, "file"))
		if rerr == nil && string(got) != long || rerr != nil && err == nil {
			t.Errorf("%s fails: got %d bytes, %v after the error %v; want all or, after an error, no file", failed, len(got), rerr, err)
		}
		left, _ := filepath.Glob(filepath.Join(dir, ".*"+tmpExt)) // the pattern is right
		if len(left) > 0 && failed.Name != "close" {
			t.Errorf("%s fails: got %v, want no temporary file", failed, left)
		}
	})
}

// A rename is on the disk only when its folder is.
func TestWriteSyncsTheFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var err error
	d := faultdisk.Run(t, faultdisk.Fault{Dir: dir, Err: syscall.EIO}, func() { err = WriteBytes(filepath.Join(dir, "file"), 0o600, []byte("x")) })
	if err != nil {
		t.Fatal(err)
	}
	calls := d.Calls()
	renamed := slices.IndexFunc(calls, func(c faultdisk.Call) bool { return c.Name == "rename" })
	if synced := slices.Index(calls, faultdisk.Call{Name: "sync", Path: dir}); renamed < 0 || synced < renamed {
		t.Errorf("got %v, want the folder synced after the rename", calls)
	}
}
