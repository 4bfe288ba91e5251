package redisd

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/orchestrator/supervise"
)

// holdEnv makes this test binary an orchestrator that only runs a Redis: it starts one with the configuration in the variable,
// writes the result to the file in its last argument and waits.
const holdEnv = "MUSTER_REDISD_TEST_HOLD"

// strangerEnv makes this test binary another user's program: see actAsStranger.
const strangerEnv = "MUSTER_REDISD_TEST_STRANGER"

type held struct {
	URL  string
	Mode Mode
	PID  int // of the redis-server
	Err  string
}

func TestMain(m *testing.M) {
	if conf := os.Getenv(holdEnv); conf != "" {
		hold(conf, os.Args[len(os.Args)-1])
	}
	if dir := os.Getenv(strangerEnv); dir != "" {
		actAsStranger(dir, os.Args[len(os.Args)-1])
	}
	redistest.Main(m, func() error {
		// After failed dials, a pool detects its Close within a second.
		return goleak.Find(goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
	})
}

func hold(conf, file string) {
	var cfg Config
	if err := json.Unmarshal([]byte(conf), &cfg); err != nil {
		panic(err)
	}
	var out held
	s, err := Start(context.Background(), cfg)
	if err != nil {
		out.Err = err.Error()
	} else {
		out = held{URL: s.URL(), Mode: s.Mode(), PID: s.PID()}
	}
	b, _ := json.Marshal(out)
	if err := os.WriteFile(file+".tmp", b, 0o600); err != nil {
		panic(err)
	}
	if err := os.Rename(file+".tmp", file); err != nil {
		panic(err)
	}
	time.AfterFunc(time.Minute, func() { os.Exit(1) }) // leftovers of a failed test exit automatically
	select {}
}

// actAsStranger attempts to use the Redis of the data directory dir on port, prints the error of each attempt on a line and exits.
func actAsStranger(dir, port string) {
	ctx := context.Background()
	open := "redis://127.0.0.1:" + port + "/0"
	rdb, err := connect(open, 10*time.Second)
	if err != nil {
		panic(err)
	}
	_, found := Discover(ctx, dir)
	_, read := os.ReadFile(filepath.Join(dir, "redis", "password"))
	_, conf := os.ReadFile(filepath.Join(dir, "redis", "auth.conf"))
	_, whole := os.ReadFile(addressPath(dir))
	for _, err := range []error{rdb.Set(ctx, "k", "stranger", 0).Err(), Ping(ctx, open, 10*time.Second), found, read, conf, whole} {
		fmt.Println(err)
	}
	os.Exit(0)
}

// holder runs an orchestrator in a separate process until the test finishes.
func holder(t *testing.T, cfg Config, env ...string) (held, *exec.Cmd) {
	t.Helper()
	h, cmd := tryHolder(t, cfg, env...)
	if h.Err != "" {
		t.Fatal(h.Err)
	}
	return h, cmd
}

// tryHolder is like holder for an orchestrator that may fail to start.
func tryHolder(t *testing.T, cfg Config, env ...string) (held, *exec.Cmd) {
	t.Helper()
	conf := testutil.Must(json.Marshal(cfg))(t)
	file := filepath.Join(t.TempDir(), "held")
	cmd := exec.Command(os.Args[0], file)
	cmd.Env = append(append(os.Environ(), holdEnv+"="+string(conf)), env...)
	cmd.Stderr = os.Stderr
	testutil.Ok(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	var h held
	testutil.Eventually(t, "an orchestrator is up", func() bool {
		b, err := os.ReadFile(file)
		return err == nil && json.Unmarshal(b, &h) == nil
	})
	return h, cmd
}

// config returns a configuration with short timeouts and without a local Redis. Its directory remembers a port that no other
// server uses.
func config(t *testing.T) Config {
	t.Helper()
	cfg := Config{
		DataDir:  filepath.Join(t.TempDir(), `my "data" ü`),
		LocalURL: nowhere,
		Server:   testServer(),
		Mode:     Auto, PingTimeout: 2 * time.Second, Attempts: 4, Interval: 100 * time.Millisecond, Grace: 10 * time.Second,
	}
	testutil.Ok(t, os.MkdirAll(cfg.folder().redisDir(), 0o700))
	testutil.Ok(t, os.WriteFile(cfg.folder().portFile(), []byte(strconv.Itoa(testutil.FreePort(t))), 0o600))
	return cfg
}

func start(t *testing.T, cfg Config) *Server {
	t.Helper()
	s := testutil.Must(Start(t.Context(), cfg))(t)
	t.Cleanup(func() { stop(t, s) })
	return s
}

func stop(t *testing.T, s *Server) {
	t.Helper()
	if err := s.Stop(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
}

func client(t *testing.T, url string) redis.UniversalClient {
	t.Helper()
	rdb := testutil.Must(connect(url, 10*time.Second))(t)
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

func set(t *testing.T, url, key, value string) {
	t.Helper()
	testutil.Ok(t, client(t, url).Set(t.Context(), key, value, 0).Err())
}

func wantValue(t *testing.T, url, key, want string) {
	t.Helper()
	if got, err := client(t, url).Get(t.Context(), key).Result(); err != nil || got != want {
		t.Fatalf("GET %s = %q, %v; want %q", key, got, err, want)
	}
}

// testServer returns the redis-server of the tests; "" means the one in PATH.
func testServer() string {
	if name := os.Getenv("MUSTER_TEST_REDIS_SERVER"); name != "off" {
		return name
	}
	return ""
}

// needServer skips tests of mode child if redis-server is not installed.
func needServer(t *testing.T) {
	t.Helper()
	_, err := findServer(testServer())
	if err != nil || os.Getenv("MUSTER_TEST_REDIS_SERVER") == "off" {
		t.Skip("NOT COVERED:", t.Name(), "needs a redis-server; install one or name it in MUSTER_TEST_REDIS_SERVER")
	}
}

// portOf returns the port of the Redis at url.
func portOf(t *testing.T, url string) string {
	t.Helper()
	opt := testutil.Must(redis.ParseURL(url))(t)
	_, port, err := net.SplitHostPort(opt.Addr)
	testutil.Ok(t, err)
	return port
}

func identify(t *testing.T, pid int) supervise.Identity {
	t.Helper()
	id := testutil.Must(supervise.Identify(pid))(t)
	return id
}

// logbook is a log with a logger.
type logbook struct{ testutil.Output }

func (l *logbook) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", parts)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error is %q, want %q in it", err, part)
		}
	}
}

// The embedded Redis keeps its data in the data directory, and mode auto uses it from then on. The guarantee names the interval of the writes.
func TestEmbeddedKeepsItsData(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	cfg.Mode = Embedded
	if Exists(t.Context(), cfg) == nil {
		t.Error("got a store in a new directory")
	}
	first := start(t, cfg)
	if first.Mode() != Embedded || !first.Owned() {
		t.Fatalf("got mode %s, owned %v; want an owned embedded one", first.Mode(), first.Owned())
	}
	if !strings.Contains(first.Guarantee(), "every 5s") || len(first.Warnings()) > 0 {
		t.Errorf("got %q and the warnings %q, want the interval of the writes", first.Guarantee(), first.Warnings())
	}
	set(t, first.URL(), "k", "v")
	stop(t, first)
	if Ping(t.Context(), first.URL(), time.Second) == nil {
		t.Fatal("it responds after Stop")
	}

	cfg.Mode = Auto
	testutil.Ok(t, Exists(t.Context(), cfg))
	second := start(t, cfg)
	if second.URL() != first.URL() || second.Mode() != Embedded {
		t.Errorf("got %s at %s, want the embedded Redis at the same address as before, %s", second.Mode(), second.URL(), first.URL())
	}
	if got := client(t, second.URL()).Get(t.Context(), "k").Val(); got != "v" {
		t.Errorf("got %q after a restart, want v", got)
	}
}

func TestEmbeddedExpiresKeys(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	cfg.Mode = Embedded
	rdb := client(t, start(t, cfg).URL())
	testutil.Ok(t, rdb.Set(t.Context(), "short", "v", 100*time.Millisecond).Err())
	testutil.Eventually(t, "the key expires", func() bool { return rdb.Exists(t.Context(), "short").Val() == 0 })
}

// FuzzRedact checks that redacted addresses contain no password.
func FuzzRedact(f *testing.F) {
	for _, s := range []string{"redis://u:", "redis://:", "redis-cluster://u:", "redis://h/0?password=", "redis-sentinel://h?sentinel_password=", "rediss://u:a", "redis://u:%"} {
		f.Add(s, "@h:1/0")
		f.Add(s, "&x=1")
	}
	f.Fuzz(func(t *testing.T, before, after string) {
		const password = "s3cr3t-w0rd"
		scheme, login, ok := strings.Cut(before, "://")
		if !ok || strings.ContainsAny(scheme+login, "/?#@, %") || !strings.Contains(login, ":") || !strings.HasPrefix(after, "@") {
			return // not a password position
		}
		text := before + password + after
		for _, shown := range []string{Redact(text), withoutPassword(text)} {
			if strings.Contains(shown, password) {
				t.Errorf("%q is shown as %q", text, shown)
			}
		}
	})
}

// FuzzFiles checks that damaged files of a data directory, and INFO of a server that is not a Redis, are parsed or rejected.
func FuzzFiles(f *testing.F) {
	f.Add([]byte(`{"url":"redis://127.0.0.1:1/0","mode":"child","owner":{"pid":1}}`))
	f.Add([]byte(`{"url":1}`))
	f.Add([]byte("redis_version:7.0.15\r\nrole:master\r\n:\r\n"))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, raw []byte) {
		testutil.Ok(t, os.WriteFile(addressPath(dir), raw, 0o600))
		if a, err := readAddress(dir); err == nil && len(a.URL) > len(raw) {
			t.Errorf("%q is read as %+v", raw, a)
		}
		for name, value := range parseInfo(string(raw)) {
			if strings.ContainsAny(name+value, "\n") || strings.Contains(name, ":") {
				t.Errorf("%q: got %q and %q", raw, name, value)
			}
		}
		_ = old(parseInfo(string(raw))["redis_version"])
	})
}
