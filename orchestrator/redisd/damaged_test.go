package redisd

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muster/internal/redistest"
	"muster/internal/testutil"
)

// filesOfRedis are the files in a data directory with a running child Redis.
var filesOfRedis = []string{
	"redis.json", "logs/redis.log", "redis/port", "redis/lock", "redis/password", "redis/auth.conf", "redis/run/redis.*.pid",
}

// damages are the kinds of damage of a file.
var damages = map[string]func(path string, text []byte) error{
	"emptied": func(path string, _ []byte) error { return os.Truncate(path, 0) },
	"a bit flipped": func(path string, text []byte) error {
		if len(text) == 0 {
			return nil
		}
		text[len(text)/2] ^= 0x80
		return os.WriteFile(path, text, 0o600)
	},
	"of a later version": func(path string, text []byte) error {
		return os.WriteFile(path, append([]byte("{\"version\": 99}\n"), text...), 0o600)
	},
	"a folder": func(path string, _ []byte) error {
		if err := os.Remove(path); err != nil {
			return err
		}
		return os.MkdirAll(filepath.Join(path, "x"), 0o700)
	},
}

// After any damage of a file in the data directory, the next start finds the jobs, or fails with an error that names the file and
// finds them after its removal.
func TestDamagedFilesOfTheDataDirectory(t *testing.T) {
	t.Parallel()
	for what, damage := range damages {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			for _, pattern := range filesOfRedis {
				cfg := childConfig(t)
				h, cmd := holder(t, cfg)
				set(t, h.URL, "k", "v")
				left := identify(t, h.PID)
				testutil.Ok(t, cmd.Process.Kill())
				_ = cmd.Wait()
				testutil.Eventually(t, "its Redis has exited", func() bool { return !left.Alive() })
				wantKnownFiles(t, cfg.DataDir)
				found, err := filepath.Glob(filepath.Join(cfg.DataDir, pattern))
				if err != nil || len(found) != 1 {
					t.Fatalf("%s: got %v, %v, want one file", pattern, found, err)
				}
				text, err := os.ReadFile(found[0])
				if err == nil {
					err = damage(found[0], text)
				}
				testutil.Ok(t, err)
				s, err := Start(t.Context(), cfg)
				if err != nil {
					if !strings.Contains(err.Error(), found[0]) {
						t.Errorf("%s is damaged: got the error %q, want one with its name", pattern, err)
					}
					testutil.Ok(t, os.RemoveAll(found[0]))
					if s, err = Start(t.Context(), cfg); err != nil {
						t.Errorf("%s was damaged and is removed: got %v", pattern, err)
						continue
					}
				}
				wantValue(t, s.URL(), "k", "v")
				stop(t, s)
			}
		})
	}
}

// wantKnownFiles checks that a data directory contains only filesOfRedis, except the append-only files, which have a separate
// test.
func wantKnownFiles(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || strings.Contains(path, "appendonly") {
			return err
		}
		for _, pattern := range filesOfRedis {
			if ok, _ := filepath.Match(filepath.Join(dir, pattern), path); ok {
				return nil
			}
		}
		t.Errorf("got a file %s that this test does not know; add it to filesOfRedis", path)
		return nil
	})
	testutil.Ok(t, err)
}

// An unreadable address of the jobs is an error, because another Redis would start without them.
func TestDamagedAddressOfTheJobs(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	cfg.URL = redistest.URL(t)
	stop(t, start(t, cfg))
	cfg.URL = ""
	file := cfg.folder().externalFile()
	for name, text := range map[string]string{"emptied": "", "no address": "redis://127.0.\x80.1:1/0\n"} {
		testutil.Ok(t, os.WriteFile(file, []byte(text), 0o600))
		s, err := Start(t.Context(), cfg)
		if err == nil {
			stop(t, s)
		}
		t.Log(name)
		wantError(t, err, file)
	}
}
