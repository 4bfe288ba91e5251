package redisd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster/internal/redistest"
	"muster/internal/testutil"
)

func TestExternalIsUsedAndNeverStopped(t *testing.T) {
	t.Parallel()
	url := redistest.URL(t)
	for name, change := range map[string]func(*Config){
		"auto":     func(c *Config) { c.URL = url },
		"required": func(c *Config) { c.URL, c.Mode = url, External },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config(t)
			change(&cfg)
			s := start(t, cfg)
			if s.Mode() != External || s.Owned() || s.URL() != url || s.PID() != 0 || s.Restarts() != 0 {
				t.Fatalf("mode %s, owned %v, url %s", s.Mode(), s.Owned(), s.URL())
			}
			if !strings.Contains(s.Guarantee(), "never stops it") {
				t.Errorf("guarantee %q", s.Guarantee())
			}
			info, err := os.Stat(filepath.Join(cfg.DataDir, "redis.json"))
			if err != nil || info.Mode().Perm() != 0o600 {
				t.Fatalf("address file: %v, %v; want permissions 0600", info, err)
			}
			if got, err := Discover(t.Context(), cfg.DataDir); err != nil || got != url {
				t.Fatalf("Discover = %q, %v; want %s", got, err, url)
			}
			stop(t, s)
			stop(t, s)
			if err := Ping(t.Context(), url, 2*time.Second); err != nil {
				t.Fatalf("after Stop: %v", err)
			}
			if _, err := Discover(t.Context(), cfg.DataDir); !errors.Is(err, ErrNotRunning) {
				t.Fatalf("Discover after Stop: %v, want ErrNotRunning", err)
			}
		})
	}
}

func TestWaitsForARedisThatComesUp(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	server.Stop()
	cfg := config(t)
	cfg.URL, cfg.Attempts, cfg.Interval = server.URL(), 1000, 10*time.Millisecond
	got := make(chan error, 1)
	go func() {
		s, err := Start(context.Background(), cfg)
		if err == nil {
			err = s.Stop(context.Background())
		}
		got <- err
	}()
	server.Start()
	testutil.Ok(t, <-got)
}

func TestStartFailsAfterAllAttempts(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	cfg.URL, cfg.Attempts, cfg.Interval = "redis://:secret@127.0.0.1:1/0", 10, time.Millisecond
	_, err := Start(t.Context(), cfg)
	wantError(t, err, "connection refused", "10 attempts", "127.0.0.1:1", "remove it to let Muster start a Redis")
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("the password is in %q", err)
	}
	if left, _ := os.ReadDir(cfg.DataDir); len(left) != 1 || left[0].Name() != "redis" {
		t.Errorf("left behind: %v", left)
	}
}

func TestStartObeysItsContext(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	cfg.URL, cfg.Attempts, cfg.Interval = "redis://127.0.0.1:1/0", 10, time.Hour
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := Start(ctx, cfg); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("err = %v, want the context's", err)
	}
}

// silent is a server that accepts connections and does not reply. Nothing waits for their end: a client of Redis closes a
// connection without a reply to its first command only with the next garbage collection.
func silent(t *testing.T) string {
	t.Helper()
	l := testutil.Must(net.Listen("tcp", "127.0.0.1:0"))(t) // the kernel accepts
	t.Cleanup(func() { _ = l.Close() })
	return "redis://" + l.Addr().String()
}

func TestWrongAddresses(t *testing.T) {
	t.Parallel()
	web := testutil.Serve(t, http.NotFoundHandler())
	for name, c := range map[string]struct {
		url  string
		want []string
	}{
		"scheme":      {"http://localhost:6379", []string{"invalid Redis address", "redis://"}},
		"no scheme":   {"localhost:6379", []string{"invalid Redis address", "redis://"}},
		"database":    {"redis://localhost/abc", []string{"invalid Redis address"}},
		"with secret": {"redis://:pass word@local host:%zz", []string{"invalid Redis address"}},
		"not a redis": {strings.Replace(web.URL, "http://", "redis://", 1), []string{"is not a Redis"}},
		"silent":      {silent(t), []string{"does not respond", "2 attempts"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := config(t)
			cfg.URL, cfg.Attempts, cfg.Interval, cfg.PingTimeout = c.url, 2, time.Millisecond, 20*time.Second
			if name == "silent" {
				cfg.PingTimeout = 300 * time.Millisecond
			}
			_, err := Start(t.Context(), cfg)
			wantError(t, err, c.want...)
			if err != nil && strings.Contains(err.Error(), "pass word") {
				t.Errorf("the password is in %q", err)
			}
		})
	}
}

func TestLogin(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	testutil.Ok(t, server.Client().ConfigSet(t.Context(), "requirepass", "sesame").Err())
	for _, url := range []string{server.URL(), "redis://:wr0ng@" + server.Addr} {
		cfg := config(t)
		cfg.URL, cfg.Interval = url, time.Hour
		_, err := Start(t.Context(), cfg) // fails without a retry
		wantError(t, err, "rejected the login", "user:password@")
		if strings.Contains(err.Error(), "wr0ng") {
			t.Errorf("the password is in %q", err)
		}
	}
	cfg := config(t)
	cfg.URL = "redis://:sesame@" + server.Addr
	s := start(t, cfg)
	if got, err := Discover(t.Context(), cfg.DataDir); err != nil || got != cfg.URL {
		t.Fatalf("Discover = %q, %v; want the address with its password", got, err)
	}
	if strings.Contains(s.Guarantee(), "sesame") {
		t.Errorf("the password is in %q", s.Guarantee())
	}
}

// All users of a machine can start or modify a Redis without a password, and write access to Redis grants admin rights.
func TestUnnamedLocalRedisIsNotUsed(t *testing.T) {
	t.Parallel()
	url := redistest.URL(t)
	var log logbook
	cfg := config(t)
	cfg.LocalURL, cfg.Logger = url, log.logger()
	if s := start(t, cfg); s.Mode() == External {
		t.Errorf("mode is %s, want a child or embedded Redis", s.Mode())
	}
	if text := log.String(); !strings.Contains(text, "--redis "+url) {
		t.Errorf("log is %q, want advice on how to use the Redis", text)
	}
	cfg = config(t)
	cfg.LocalURL, cfg.Mode = url, External
	_, err := Start(t.Context(), cfg)
	wantError(t, err, "redis.mode", "external", "--redis")
}

func TestReplicaIsRejected(t *testing.T) {
	t.Parallel()
	master := redistest.Server(t)
	host, port, _ := net.SplitHostPort(master.Addr)
	replica := redistest.Server(t)
	testutil.Ok(t, replica.Client().SlaveOf(t.Context(), host, port).Err())
	cfg := config(t)
	cfg.URL = replica.URL()
	if _, err := Start(t.Context(), cfg); !errors.Is(err, ErrReplica) {
		t.Fatalf("err = %v, want ErrReplica", err)
	}
}

func TestWarnings(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		directives []string
		want       []string // part of each warning
		guarantee  string
	}{
		"nothing on disk": {[]string{"appendonly", "no"}, []string{"loses all jobs"}, "loses all data"},
		"snapshots":       {[]string{"save", "3600 1"}, []string{"loses the last minutes"}, "last snapshot"},
		"append-only":     {[]string{"appendonly", "yes"}, nil, "survives a restart"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := config(t)
			cfg.URL = redistest.Server(t, c.directives...).URL()
			s := start(t, cfg)
			if len(s.Warnings()) != len(c.want) {
				t.Fatalf("warnings are %q, want %q", s.Warnings(), c.want)
			}
			for i, want := range c.want {
				if !strings.Contains(s.Warnings()[i], want) {
					t.Errorf("warning %q, want %q in it", s.Warnings()[i], want)
				}
			}
			if !strings.Contains(s.Guarantee(), c.guarantee) {
				t.Errorf("guarantee %q, want %q in it", s.Guarantee(), c.guarantee)
			}
		})
	}
	t.Run("miniredis tells nothing", func(t *testing.T) {
		t.Parallel()
		cfg := config(t)
		cfg.URL = redistest.MiniURL(t)
		if s := start(t, cfg); len(s.Warnings()) != 0 {
			t.Fatalf("warnings are %q, want none", s.Warnings())
		}
	})
}

func TestStaleAddress(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	cfg.Mode = Embedded
	h, cmd := holder(t, cfg)
	testutil.Must(Discover(t.Context(), cfg.DataDir))(t)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	_, err := Discover(t.Context(), cfg.DataDir)
	wantError(t, err, "no running orchestrator", "127.0.0.1:"+portOf(t, h.URL))
	if !errors.Is(err, ErrNotRunning) {
		t.Fatalf("err = %v, want ErrNotRunning", err)
	}
	s := start(t, cfg)
	if url, err := Discover(t.Context(), cfg.DataDir); err != nil || url != s.URL() {
		t.Fatalf("Discover = %q, %v; want %s", url, err, s.URL())
	}
}

// Exists predicts the behavior of Start and creates nothing.
func TestExistsWhereStartWouldFindData(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	cfg.DataDir = filepath.Join(cfg.DataDir, "none")
	for _, mode := range []Mode{Auto, Child, Embedded} {
		cfg.Mode = mode
		if err := Exists(t.Context(), cfg); !errors.Is(err, ErrNoStore) {
			t.Errorf("mode %s, no directory: %v, want ErrNoStore", mode, err)
		}
	}
	if _, err := os.Stat(cfg.DataDir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory was created: %v", err)
	}
	t.Run("relative path", func(t *testing.T) {
		t.Parallel()
		cfg := cfg
		cfg.DataDir = "none-here"
		here, _ := os.Getwd()
		wantError(t, Exists(t.Context(), cfg), filepath.Join(here, "none-here"), "muster start")
	})
	t.Run("running", func(t *testing.T) {
		t.Parallel()
		cfg := config(t)
		cfg.Mode = Embedded
		s := start(t, cfg)
		if err := Exists(t.Context(), cfg); err != nil {
			t.Errorf("beside a running one: %v", err)
		}
		stop(t, s)
		if err := Exists(t.Context(), cfg); err != nil {
			t.Errorf("after its end: %v", err)
		}
	})
	t.Run("external", func(t *testing.T) {
		t.Parallel()
		cfg := config(t)
		cfg.Mode, cfg.URL = Auto, redistest.MiniURL(t)
		if err := Exists(t.Context(), cfg); err != nil {
			t.Errorf("with an address: %v", err)
		}
		once(t, cfg)
		cfg.URL = ""
		if err := Exists(t.Context(), cfg); err != nil {
			t.Errorf("with a remembered address: %v", err)
		}
		cfg.Mode = Child
		if err := Exists(t.Context(), cfg); !errors.Is(err, ErrNoStore) {
			t.Errorf("mode child: %v, want ErrNoStore", err)
		}
	})
}

func TestDiscoverNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, err := Discover(t.Context(), dir)
	wantError(t, err, dir, "muster start", "--redis")
	testutil.Ok(t, os.WriteFile(filepath.Join(dir, "redis.json"), []byte("{"), 0o600))
	_, err = Discover(t.Context(), dir)
	wantError(t, err, "redis.json")
}

func TestUnwritableDataDirectory(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	testutil.Ok(t, os.WriteFile(file, nil, 0o600))
	cfg := config(t)
	cfg.DataDir = filepath.Join(file, "data")
	_, err := Start(t.Context(), cfg)
	wantError(t, err, cfg.DataDir, "is not writable", "--data-dir")
}

func TestExternalModeNeedsAnAddress(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	cfg.Mode = External
	_, err := Start(t.Context(), cfg)
	wantError(t, err, "--redis")
}

// A cluster and a Sentinel group are used like a single Redis.
func TestManyHosts(t *testing.T) {
	t.Parallel()
	for _, url := range []string{redistest.ClusterURL(t), redistest.Sentinel(t).URL()} {
		cfg := config(t)
		cfg.URL = url
		s := start(t, cfg)
		if s.Mode() != External || s.URL() != url {
			t.Errorf("got %s at %s, want external at %s", s.Mode(), s.URL(), url)
		}
		if err := s.Ping(t.Context()); err != nil {
			t.Error(err)
		}
		set(t, s.URL(), "k", "v")
		wantValue(t, url, "k", "v")
	}
}

func TestRedact(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"redis://localhost:6379/1":                           "redis://localhost:6379/1",
		"redis://user:secret@localhost/0":                    "redis://user:xxxxx@localhost/0",
		"redis://localhost?password=hush":                    "redis://localhost?password=xxxxx",
		"redis://:secret@local host:%zz/0":                   "(unreadable address)",
		"redis://:sec/ret@localhost/0":                       "(unreadable address)",
		"redis-cluster://u:secret@a:1,b:2":                   "redis-cluster://u:xxxxx@a:1,b:2",
		"redis-sentinel://a,b/m?db=1&sentinel_password=hush": "redis-sentinel://a,b/m?db=1&sentinel_password=xxxxx",
	} {
		if got := Redact(in); got != want {
			t.Errorf("Redact(%q) = %q, want %q", in, got, want)
		}
	}
}

// A Redis with a full disk rejects even PING and is still found.
func TestRedisWithFullDiskIsFound(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t, "appendonly", "yes")
	cfg := config(t)
	cfg.URL = server.URL()
	start(t, cfg)
	server.FillDisk()
	if url, err := Discover(t.Context(), cfg.DataDir); err != nil || url != server.URL() {
		t.Errorf("got %q, %v, want %q", url, err, server.URL())
	}
	server.Kill()
	_, err := Discover(t.Context(), cfg.DataDir)
	if errors.Is(err, ErrNotRunning) {
		t.Errorf("got %v; want the Redis missing, not the orchestrator, which is this process", err)
	}
	wantError(t, err, "does not respond", cfg.DataDir)
}

// Two orchestrators on one data directory share a Redis, which stops with the one that runs it. Watch in the other returns.
func TestWatchReturnsWhenTheSharedRedisEnds(t *testing.T) {
	t.Parallel()
	eachOwn(t, func(t *testing.T, cfg Config) {
		first := start(t, cfg)
		if _, err := Start(t.Context(), cfg); !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), fmt.Sprintf("process %d,", os.Getpid())) {
			t.Errorf("without Auto: got %v, want ErrInUse with the process", err)
		}
		cfg.Mode = Auto
		second := start(t, cfg)
		if second.Owned() || second.URL() != first.URL() || !strings.Contains(second.Guarantee(), "stops with that orchestrator") {
			t.Fatalf("got mode %s at %s, %q; want the Redis of the first", second.Mode(), Redact(second.URL()), second.Guarantee())
		}
		gone := make(chan error, 1)
		go func() { gone <- second.Watch(t.Context()) }()
		stop(t, first)
		err := <-gone
		wantError(t, err, "run the command again", "muster start", cfg.DataDir)
		if !errors.Is(err, ErrGone) {
			t.Errorf("got %v, want ErrGone", err)
		}
	})
}

func TestWatchOutlastsARestart(t *testing.T) {
	t.Parallel()
	cfg := childConfig(t)
	first := start(t, cfg)
	set(t, first.URL(), "k", "v")
	shared := cfg
	shared.Mode, shared.Attempts, shared.Interval = Auto, 1000, 20*time.Millisecond
	second := start(t, shared)
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() { gone <- second.Watch(ctx) }()
	stop(t, first)
	start(t, cfg)
	testutil.Eventually(t, "the shared Redis responds again", func() bool { return second.Ping(t.Context()) == nil })
	wantValue(t, second.URL(), "k", "v")
	cancel()
	if err := <-gone; err != nil {
		t.Errorf("got %v, want none after a restart", err)
	}
}

func TestWatchOfUnsharedRedisWaitsForItsContext(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	cfg.Mode = Embedded
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := start(t, cfg).Watch(ctx); err != nil {
		t.Errorf("got %v, want none", err)
	}
}
