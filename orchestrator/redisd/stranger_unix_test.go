//go:build unix

package redisd

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/internal/trust"
)

func TestOtherUsersCannotUseOwnRedis(t *testing.T) {
	t.Parallel()
	uid, gid := testutil.Nobody(t)
	eachOwn(t, func(t *testing.T, cfg Config) {
		// A directory that other users can read, unlike t.TempDir.
		dir := testutil.Must(os.MkdirTemp("", "muster-shared-*"))(t)
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		testutil.Ok(t, os.Chmod(dir, 0o755))
		program := filepath.Join(dir, "stranger")
		copyProgram(t, program)
		cfg.DataDir = filepath.Join(dir, "data")
		s := start(t, cfg)
		set(t, s.URL(), "k", "v")

		cmd := exec.CommandContext(t.Context(), program, portOf(t, s.URL()))
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), strangerEnv+"="+cfg.DataDir)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		got := strings.Split(strings.TrimSpace(string(out)), "\n")
		want := []string{
			"NOAUTH", "rejected the login", "needs the password in " + filepath.Join(cfg.DataDir, "redis", "password") + ", which only its owner can read",
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
			t.Errorf("another user can read the password: %s", out)
		}
		wantValue(t, s.URL(), "k", "v")
	})
}

// Files in a data directory determine the Redis, its password and the processes to stop.
func TestDataOfAnotherUserIsRejected(t *testing.T) {
	t.Parallel()
	testutil.Nobody(t)
	for name, path := range map[string]func(folder) string{
		"data directory":     func(d folder) string { return string(d) },
		"directory of Redis": folder.redisDir,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := config(t)
			cfg.Mode = Embedded
			testutil.GiveToNobody(t, path(cfg.folder()))
			_, err := Start(t.Context(), cfg)
			wantError(t, err, path(cfg.folder()), "untrusted", "belongs to user")
		})
	}
	t.Run("password", func(t *testing.T) {
		t.Parallel()
		cfg := config(t)
		cfg.Mode = Embedded
		known := strings.Repeat("0a", 32)
		write(t, cfg.folder().passwordFile(), known, 0o600)
		testutil.GiveToNobody(t, cfg.folder().passwordFile())
		start(t, cfg)
		if password(t, cfg) == known {
			t.Error("Redis has the password of another user's file")
		}
	})
	t.Run("address", func(t *testing.T) {
		t.Parallel()
		cfg := config(t)
		cfg.Mode = Auto
		testutil.Ok(t, (address{URL: redistest.URL(t), Mode: External}).write(cfg.DataDir))
		testutil.GiveToNobody(t, addressPath(cfg.DataDir))
		if url, err := Discover(t.Context(), cfg.DataDir); !errors.Is(err, trust.ErrUntrusted) {
			t.Errorf("Discover = %s, %v; want ErrUntrusted", url, err)
		}
		if s := start(t, cfg); s.Mode() == External {
			t.Error("Start uses the Redis of another user's file")
		}
	})
}

func copyProgram(t *testing.T, to string) {
	t.Helper()
	from := testutil.Must(os.Open(os.Args[0]))(t)
	defer from.Close()
	// A process forked in the meantime keeps the file open for writing until its exec, which would fail the execution of the
	// copy (ETXTBSY).
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	f := testutil.Must(os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755))(t)
	testutil.Must(io.Copy(f, from))(t)
	testutil.Ok(t, f.Close())
}
