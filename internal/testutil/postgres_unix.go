//go:build unix

package testutil

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"syscall"
	"testing"
)

// Postgres starts a PostgreSQL server for the test and returns its address. It skips the test if none is installed.
func Postgres(t testing.TB) string {
	t.Helper()
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if len(found) == 0 {
		t.Skip("NOT COVERED:", t.Name(), "needs PostgreSQL in /usr/lib/postgresql")
	}
	bin := filepath.Dir(found[len(found)-1])
	dir, err := os.MkdirTemp("", "muster-pg-") // a socket's path must be short
	Ok(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	as := &syscall.SysProcAttr{}
	name := "postgres"
	if os.Getuid() == 0 { // PostgreSQL does not run as root
		u, err := user.Lookup("postgres")
		if err != nil {
			if u, err = user.Lookup("nobody"); err != nil {
				t.Skip("NOT COVERED:", t.Name(), "needs a user that can run PostgreSQL, which is not root")
			}
		}
		var uid, gid int
		_, _ = fmt.Sscan(u.Uid+" "+u.Gid, &uid, &gid)
		as.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		Ok(t, os.Chown(dir, uid, gid))
	}
	data := filepath.Join(dir, "data")
	cmd := exec.Command(filepath.Join(bin, "initdb"), "-D", data, "-U", name, "-A", "trust", "--no-sync", "--locale=C", "-E", "UTF8")
	cmd.SysProcAttr, cmd.Dir = as, dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	server := exec.Command(filepath.Join(bin, "postgres"), "-D", data, "-k", dir, "-c", "listen_addresses=", "-c", "fsync=off")
	server.SysProcAttr, server.Dir = as, dir
	Ok(t, server.Start())
	t.Cleanup(func() {
		_ = server.Process.Signal(syscall.SIGQUIT)
		_ = server.Wait()
	})
	return "postgres:///postgres?user=" + name + "&host=" + dir
}
