package redisd

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"muster/internal/testutil"
)

// A damaged append-only file causes an error with its name and advice, or is truncated with a warning. Redis never starts
// silently without its data.
func TestDamagedAppendOnlyFile(t *testing.T) {
	t.Parallel()
	const base, incr, manifest = "appendonly.aof.1.base.rdb", "appendonly.aof.1.incr.aof", "appendonly.aof.manifest"
	empty := func([]byte) []byte { return nil }
	half := func(b []byte) []byte { return b[:len(b)/2] }
	for name, c := range map[string]struct {
		file   string
		damage func([]byte) []byte // nil: remove it
		starts bool
	}{
		"the end of the log is missing": {incr, func(b []byte) []byte { return b[:len(b)-3] }, true},
		"a length of the log is wrong":  {incr, func(b []byte) []byte { return append([]byte("*x"), b[2:]...) }, false},
		"the log is missing":            {incr, nil, false},
		"half of the base":              {base, half, false},
		"a bit flip in the base": {base, func(b []byte) []byte {
			b[len(b)-1] ^= 1 // in the checksum
			return b
		}, false},
		"the base is empty":                                  {base, empty, false},
		"the base is missing":                                {base, nil, false},
		"half of the manifest":                               {manifest, half, false},
		"the manifest is empty":                              {manifest, empty, false},
		"the manifest is missing":                            {manifest, nil, false},
		"the manifest is missing, and the path is a pattern": {manifest, nil, false},
		"a later manifest":                                   {manifest, func(b []byte) []byte { return append(b, "file x seq 1 type z\n"...) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := childConfig(t)
			if strings.Contains(name, "pattern") {
				cfg.DataDir = filepath.Join(t.TempDir(), "[a-")
			}
			s := start(t, cfg)
			for i := range 20 {
				set(t, s.URL(), "k"+strconv.Itoa(i), "v")
			}
			stop(t, s)
			path := filepath.Join(cfg.DataDir, "redis", "appendonlydir", c.file)
			if c.damage == nil {
				testutil.Ok(t, os.Remove(path))
			} else {
				text, err := os.ReadFile(path)
				if err != nil {
					t.Skipf("NOT COVERED: this Redis has no such file: %v", err)
				}
				testutil.Ok(t, os.WriteFile(path, c.damage(text), 0o600))
			}
			if !c.starts {
				s, err := Start(t.Context(), cfg)
				if err == nil {
					stop(t, s)
				}
				wantError(t, err, filepath.Dir(path), "from a backup", "redis-check-aof --fix")
				return
			}
			s = start(t, cfg)
			wantValue(t, s.URL(), "k18", "v")
			if w := strings.Join(s.Warnings(), "\n"); !strings.Contains(w, "truncated") || !strings.Contains(w, c.file) {
				t.Errorf("got the warnings %q, want a truncation of %s", w, c.file)
			}
		})
	}
}

// The advice about damaged data appears only for damage in the current run.
func TestAdviceAppearsOnlyForDamage(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		says   string
		damage bool
	}{
		"earlier run": {"# Can't chdir to the folder", false},
		"no space":    {"# Can't open the append-only file appendonly.aof.1.incr.aof: No space left on device", false},
		"a bad AOF":   {"# Bad file format reading the append only file appendonly.aof.1.incr.aof", true},
		"a short RDB": {"# Short read or OOM loading DB. Unrecoverable error, aborting now.", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := config(t)
			cfg.Mode = Child
			cfg.Server = filepath.Join(t.TempDir(), "redis-server")
			testutil.Ok(t, os.WriteFile(cfg.Server, []byte("#!/bin/sh\necho \""+c.says+"\"\nexit 1\n"), 0o700))
			file := cfg.folder().logFile()
			testutil.Ok(t, os.MkdirAll(filepath.Dir(file), 0o700))
			testutil.Ok(t, os.WriteFile(file, []byte("* Calling fsync() on the AOF file.\n# Bad file format reading the append only file x\n"), 0o600))
			_, err := Start(t.Context(), cfg)
			wantError(t, err, c.says)
			if got := strings.Contains(err.Error(), "redis-check-aof"); got != c.damage {
				t.Errorf("got %v, want the hint: %v", err, c.damage)
			}
		})
	}
}
