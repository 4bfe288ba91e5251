//go:build e2e && linux

package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"muster/internal/testutil"
	"muster/tasks"
)

// disk is a small separate disk.
type disk struct {
	t    *testing.T
	path string
}

// mountDisk mounts a disk of some megabytes, which requires root.
func mountDisk(t *testing.T, path string, size string) disk {
	t.Helper()
	testutil.Ok(t, os.MkdirAll(path, 0o700))
	if err := syscall.Mount("tmpfs", path, "tmpfs", 0, "mode=0700,size="+size); err != nil {
		t.Skipf("NOT COVERED: a full disk: no small disk can be mounted (%v); run as root", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(path, syscall.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", path, err)
		}
	})
	return disk{t, path}
}

func (d disk) ballast() string { return filepath.Join(d.path, "ballast") }

// fill fills the disk.
func (d disk) fill() {
	d.t.Helper()
	f, err := os.OpenFile(d.ballast(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	testutil.Ok(d.t, err)
	defer f.Close()
	for zeros := make([]byte, 64<<10); err == nil; {
		_, err = f.Write(zeros)
	}
	for err = nil; err == nil; { // fill the last block
		_, err = io.WriteString(f, "x")
	}
	if !errors.Is(err, syscall.ENOSPC) {
		d.t.Fatalf("fill the disk: %v", err)
	}
}

// free removes the file that fills the disk.
func (d disk) free() {
	d.t.Helper()
	testutil.Ok(d.t, os.Remove(d.ballast()))
}

// command runs a command while the run continues, and returns its output and exit code.
func (b *bench) command(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := exec.Command(binary, append(args, "--config", b.conf)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// TestDiskFull fills the disk of Redis and the records during a scrape, for longer than the heartbeat timeout of workers. The jobs
// are blocked and show the reason, no worker counts as exited, and when there is space the scrape continues automatically: all
// records, no duplicates, no skipped page.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"worker in the process": nil,
		"worker processes":      {"--setting", "workers.processes=2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			d := mountDisk(t, b.data, "48m")
			b.out = filepath.Join(b.data, "records")
			r := muster(t, append(os.Environ(), "MUSTER_SITES__OUT="+b.out),
				append([]string{"scrape", "shop", "news", "--config", b.conf, "--wait", "--json", "--log-level", "debug"}, args...)...)
			r.until(t, "pages being fetched", func() bool { return b.pagesAsked() >= 60 })
			d.fill()
			c := b.client(t)
			r.until(t, "failed heartbeats of the workers", func() bool {
				_, err := c.Inspect().Workers(t.Context())
				return tasks.Refused(err)
			})
			for range 2 { // it retries meanwhile
				b.wantBlocked(t)
			}
			r.until(t, "a line about the full disk", func() bool {
				return strings.Contains(r.stderr.String(), "waits: redis cannot write to the disk of its folder "+b.data)
			})
			d.free()
			r.wait(t, 0)

			wantAll(t, b.World, r.summary(t))
			b.wantFetchedOnce(t, 4*concurrency)
			b.wantQuiet(t)
		})
	}
}

// wantBlocked checks that all commands that show a running scrape report the full disk, and that no worker counts as exited.
func (b *bench) wantBlocked(t *testing.T) {
	t.Helper()
	out, errs, code := b.command(t, "scrapes", "list", "--json")
	var page struct {
		Data []struct{ ID, Status, Trouble string }
	}
	if err := json.Unmarshal([]byte(out), &page); err != nil || code != 0 || len(page.Data) != 2 {
		t.Fatalf("scrapes list: exit code %d, %v, %d jobs, want 2\n%s%s", code, err, len(page.Data), out, errs)
	}
	for _, j := range page.Data {
		if j.Status != "BLOCKED" || !strings.Contains(strings.ToLower(j.Trouble), "no space left on device") || !strings.Contains(j.Trouble, b.data) {
			t.Errorf("scrape %s is %s, trouble %q; want it blocked, with no space left in %s", j.ID, j.Status, j.Trouble, b.data)
		}
	}
	if out, errs, code := b.command(t, "workers", "list"); code != 0 {
		t.Errorf("workers list: exit code %d, want 0\n%s%s", code, out, errs)
	}
	out, errs, code = b.command(t, "health")
	if text := out + errs; code != 1 || !strings.Contains(text, "disk") || strings.Contains(text, "no worker") || strings.Contains(text, "no running") {
		t.Errorf("health: exit code %d, want 1 and a full disk\n%s", code, text)
	}
}
