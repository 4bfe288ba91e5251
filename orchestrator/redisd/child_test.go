package redisd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/tasks"
)

func childConfig(t *testing.T) Config {
	t.Helper()
	needServer(t)
	cfg := config(t)
	cfg.Mode = Child
	return cfg
}

func TestChildKeepsItsData(t *testing.T) {
	t.Parallel()
	cfg := childConfig(t)
	cfg.Mode = Auto
	first := start(t, cfg)
	if first.Mode() != Child || !first.Owned() || !strings.Contains(first.Guarantee(), "append-only") {
		t.Fatalf("mode %s, owned %v, %q", first.Mode(), first.Owned(), first.Guarantee())
	}
	for name, want := range map[string]string{
		"appendonly": "yes", "appendfsync": "everysec", "maxmemory-policy": "noeviction", "bind": "127.0.0.1",
		"protected-mode": "yes", "save": "",
	} {
		if got := client(t, first.URL()).ConfigGet(t.Context(), name).Val()[name]; got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	set(t, first.URL(), "k", "v")
	server := identify(t, first.PID())
	stop(t, first)
	if server.Alive() {
		t.Fatal("redis-server runs after Stop")
	}
	if left, _ := filepath.Glob(filepath.Join(cfg.DataDir, "redis", "run", "*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}

	second := start(t, cfg)
	if second.URL() != first.URL() {
		t.Errorf("address was %s and is %s, want the same", first.URL(), second.URL())
	}
	wantValue(t, second.URL(), "k", "v")
}

func TestChildIsRestartedWithItsData(t *testing.T) {
	t.Parallel()
	s := start(t, childConfig(t))
	rdb := client(t, s.URL())
	for i := range 100 {
		testutil.Ok(t, rdb.Set(t.Context(), "k"+strconv.Itoa(i), i, 0).Err())
	}
	testutil.Eventually(t, "the writes are in the file", func() bool { // delayed while the disk is busy
		return parseInfo(rdb.Info(t.Context(), "persistence").Val())["aof_buffer_length"] == "0"
	})
	testutil.Ok(t, syscall.Kill(s.PID(), syscall.SIGKILL))
	testutil.Eventually(t, "it is back", func() bool { return s.Restarts() == 1 && s.Ping(t.Context()) == nil })
	if n := client(t, s.URL()).DBSize(t.Context()).Val(); n != 100 {
		t.Fatalf("got %d of 100 keys", n)
	}
}

// A child that accepts connections but does not reply is restarted with its data. A child that replies with errors is not.
func TestHungChildIsRestarted(t *testing.T) {
	t.Parallel()
	cfg := childConfig(t)
	cfg.PingTimeout, cfg.Interval = 500*time.Millisecond, 20*time.Millisecond
	var log logbook
	cfg.Logger = log.logger()
	s := start(t, cfg)
	set(t, s.URL(), "k", "v")
	hung := s.PID()
	testutil.Ok(t, syscall.Kill(hung, syscall.SIGSTOP))
	testutil.Eventually(t, "a new process replies", func() bool { return s.Restarts() > 0 && s.PID() != hung && s.Ping(t.Context()) == nil })
	wantValue(t, s.URL(), "k", "v")
	if text := log.String(); strings.Count(text, "does not reply") < maxSilentPings || !strings.Contains(text, "hung, restarting it") {
		t.Errorf("logged %s", text)
	}
}

// A redis-server that outlives its orchestrator is found by its PID file and stopped before another one opens the same files.
func TestLeftoverIsStopped(t *testing.T) {
	t.Parallel()
	cfg := childConfig(t)
	h, cmd := holder(t, cfg)
	left := identify(t, h.PID)
	set(t, h.URL, "k", "v")
	// A script keeps it busy, so that it cannot handle the signal of its parent's exit. A stopped process could: the kernel
	// continues stopped orphans.
	o := testutil.Must(redis.ParseURL(h.URL))(t)
	conn := testutil.Must(net.Dial("tcp", o.Addr))(t)
	defer conn.Close()
	testutil.Must(io.WriteString(conn, "AUTH "+o.Password+"\r\n"+`EVAL "while true do end" 0`+"\r\n"))(t)
	testutil.Eventually(t, "it is busy", func() bool { return Ping(t.Context(), h.URL, 200*time.Millisecond) != nil })
	testutil.Ok(t, cmd.Process.Kill())
	_ = cmd.Wait()
	if !left.Alive() {
		t.Fatal("the busy process exited")
	}
	cfg.Grace = 100 * time.Millisecond
	var log logbook
	cfg.Logger = log.logger()
	s := start(t, cfg)
	if left.Alive() || !strings.Contains(log.String(), "redis-server of a crashed run") {
		t.Fatalf("leftover alive: %v; log: %s", left.Alive(), log.String())
	}
	wantValue(t, s.URL(), "k", "v")
}

func TestOneOwnerAmongMany(t *testing.T) {
	t.Parallel()
	needServer(t)
	cfg := config(t)
	cfg.Attempts = 40
	type result struct {
		s   *Server
		err error
	}
	results := make(chan result)
	const n = 5
	for range n {
		go func() {
			s, err := Start(context.Background(), cfg)
			results <- result{s, err}
		}()
	}
	owners := 0
	var servers []*Server
	for range n {
		r := <-results
		if r.err != nil {
			t.Error(r.err)
			continue
		}
		servers = append(servers, r.s)
		t.Cleanup(func() { stop(t, r.s) })
		if r.s.Owned() {
			owners++
		}
	}
	if owners != 1 {
		t.Fatalf("%d of %d own the Redis, want one", owners, n)
	}
	for _, s := range servers {
		if s.URL() != servers[0].URL() {
			t.Errorf("addresses %s and %s", s.URL(), servers[0].URL())
		}
	}
	// Stopping a shared server does not affect the others.
	for _, s := range servers {
		if !s.Owned() {
			stop(t, s)
		}
	}
	if url, err := Discover(t.Context(), cfg.DataDir); err != nil || url != servers[0].URL() {
		t.Fatalf("Discover = %q, %v", url, err)
	}
	cfg.Mode = Child
	_, err := Start(t.Context(), cfg)
	wantError(t, err, "another orchestrator", cfg.DataDir, "--data-dir")
}

func TestFixedPort(t *testing.T) {
	t.Parallel()
	port := testutil.FreePort(t)
	l := testutil.Must(net.Listen("tcp", testutil.LoopbackAddr(port)))(t)
	defer l.Close()
	for _, mode := range []Mode{Child, Embedded} {
		cfg := config(t)
		cfg.Mode, cfg.Port = mode, port
		if mode == Child {
			if _, err := findServer(testServer()); err != nil {
				continue
			}
		}
		_, err := Start(t.Context(), cfg)
		wantError(t, err, "port in use", strconv.Itoa(port), "redis.port")
	}
	_ = l.Close()
	testutil.Eventually(t, "the port is free", func() bool { // a forked child keeps it open until its exec
		conn, err := net.Dial("tcp", testutil.LoopbackAddr(port))
		if err == nil {
			_ = conn.Close()
		}
		return errors.Is(err, syscall.ECONNREFUSED)
	})
	cfg := config(t)
	cfg.Mode, cfg.Port = Embedded, port
	if s := start(t, cfg); !strings.Contains(s.URL(), ":"+strconv.Itoa(port)+"/") {
		t.Fatalf("address is %s, want port %d", s.URL(), port)
	}
}

// Another process takes the port between the check and the start of redis-server, and responds there.
func TestPortIsTakenDuringStart(t *testing.T) {
	t.Parallel()
	for name, take := range map[string]func(t *testing.T, address string) (end func(), err error){
		"by a web server": func(_ *testing.T, address string) (func(), error) {
			l, err := net.Listen("tcp", address)
			if err != nil {
				return nil, err
			}
			web := httptest.NewUnstartedServer(http.NotFoundHandler())
			_ = web.Listener.Close()
			web.Listener = l
			web.Start()
			return web.Close, nil
		},
		"by a server that refuses INFO": func(_ *testing.T, address string) (func(), error) {
			m := miniredis.NewMiniRedis()
			return m.Close, m.StartAddr(address)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			portIsTaken(t, take)
		})
	}
}

// portIsTaken takes the port of the first start of a Redis.
func portIsTaken(t *testing.T, take func(t *testing.T, address string) (end func(), err error)) {
	cfg := childConfig(t)
	path := testutil.Must(findServer(testServer()))(t)
	// The first start of this redis-server only writes its port to a file.
	file := filepath.Join(t.TempDir(), "port")
	cfg.Server = filepath.Join(t.TempDir(), "slow-redis-server")
	script := fmt.Sprintf("#!/bin/sh\nif ! [ -e '%[1]s' ]; then echo \"$5\" >'%[1]s.new'; mv '%[1]s.new' '%[1]s'; exec sleep 600; fi\nexec '%[2]s' \"$@\"\n", file, path)
	testutil.Ok(t, os.WriteFile(cfg.Server, []byte(script), 0o700))
	asked, address := make(chan struct{}), ""
	go func() {
		defer close(asked)
		if !testutil.Becomes(func() bool {
			port, err := os.ReadFile(file)
			if err != nil {
				return false
			}
			address = net.JoinHostPort("127.0.0.1", strings.TrimSpace(string(port)))
			end, err := take(t, address)
			if err == nil {
				t.Cleanup(end)
			}
			return err == nil
		}) {
			t.Error("redis-server was not started")
		}
	}()
	s := start(t, cfg)
	<-asked
	if strings.HasSuffix(s.URL(), address+"/0") {
		t.Fatalf("address is %s, which belongs to another Redis", s.URL())
	}
	set(t, s.URL(), "k", "v")
}

func TestNoServer(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	cfg.Mode, cfg.Server = Child, "no-such-redis-server"
	_, err := Start(t.Context(), cfg)
	wantError(t, err, "no-such-redis-server", "apt install redis-server", "brew install redis", "embedded")

	// Without redis-server in PATH, the embedded Redis is used.
	cfg.Mode, cfg.Server = Auto, ""
	h, _ := holder(t, cfg, "PATH=/nonexistent")
	if h.Mode != Embedded {
		t.Fatalf("without a redis-server the mode is %s, want embedded", h.Mode)
	}
	if url, err := Discover(t.Context(), cfg.DataDir); err != nil || url != h.URL {
		t.Fatalf("another process finds %q, %v; want %s", url, err, h.URL)
	}
}

// Commands of a bounded context fail while Redis accepts connections but does not reply. Later commands of the same request are
// not sent. Other requests work as soon as Redis replies.
func TestBoundedCommandsTimeOut(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	c := testutil.Must(tasks.Connect(t.Context(), server.URL()))(t)
	defer c.Close()
	rdb := c.Redis()
	Bound(rdb)
	ctx := Bounded(t.Context())
	testutil.Ok(t, rdb.Set(ctx, "k", "v", 0).Err())
	server.Freeze()
	if err := rdb.Get(ctx, "k").Err(); !errors.Is(err, ErrSilent) {
		t.Errorf("got %v, want ErrSilent", err)
	}
	server.Thaw()
	if err := rdb.Get(ctx, "k").Err(); !errors.Is(err, ErrSilent) {
		t.Errorf("the next command: got %v, want ErrSilent", err)
	}
	pipe := rdb.TxPipeline()
	get := pipe.Get(ctx, "k")
	if _, err := pipe.Exec(ctx); !errors.Is(err, ErrSilent) || !errors.Is(get.Err(), ErrSilent) {
		t.Errorf("a pipeline: got %v and %v, want ErrSilent", err, get.Err())
	}
	if got, err := rdb.Get(Bounded(t.Context()), "k").Result(); err != nil || got != "v" {
		t.Errorf("another request: got %q, %v", got, err)
	}
}
