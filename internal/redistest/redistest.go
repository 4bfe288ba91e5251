// Package redistest provides a separate Redis for each test.
//
// [New] returns a client of one database of a redis-server that the test binary shares, so that all tests of a
// package can run in parallel. Without an installed redis-server it uses miniredis, and [Main] prints the resulting
// gaps in coverage. [Both] runs a test on each of the two, [Every] also on a Redis Cluster of three nodes. [Mini]
// always uses miniredis, [Cluster] always a cluster, [Replicated] a cluster with replicas for one test, [Server] a
// redis-server that the test may kill and restart, and [Sentinel] a master with a replica and a Sentinel.
//
// The environment variable MUSTER_TEST_REDIS_SERVER is the path of the redis-server; "off" disables it. Pub/sub
// channels are not part of a database: tests of a package receive each other's messages, so channel names must be
// unique if that matters.
package redistest

import (
	"context"
	"flag"
	"fmt"
	"net/url"
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"

	"muster/internal/testutil"
)

// databases is the maximum number of tests of a binary that use a database concurrently. An empty database takes a
// few hundred bytes.
const databases = 1024

// shared is the redis-server of this test binary, started by the first test that needs it.
var shared struct {
	once sync.Once
	proc *process
	err  error
	free chan int // unused databases; never closed
}

// New returns a client of an empty database for tb only, in a redis-server if one is installed, otherwise in
// miniredis. Client and database are released at the end of tb.
func New(tb testing.TB) redis.UniversalClient {
	tb.Helper()
	return connect(tb, URL(tb))
}

// Mini is like New on miniredis with a clock that follows real time, so that keys expire.
func Mini(tb testing.TB) redis.UniversalClient {
	tb.Helper()
	opt := options(tb, MiniURL(tb))
	opt.ReadTimeout = 30 * time.Second // its Lua is slow: hundreds of scripts in a pipeline take seconds on a busy machine
	return open(tb, opt)
}

// NextMillisecond waits for the next millisecond of the clock of a Redis, which orders what happens in it.
func NextMillisecond(tb testing.TB, rdb redis.UniversalClient) {
	tb.Helper()
	at := rdb.Time(tb.Context()).Val().UnixMilli()
	testutil.Eventually(tb, "the clock of Redis goes on", func() bool { return rdb.Time(tb.Context()).Val().UnixMilli() > at })
}

// URL returns the redis:// address of an empty database for tb only, for programs that connect themselves.
func URL(tb testing.TB) string {
	tb.Helper()
	if binary() == "" {
		return MiniURL(tb)
	}
	return realURL(tb)
}

// Both runs test in two parallel subtests, "redis" and "miniredis". The first one is skipped without a redis-server, and
// the second one with -short and a redis-server.
func Both(t *testing.T, test func(t *testing.T, rdb redis.UniversalClient)) {
	t.Helper()
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		needServer(t)
		test(t, connect(t, realURL(t)))
	})
	t.Run("miniredis", func(t *testing.T) {
		t.Parallel()
		if testing.Short() && binary() != "" {
			t.Skip("long: the same on miniredis")
		}
		test(t, Mini(t))
	})
}

// Every is like Both with a third parallel subtest, "cluster", on a Redis Cluster.
func Every(t *testing.T, test func(t *testing.T, rdb redis.UniversalClient)) {
	t.Helper()
	Both(t, test)
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		test(t, Cluster(t))
	})
}

// MiniURL is like URL for an in-process miniredis.
func MiniURL(tb testing.TB) string {
	tb.Helper()
	m := miniredis.NewMiniRedis()
	if err := m.Start(); err != nil {
		tb.Fatalf("start miniredis: %v", err)
	}
	tb.Cleanup(m.Close)
	driveClock(tb, m)
	return "redis://" + m.Addr() + "/0"
}

// driveClock makes the keys of m expire in real time: miniredis advances its clock only by FastForward. Ticks dropped
// by a busy machine are skipped, because keys must not expire too early.
func driveClock(tb testing.TB, m *miniredis.Miniredis) {
	ctx, cancel := context.WithCancel(context.Background())
	var pump sync.WaitGroup
	pump.Go(func() {
		const step = 20 * time.Millisecond
		tick := time.NewTicker(step)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				m.FastForward(step)
			}
		}
	})
	tb.Cleanup(func() {
		cancel()
		pump.Wait()
	})
}

// realURL reserves a database of the shared server for tb.
func realURL(tb testing.TB) string {
	tb.Helper()
	shared.once.Do(func() {
		shared.proc, shared.err = startShared()
		shared.free = make(chan int, databases)
		for db := range databases {
			shared.free <- db
		}
	})
	if shared.err != nil {
		tb.Fatalf("start the shared redis-server: %v", shared.err)
	}
	var db int
	select {
	case db = <-shared.free:
	case <-time.After(time.Minute):
		tb.Fatalf("all %d databases are in use by other tests", databases)
	}
	u := (&url.URL{Scheme: "redis", Host: shared.proc.addr, Path: fmt.Sprint(db)}).String()
	flush(tb, u)
	tb.Cleanup(func() { shared.free <- db })
	return u
}

// flush deletes the keys of an earlier test from a database.
func flush(tb testing.TB, u string) {
	tb.Helper()
	opt := options(tb, u)
	rdb := redis.NewClient(opt)
	defer func() { _ = rdb.Close() }()
	if err := rdb.FlushDB(context.Background()).Err(); err != nil {
		tb.Fatalf("flush database %d: %v", opt.DB, err)
	}
}

func connect(tb testing.TB, u string) redis.UniversalClient {
	tb.Helper()
	return open(tb, options(tb, u))
}

func open(tb testing.TB, opt *redis.Options) redis.UniversalClient {
	rdb := redis.NewClient(opt)
	tb.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

func options(tb testing.TB, u string) *redis.Options {
	tb.Helper()
	opt, err := redis.ParseURL(u)
	if err != nil {
		tb.Fatalf("parse %q: %v", u, err)
	}
	// Tests block on many connections concurrently, and neither server sends maintenance notifications.
	opt.PoolSize = 64
	opt.ContextTimeoutEnabled = true // as in tasks.ParseURL
	opt.MaintNotificationsConfig = noNotifications()
	return opt
}

func noNotifications() *maintnotifications.Config {
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}

// Main runs the tests of m, stops the shared server and exits. Use it as the package's TestMain:
//
// func TestMain(m *testing.M) { redistest.Main(m) }
//
// Each check runs after the server has stopped; an error fails the run. Pass goleak's check to detect leaked
// goroutines:
//
// redistest.Main(m, func() error { return goleak.Find() })
func Main(m *testing.M, checks ...func() error) {
	announce(os.Stderr)
	logging.Disable() // tests stop servers
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		// Tests mostly wait for servers.
		_ = f.Value.Set(strconv.Itoa(3 * runtime.GOMAXPROCS(0)))
	}
	code := m.Run()
	shared.once.Do(func() {}) // tests that outlive the run start no server
	if shared.proc != nil {
		shared.proc.free()
		_ = os.RemoveAll(shared.proc.dir)
	}
	endClusters()
	for _, check := range checks {
		if err := check(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}
