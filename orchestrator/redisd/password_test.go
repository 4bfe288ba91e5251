package redisd

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/orchestrator/supervise"
)

// eachOwn runs a test in the modes child and embedded.
func eachOwn(t *testing.T, test func(*testing.T, Config)) {
	for _, mode := range []Mode{Child, Embedded} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			if mode == Child {
				needServer(t)
			}
			cfg := config(t)
			cfg.Mode = mode
			test(t, cfg)
		})
	}
}

// password returns the content of the password file.
func password(t *testing.T, cfg Config) string {
	t.Helper()
	text := testutil.Must(os.ReadFile(filepath.Join(cfg.DataDir, "redis", "password")))(t)
	return strings.TrimSpace(string(text))
}

func TestOwnRedisRequiresItsPassword(t *testing.T) {
	t.Parallel()
	eachOwn(t, func(t *testing.T, cfg Config) {
		s := start(t, cfg)
		set(t, s.URL(), "k", "v")
		word := password(t, cfg)
		if !regexp.MustCompile(`^[0-9a-f]{64}$`).MatchString(word) {
			t.Errorf("the password file does not hold 32 bytes in hex but %d characters", len(word))
		}
		if !strings.Contains(s.URL(), word) {
			t.Error("the address lacks the password")
		}
		for name, url := range map[string]string{
			"NOAUTH":    "redis://127.0.0.1:" + portOf(t, s.URL()) + "/0",
			"WRONGPASS": "redis://:" + strings.Repeat("0", 64) + "@127.0.0.1:" + portOf(t, s.URL()) + "/0",
		} {
			commands := [][]any{
				{"PING"}, {"GET", "k"}, {"SET", "k", "w"}, {"EVAL", "return 1", "0"}, {"SUBSCRIBE", "c"}, {"MULTI"},
				{"FLUSHALL"}, {"INFO"}, {"SELECT", "1"},
			}
			if cfg.Mode == Child { // not available in miniredis
				commands = append(commands, []any{"CONFIG", "GET", "requirepass"}, []any{"SHUTDOWN"}, []any{"CLIENT", "LIST"})
			}
			for _, command := range commands {
				err := client(t, url).Do(t.Context(), command...).Err()
				if err == nil || !strings.Contains(err.Error(), name) {
					t.Errorf("%v with the address of %s: got error %v, want %s", command, name, err, name)
				}
			}
		}
		wantValue(t, s.URL(), "k", "v")
		stop(t, s)
		if again := start(t, cfg); again.URL() != s.URL() {
			t.Error("the second start has another address or password, want the same")
		}
	})
}

// The password is only in files that only their owner can read.
func TestPasswordStaysInPrivateFiles(t *testing.T) {
	t.Parallel()
	eachOwn(t, func(t *testing.T, cfg Config) {
		var log logbook
		cfg.Logger = log.logger()
		args := filepath.Join(t.TempDir(), "args")
		if cfg.Mode == Child { // redis-server later changes its process title
			path := testutil.Must(findServer(testServer()))(t)
			cfg.Server = filepath.Join(t.TempDir(), "redis-server")
			script := fmt.Sprintf("#!/bin/sh\ntr '\\0' ' ' </proc/$$/cmdline >'%s'\nexec '%s' \"$@\"\n", args, path)
			testutil.Ok(t, os.WriteFile(cfg.Server, []byte(script), 0o700))
		}
		s := start(t, cfg)
		word := password(t, cfg)
		guest := cfg
		guest.Mode = Auto
		texts := map[string]string{
			"the guarantee": s.Guarantee(), "the warnings": strings.Join(s.Warnings(), "\n"),
			"the guarantee of a neighbour": start(t, guest).Guarantee(),
		}
		if cfg.Mode == Child {
			cmdline, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(s.PID()), "cmdline"))
			if err != nil {
				t.Log("NOT COVERED: the arguments of a running redis-server:", err)
			} else {
				first, err := os.ReadFile(args)
				if err != nil || !strings.Contains(string(first), "--port") {
					t.Errorf("arguments at the start are %q, %v; want a --port", first, err)
				}
				texts["the arguments at the start"], texts["the arguments"] = string(first), string(cmdline)
			}
		}
		private := 0
		err := filepath.WalkDir(cfg.DataDir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			if info.Mode().Perm() == 0o600 && (filepath.Base(path) == "password" || filepath.Base(path) == "auth.conf" || filepath.Base(path) == "redis.json") {
				private++
				return nil
			}
			texts[path] = string(text)
			return nil
		})
		if want := map[Mode]int{Child: 3, Embedded: 2}[cfg.Mode]; err != nil || private != want {
			t.Errorf("%d private files, %v; want %d", private, err, want)
		}
		texts["the log"] = log.String()
		for name, text := range texts {
			if strings.Contains(text, word) {
				t.Errorf("the password is in %s: %s", name, text)
			}
		}
		if info, err := os.Stat(cfg.folder().redisDir()); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("the directory has permissions %v, %v; want 0700", info.Mode().Perm(), err)
		}
		stop(t, s)
		if err := Ping(t.Context(), s.URL(), time.Second); err == nil || strings.Contains(err.Error(), word) {
			t.Errorf("after Stop: got error %v, want one without the password", err)
		}
	})
}

func TestExposedPasswordIsReplaced(t *testing.T) {
	t.Parallel()
	const word = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
	for name, c := range map[string]struct {
		prepare func(t *testing.T, file string)
		want    string // text in the log; "" if the password is kept
	}{
		"private":              {func(t *testing.T, file string) { write(t, file, word+"\n", 0o600) }, ""},
		"private and one line": {func(t *testing.T, file string) { write(t, file, word, 0o400) }, ""},
		"readable by all":      {func(t *testing.T, file string) { write(t, file, word, 0o644) }, "readable by other users"},
		"readable by a group":  {func(t *testing.T, file string) { write(t, file, word, 0o640) }, "readable by other users"},
		"empty":                {func(t *testing.T, file string) { write(t, file, "", 0o600) }, "does not contain 32 bytes"},
		"chosen by a person":   {func(t *testing.T, file string) { write(t, file, "sesame\n", 0o600) }, "does not contain 32 bytes"},
		"a link": {func(t *testing.T, file string) {
			other := filepath.Join(t.TempDir(), "other")
			write(t, other, word, 0o600)
			testutil.Ok(t, os.Symlink(other, file))
		}, "file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log logbook
			cfg := config(t)
			cfg.Mode, cfg.Logger = Embedded, log.logger()
			file := filepath.Join(cfg.folder().redisDir(), "password")
			c.prepare(t, file)
			s := start(t, cfg)
			set(t, s.URL(), "k", "v")
			got := password(t, cfg)
			info := testutil.Must(os.Lstat(file))(t)
			if c.want == "" {
				if got != word || strings.Contains(log.String(), "new password") {
					t.Errorf("the password was replaced; log: %s", log.String())
				}
				return
			}
			if got == word || len(got) != 64 || info.Mode() != 0o600 {
				t.Errorf("got the old password: %v, of %d characters, mode %v; want a new one of 64 in a file of mode 0600", got == word, len(got), info.Mode())
			}
			for _, part := range []string{"new password", strconv.Quote(file), c.want} {
				if !strings.Contains(log.String(), part) {
					t.Errorf("log is %s, want %q in it", log.String(), part)
				}
			}
			if strings.Contains(log.String(), word) || strings.Contains(log.String(), "sesame") {
				t.Errorf("a password is in the log: %s", log.String())
			}
		})
	}
}

func write(t *testing.T, file, text string, mode os.FileMode) {
	t.Helper()
	testutil.Ok(t, os.WriteFile(file, []byte(text), 0o600))
	testutil.Ok(t, os.Chmod(file, mode))
}

// The redis-server of a crashed run is stopped although its password file is missing, with or without its PID file.
func TestLeftoverWithoutItsPasswordFileIsStopped(t *testing.T) {
	t.Parallel()
	for _, pidFile := range []bool{true, false} {
		t.Run(fmt.Sprintf("pid file %v", pidFile), func(t *testing.T) {
			t.Parallel()
			cfg := childConfig(t)
			s := start(t, cfg)
			set(t, s.URL(), "k", "v")
			old := s.URL()
			// It keeps running, as after a crash on a system without parent death signals.
			path := testutil.Must(findServer(testServer()))(t)
			stop(t, s)
			left := exec.Command(path, "auth.conf", "--bind", "127.0.0.1", "--port", portOf(t, old), "--appendonly", "yes", "--save", "")
			left.Dir, left.SysProcAttr = cfg.folder().redisDir(), &syscall.SysProcAttr{Setpgid: true}
			testutil.Ok(t, left.Start())
			done := make(chan error, 1)
			go func() { done <- left.Wait() }()
			t.Cleanup(func() { _ = left.Process.Kill(); <-done })
			testutil.Eventually(t, "it is up", func() bool { return Ping(t.Context(), old, time.Second) == nil })
			set(t, old, "k", "w")
			gone := supervise.Identity{PID: 1 << 30, Start: "never", Exe: "/none"}
			if pidFile {
				text := testutil.Must(json.Marshal(map[string]any{"name": "redis", "process": identify(t, left.Process.Pid), "owner": gone}))(t)
				write(t, filepath.Join(cfg.folder().pidDir(), "redis.1.pid"), string(text), 0o600)
			} else if err := (address{URL: old, Mode: Child, Owner: gone}).write(cfg.DataDir); err != nil {
				t.Fatal(err)
			}
			testutil.Ok(t, os.Remove(filepath.Join(cfg.folder().redisDir(), "password")))
			s = start(t, cfg)
			if err := <-done; err != nil {
				t.Errorf("the leftover did not shut down: %v", err)
			}
			done <- nil
			wantValue(t, s.URL(), "k", "w")
			if password(t, cfg) == "" || s.URL() == old {
				t.Error("got no new password")
			}
		})
	}
}
