//go:build linux

package faultdisk

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
)

func TestRunFailsOneCall(t *testing.T) {
	t.Parallel()
	// write returns the calls, and the error of the file that it writes while the n-th of them fails.
	write := func(n int) (dir string, d *Disk, err error) {
		dir = t.TempDir()
		d = Run(t, Fault{Dir: dir, N: n, Err: syscall.ENOSPC}, func() {
			var f *os.File
			if f, err = os.Create(filepath.Join(dir, "f")); err != nil {
				return
			}
			_, werr := f.WriteString("text")
			err = errors.Join(werr, f.Sync(), f.Close())
			if err == nil {
				err = os.Rename(f.Name(), filepath.Join(dir, "g"))
			}
		})
		return dir, d, err
	}
	dir, d, err := write(0)
	if text, rerr := os.ReadFile(filepath.Join(dir, "g")); err != nil || rerr != nil || string(text) != "text" {
		t.Errorf("no fault: got %q, %v, %v, want the text", text, err, rerr)
	}
	calls := d.Calls()
	for _, want := range []string{"open", "write", "sync", "rename"} {
		n := 1 + slices.IndexFunc(calls, func(c Call) bool { return c.Name == want })
		if n == 0 {
			t.Errorf("got %v, want also a call of %s", calls, want)
			continue
		}
		dir, d, err := write(n)
		if call, ok := d.Failed(); !ok || call.Name != want || !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("call %d: got %v, %v, and the error %v; want %s to fail", n, call, ok, err, want)
		}
		if _, err := os.Stat(filepath.Join(dir, "g")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s fails: got %v, want no file with the new name", want, err)
		}
	}
}

func TestHalfOfAWrite(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var err error
	Run(t, Fault{Dir: dir, N: 2, Err: syscall.EIO, Half: true}, func() {
		err = os.WriteFile(filepath.Join(dir, "f"), []byte("12345678"), 0o600)
	})
	if text, rerr := os.ReadFile(filepath.Join(dir, "f")); !errors.Is(err, syscall.EIO) || rerr != nil || string(text) != "1234" {
		t.Errorf("got %q, %v, %v; want a half and EIO", text, rerr, err)
	}
}

func TestProcessesAreWatched(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd := exec.Command("sh", "-c", "echo x > f; sh -c 'echo y > g'")
	cmd.Dir = dir
	d := Start(t, Fault{Dir: dir, N: 1, Err: syscall.ENOSPC}, cmd)
	_ = cmd.Wait() // the last command succeeds
	if _, err := os.Stat(filepath.Join(dir, "f")); err == nil {
		t.Error("got the file whose open failed, want none")
	}
	if _, err := os.Stat(filepath.Join(dir, "g")); err != nil {
		t.Errorf("got %v, want the other file", err)
	}
	if calls := d.Calls(); !slices.Contains(calls, Call{"write", filepath.Join(dir, "g")}) {
		t.Errorf("got %v, want also the calls of a process of the process", calls)
	}
}
