package redisd

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muster/internal/redistest"
	"muster/internal/testutil"
)

const nowhere = "redis://127.0.0.1:1/0"

// once starts and stops a Redis with cfg.
func once(t *testing.T, cfg Config) *Server {
	t.Helper()
	s := start(t, cfg)
	stop(t, s)
	return s
}

func wantMode(t *testing.T, s *Server, mode Mode, url string) {
	t.Helper()
	if s.Mode() != mode || url != "" && s.URL() != url {
		t.Errorf("got %s at %s, want %s %s", s.Mode(), s.URL(), mode, url)
	}
}

func wantWarning(t *testing.T, s *Server, parts ...string) {
	t.Helper()
	for _, w := range s.Warnings() {
		missing := false
		for _, part := range parts {
			missing = missing || !strings.Contains(w, part)
		}
		if !missing {
			return
		}
	}
	t.Errorf("got warnings %q, want one with %q", s.Warnings(), parts)
}

func wantNoSwitch(t *testing.T, s *Server) {
	t.Helper()
	for _, w := range s.Warnings() {
		if strings.Contains(w, "earlier jobs") {
			t.Errorf("got warning %q, want no warning about another Redis", w)
		}
	}
}

// Mode auto continues to use the Redis that stores the jobs of the data directory.
func TestAutoUsesTheRedisWithTheJobs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		first  func(a string) Config // the relevant options
		second func(a string) Config
		want   func(a string) (Mode, string)
		child  bool
	}{
		"child, and mode auto": {
			func(string) Config { return Config{Mode: Child} },
			func(string) Config { return Config{} },
			func(string) (Mode, string) { return Child, "" }, true},
		"given one, and none is given": {
			func(a string) Config { return Config{URL: a} },
			func(string) Config { return Config{} },
			func(a string) (Mode, string) { return External, a }, false},
		"given one, and mode external": {
			func(a string) Config { return Config{URL: a} },
			func(string) Config { return Config{Mode: External} },
			func(a string) (Mode, string) { return External, a }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.child {
				needServer(t)
			}
			cfg, a := config(t), redistest.URL(t)
			with := func(o Config) Config {
				got := cfg
				got.Mode, got.URL = cmp.Or(o.Mode, Auto), o.URL
				return got
			}
			s := start(t, with(c.first(a)))
			wantNoSwitch(t, s)
			set(t, s.URL(), "job", "open")
			stop(t, s)
			for range 2 { // the second start gives the same result
				s = start(t, with(c.second(a)))
				mode, url := c.want(a)
				wantMode(t, s, mode, url)
				wantValue(t, s.URL(), "job", "open")
				wantNoSwitch(t, s)
				stop(t, s)
			}
		})
	}
}

// An explicit address or mode selects another Redis, with a warning. The data directory then remembers that one.
func TestExplicitRedisIsRemembered(t *testing.T) {
	t.Parallel()
	t.Run("own to given", func(t *testing.T) {
		t.Parallel()
		cfg, b := childConfig(t), redistest.URL(t)
		once(t, cfg)
		cfg.Mode, cfg.URL = Auto, b
		s := once(t, cfg)
		wantMode(t, s, External, b)
		wantWarning(t, s, "a child Redis", b, "redis.mode")
		wantNoSwitch(t, once(t, cfg))
		cfg.URL = ""
		s = once(t, cfg)
		wantMode(t, s, External, b)
		wantNoSwitch(t, s)
	})
	t.Run("own to mode external", func(t *testing.T) {
		t.Parallel()
		cfg, b := childConfig(t), redistest.URL(t)
		once(t, cfg)
		cfg.Mode, cfg.URL = External, b
		s := once(t, cfg)
		wantMode(t, s, External, b)
		wantWarning(t, s, "a child Redis", b)
	})
	t.Run("one to another", func(t *testing.T) {
		t.Parallel()
		cfg, a, b := config(t), redistest.URL(t), redistest.URL(t)
		cfg.URL = a
		once(t, cfg)
		cfg.URL = b
		wantWarning(t, once(t, cfg), a, b)
		cfg.URL = ""
		wantMode(t, once(t, cfg), External, b)
	})
	t.Run("external to own", func(t *testing.T) {
		t.Parallel()
		needServer(t)
		cfg, a := config(t), redistest.URL(t)
		cfg.URL = a
		once(t, cfg)
		cfg.Mode, cfg.URL = Child, ""
		s := once(t, cfg)
		wantMode(t, s, Child, "")
		wantWarning(t, s, a, "--redis")
		cfg.Mode = Auto
		s = once(t, cfg)
		wantMode(t, s, Child, "")
		wantNoSwitch(t, s)
	})
}

// A Redis with the jobs that does not respond is not replaced.
func TestAutoFailsWithoutTheRedisWithTheJobs(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	cfg := config(t)
	cfg.URL = server.URL()
	once(t, cfg)
	server.Stop()
	cfg.URL = ""
	for _, mode := range []Mode{Auto, External} {
		cfg.Mode = mode
		_, err := Start(t.Context(), cfg)
		wantError(t, err, cfg.DataDir, server.Addr, "connection refused", "--redis", "redis.mode", "MUSTER_REDIS__MODE")
	}
	server.Start()
	cfg.Mode = Auto
	wantMode(t, once(t, cfg), External, server.URL())
}

func TestAutoFailsWithoutTheServerWithTheJobs(t *testing.T) {
	t.Parallel()
	needServer(t)
	cfg := config(t)
	once(t, cfg)
	cfg.Server = ""
	h, _ := tryHolder(t, cfg, "PATH=/nonexistent")
	wantError(t, errors.New(h.Err), cfg.DataDir, "files of a redis-server", "install it", "redis.mode: embedded")
	cfg.Mode = Embedded
	wantWarning(t, once(t, cfg), "embedded Redis does not use")
}

// The remembered address contains no secret.
func TestRememberedAddressHasNoPassword(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	testutil.Ok(t, server.Client().ConfigSet(t.Context(), "requirepass", "sesame").Err())
	cfg := config(t)
	for _, url := range []string{"redis://:sesame@" + server.Addr + "/0", "redis://default:sesame@" + server.Addr + "/0"} {
		cfg.URL = url
		once(t, cfg)
		err := filepath.WalkDir(cfg.DataDir, func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			text, err := os.ReadFile(path)
			if strings.Contains(string(text), "sesame") {
				t.Errorf("the password is in %s", path)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
		none := cfg
		none.URL = ""
		_, err = Start(t.Context(), none)
		wantError(t, err, server.Addr, "rejected the login", "complete address with --redis")
	}
	wantNoSwitch(t, once(t, cfg))
}

// A Redis that another process runs on the directory is not external.
func TestSharedRedisIsNotRememberedAsExternal(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	cfg.Mode = Embedded
	first := start(t, cfg)
	given := cfg
	given.Mode, given.URL = Auto, first.URL()
	wantNoSwitch(t, once(t, given))
	cfg.Mode = Auto
	wantNoSwitch(t, once(t, cfg))
	if err := os.Remove(addressPath(cfg.DataDir)); err != nil { // as during the stop of the first
		t.Fatal(err)
	}
	wantNoSwitch(t, once(t, given))
	if url, err := cfg.folder().external(); url != "" || err != nil {
		t.Errorf("got %q, %v; want nothing remembered", url, err)
	}
}

// A command that only looks at a Redis does not tie the directory to it.
func TestLookIsNotRemembered(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	cfg.Look, cfg.URL = true, redistest.URL(t)
	s := start(t, cfg)
	wantMode(t, s, External, cfg.URL)
	if _, err := Discover(t.Context(), cfg.DataDir); !errors.Is(err, ErrNotRunning) {
		t.Errorf("others find the Redis: %v", err)
	}
	if url, err := cfg.folder().external(); url != "" || err != nil {
		t.Errorf("got %q, %v; want nothing remembered", url, err)
	}
}

// A command that uses another Redis while an orchestrator runs does not change the remembered address.
func TestCommandDoesNotChangeTheRememberedRedis(t *testing.T) {
	t.Parallel()
	cfg, guest := config(t), config(t)
	cfg.Mode = Embedded
	s := start(t, cfg)
	guest.DataDir, guest.URL = cfg.DataDir, redistest.URL(t)
	once(t, guest)
	if url, err := cfg.folder().external(); url != "" || err != nil {
		t.Errorf("got %q, %v; want nothing remembered", url, err)
	}
	if got, err := Discover(context.Background(), cfg.DataDir); got != s.URL() || err != nil {
		t.Errorf("others find %q, %v; want %s", got, err, s.URL())
	}
}
