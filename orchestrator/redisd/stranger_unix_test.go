//go:build unix

package redisd

import (
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// nobody returns the user nobody, who may not read our files.
func nobody(t *testing.T) (uid, gid uint32) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("NOT COVERED:", t.Name(), "needs root to act as another user")
	}
	u, err := user.Lookup("nobody")
	if err != nil {
		t.Skip("NOT COVERED:", t.Name(), "needs a user nobody:", err)
	}
	id, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	group, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	return uint32(id), uint32(group)
}

func TestOtherUsersCannotUseARedisOfOurs(t *testing.T) {
	t.Parallel()
	uid, gid := nobody(t)
	eachOwn(t, func(t *testing.T, cfg Config) {
		// A folder that others can look into; a test's own is closed to them.
		dir, err := os.MkdirTemp("", "muster-shared-*")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		program := filepath.Join(dir, "stranger")
		copyProgram(t, program)
		cfg.DataDir = filepath.Join(dir, "data")
		s := start(t, cfg)
		set(t, s.URL(), "k", "v")

		cmd := exec.CommandContext(t.Context(), program, portOf(t, s.URL()))
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), strangerEnv+"="+cfg.DataDir)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: gid}}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		got := strings.Split(strings.TrimSpace(string(out)), "\n")
		want := []string{
			"NOAUTH", "refuses the login", "needs the password in " + filepath.Join(cfg.DataDir, "redis", "password") + ", which only its owner can read",
			"permission denied", "permission denied", "permission denied",
		}
		if len(got) != len(want) {
			t.Fatalf("got %d lines, want %d:\n%s", len(got), len(want), out)
		}
		for i := range want {
			if !strings.Contains(got[i], want[i]) {
				t.Errorf("got %q, want %q in it", got[i], want[i])
			}
		}
		if strings.Contains(string(out), password(t, cfg)) {
			t.Errorf("another user is told the password: %s", out)
		}
		wantValue(t, s.URL(), "k", "v")
	})
}

// Whoever owns the password file could run tasks as we.
func TestPasswordFileOfAnotherUserIsRefused(t *testing.T) {
	t.Parallel()
	uid, gid := nobody(t)
	cfg := config(t)
	cfg.Mode = Embedded
	file := filepath.Join(cfg.folder().redisDir(), "password")
	write(t, file, strings.Repeat("0a", 32), 0o600)
	if err := os.Chown(file, int(uid), int(gid)); err != nil {
		t.Fatal(err)
	}
	_, err := Start(t.Context(), cfg)
	wantError(t, err, file, "belongs to user "+strconv.Itoa(int(uid)), "remove the file")
}

func copyProgram(t *testing.T, to string) {
	t.Helper()
	from, err := os.Open(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	// A process that is forked meanwhile has the file open for writing until it runs its program: until then this one
	// cannot be run (ETXTBSY).
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	f, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(f, from); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}
