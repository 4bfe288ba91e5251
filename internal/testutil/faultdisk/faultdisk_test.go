//go:build linux

package faultdisk

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
)

func TestRunFailsOneCall(t *testing.T) {
	t.Parallel()
	for n, want := range []string{"", "open", "write", "sync", "rename"} {
		dir := t.TempDir()
		var err error
		d := Run(t, Fault{Dir: dir, N: n, Err: syscall.ENOSPC}, func() {
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
		if want == "" {
			if text, rerr := os.ReadFile(filepath.Join(dir, "g")); err != nil || rerr != nil || string(text) != "text" {
				t.Errorf("no fault: got %q, %v, %v, want the text", text, err, rerr)
			}
			continue
		}
		if want == "rename" {
			continue // it is after close, which only the kernel can do
		}
		if call, ok := d.Failed(); !ok || call.Name != want || !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("call %d: got %v, %v, and the error %v; want %s to fail", n, call, ok, err, want)
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
