// Package redistest gives every test a Redis of its own.
//
// [New] returns a client of one database of a redis-server that the test binary
// shares, so that all tests of a package can run in parallel. If no redis-server is
// installed it uses a miniredis instead, and [Main] prints what is then not
// covered. [Both] runs a test on each of the two, [Every] also on a
// Redis Cluster of three nodes. [Mini] is always miniredis, [Cluster] always
// such a cluster, [Server] a redis-server that the test may kill and restart,
// and [Sentinel] a master with a replica and the Sentinel that watches them.
//
// The environment variable MUSTER_TEST_REDIS_SERVER names the redis-server to
// use; "off" means none. Pub/sub channels are not part of a database: tests of
// one package receive each other's messages, so channel names must be unique to a
// test if an extra message would matter.
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
	"github.com/redis/go-redis/v9/maintnotifications"
)

// databases is how many tests of one binary can hold a database at the same
// time. An empty database costs redis-server a few hundred bytes.
const databases = 1024

// shared is the redis-server of this test binary, started by the first test
// that needs it.
var shared struct {
	once sync.Once
	proc *process
	err  error
	free chan int // the databases that no test uses; never closed
}

// New returns a client of an empty database that only tb uses: of a real Redis
// where there is one, else of a miniredis. Client and database end with tb.
func New(tb testing.TB) redis.UniversalClient {
	tb.Helper()
	return connect(tb, URL(tb))
}

// Mini is New on a miniredis whose clock advances with real time, so that keys
// expire there too.
func Mini(tb testing.TB) redis.UniversalClient {
	tb.Helper()
	return connect(tb, MiniURL(tb))
}

// URL returns the redis:// address of an empty database that only tb uses, for
// programs that connect on their own.
func URL(tb testing.TB) string {
	tb.Helper()
	if binary() == "" {
		return MiniURL(tb)
	}
	return realURL(tb)
}

// Both runs test as two parallel subtests, "redis" and "miniredis". The first
// is skipped where there is no redis-server.
func Both(t *testing.T, test func(t *testing.T, rdb redis.UniversalClient)) {
	t.Helper()
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		needServer(t)
		test(t, connect(t, realURL(t)))
	})
	t.Run("miniredis", func(t *testing.T) {
		t.Parallel()
		test(t, Mini(t))
	})
}

// Every is Both, and a third parallel subtest, "cluster", on a Redis Cluster.
func Every(t *testing.T, test func(t *testing.T, rdb redis.UniversalClient)) {
	t.Helper()
	Both(t, test)
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		test(t, Cluster(t))
	})
}

// MiniURL is URL for a miniredis in this process.
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

// driveClock makes the keys of m expire as time passes: miniredis advances their
// clock only by FastForward. Ticks that a busy machine drops are not made up for,
// or keys could expire too early.
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

// flush deletes the keys that an earlier test left in a database.
func flush(tb testing.TB, u string) {
	tb.Helper()
	opt := options(tb, u)
	rdb := redis.NewClient(opt)
	defer func() { _ = rdb.Close() }()
	if err := rdb.FlushDB(context.Background()).Err(); err != nil {
		tb.Fatalf("empty database %d: %v", opt.DB, err)
	}
}

func connect(tb testing.TB, u string) redis.UniversalClient {
	tb.Helper()
	rdb := redis.NewClient(options(tb, u))
	tb.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

func options(tb testing.TB, u string) *redis.Options {
	tb.Helper()
	opt, err := redis.ParseURL(u)
	if err != nil {
		tb.Fatalf("parse %q: %v", u, err)
	}
	// Tests block on many connections at once, and neither server announces
	// its maintenance.
	opt.PoolSize = 64
	opt.ContextTimeoutEnabled = true // as tasks.ParseURL does
	opt.MaintNotificationsConfig = noNotifications()
	return opt
}

func noNotifications() *maintnotifications.Config {
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}

// Main runs the tests of m, stops the shared server, and exits. Use it as the
// package's TestMain:
//
//	func TestMain(m *testing.M) { redistest.Main(m) }
//
// Each check runs after the server has stopped; an error fails the run. Pass
// goleak's to hold the package to leaving no goroutines:
//
//	redistest.Main(m, func() error { return goleak.Find() })
func Main(m *testing.M, checks ...func() error) {
	announce(os.Stderr)
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		// Tests wait for servers more than they work.
		_ = f.Value.Set(strconv.Itoa(3 * runtime.GOMAXPROCS(0)))
	}
	code := m.Run()
	shared.once.Do(func() {}) // a test that outlived its run starts no server
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
