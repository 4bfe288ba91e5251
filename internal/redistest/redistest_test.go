package redistest_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"muster/internal/redistest"
	"muster/internal/testutil"
)

func TestMain(m *testing.M) {
	if os.Getenv("REDISTEST_HANG") != "" {
		hang()
	}
	redistest.Main(m, func() error { return goleak.Find() })
}

func TestNewIsIsolated(t *testing.T) {
	t.Parallel()
	for i := range 20 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			rdb := redistest.New(t)
			if n := rdb.DBSize(t.Context()).Val(); n != 0 {
				t.Fatalf("got %d keys in a new database, want 0", n)
			}
			testutil.Ok(t, rdb.Set(t.Context(), "who", i, 0).Err())
			if got, err := rdb.Get(t.Context(), "who").Int(); err != nil || got != i {
				t.Fatalf("got %d (%v), want %d", got, err, i)
			}
		})
	}
}

func TestBothExpireKeys(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		testutil.Ok(t, rdb.Set(t.Context(), "k", "v", 50*time.Millisecond).Err())
		testutil.Eventually(t, "the key expires", func() bool {
			return rdb.Exists(t.Context(), "k").Val() == 0
		})
	})
}

func TestURLIsIsolated(t *testing.T) {
	t.Parallel()
	a, b := redistest.URL(t), redistest.URL(t)
	if a == b {
		t.Fatalf("got %s twice", a)
	}
	opt := testutil.Must(redis.ParseURL(a))(t)
	rdb := redis.NewClient(opt)
	defer func() { _ = rdb.Close() }()
	testutil.Ok(t, rdb.Ping(t.Context()).Err())
}

func TestServerKeepsDataAfterKill(t *testing.T) {
	t.Parallel()
	s := redistest.Server(t, "appendonly", "yes", "appendfsync", "always")
	rdb := s.Client()
	testutil.Ok(t, rdb.Set(t.Context(), "k", "v", 0).Err())
	s.Kill()
	if err := rdb.Ping(t.Context()).Err(); err == nil {
		t.Fatal("got a reply from a killed server")
	}
	s.Start()
	s.Start() // starting a running server does nothing
	if got := rdb.Get(t.Context(), "k").Val(); got != "v" {
		t.Fatalf("got %q after the restart, want the value saved before", got)
	}
	s.Restart()
	if got := rdb.Get(t.Context(), "k").Val(); got != "v" {
		t.Fatalf("got %q after the second restart, want the value saved before", got)
	}
}

func TestFreeze(t *testing.T) {
	t.Parallel()
	s := redistest.Server(t)
	rdb := s.Client()
	s.Freeze()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	pong := make(chan error, 1)
	go func() { pong <- rdb.Ping(t.Context()).Err() }()
	select {
	case err := <-pong:
		t.Fatalf("got a reply from a frozen server: %v", err)
	case <-ctx.Done():
	}
	s.Thaw()
	if err := <-pong; err != nil {
		t.Fatalf("no reply after Thaw: %v", err)
	}
}

func TestClusterRejectsTwoSlots(t *testing.T) {
	t.Parallel()
	rdb := redistest.Cluster(t)
	script := redis.NewScript(`return redis.call("SET", KEYS[1], redis.call("EXISTS", KEYS[2]))`)
	if err := script.Run(t.Context(), rdb, []string{"{q}:a", "{q}:b"}).Err(); err != nil {
		t.Fatalf("one slot: %v", err)
	}
	err := script.Run(t.Context(), rdb, []string{"{q}:a", "{r}:b"}).Err()
	if err == nil || !strings.Contains(err.Error(), "slot") {
		t.Fatalf("got %v for a script over two slots, want an error", err)
	}
}

func TestClusterIsIsolated(t *testing.T) {
	t.Parallel()
	for i := range 3 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			rdb := redistest.Cluster(t)
			if n := rdb.DBSize(t.Context()).Val(); n != 0 {
				t.Fatalf("got %d keys in a new cluster, want 0", n)
			}
			for k := range 50 {
				testutil.Ok(t, rdb.Set(t.Context(), fmt.Sprint("key", k), i, 0).Err())
			}
			if n := rdb.DBSize(t.Context()).Val(); n != 50 {
				t.Fatalf("got %d keys, want 50", n)
			}
		})
	}
}

// A killed test run leaves no redis-server running.
func TestServerDiesWithItsTestRun(t *testing.T) {
	t.Parallel()
	redistest.Server(t) // skips without a redis-server
	self := testutil.Must(os.Executable())(t)
	cmd := exec.Command(self, "-test.run=^TestHang$", "-test.v")
	cmd.Env = append(os.Environ(), "REDISTEST_HANG=1")
	out := testutil.Must(cmd.StdoutPipe())(t)
	testutil.Ok(t, cmd.Start())
	var pid int
	if _, err := fmt.Fscanf(out, "server %d\n", &pid); err != nil {
		t.Fatalf("read the server's pid: %v", err)
	}
	if !alive(pid) {
		t.Fatalf("server %d of the child is not running", pid)
	}
	testutil.Ok(t, cmd.Process.Kill())
	_ = cmd.Wait()
	testutil.Eventually(t, "the server terminates with its test run", func() bool { return !alive(pid) })
}

// hang is the child of TestServerDiesWithItsTestRun: a test run that starts a server and never returns.
func hang() {
	s := redistest.Server(&orphan{dir: os.Getenv("REDISTEST_HANG_DIR")})
	fmt.Printf("server %d\n", s.PID())
	select {}
}

// orphan is a testing.TB whose cleanups never run.
type orphan struct {
	testing.TB
	dir string
}

func (o *orphan) Helper()        {}
func (o *orphan) Cleanup(func()) {}
func (o *orphan) TempDir() string {
	if o.dir == "" {
		return os.TempDir()
	}
	return o.dir
}

// alive reports whether pid is running and not a zombie.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return !os.IsNotExist(err)
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(after, "Z")
}

func TestSentinelPromotesTheReplica(t *testing.T) {
	t.Parallel()
	w := redistest.Sentinel(t)
	testutil.Ok(t, w.Master.Client().Set(t.Context(), "k", "v", 0).Err())
	testutil.Eventually(t, "the replica has the value", func() bool {
		return w.Replica.Client().Get(t.Context(), "k").Val() == "v"
	})
	w.Master.Kill()
	testutil.Eventually(t, "the replica accepts writes", func() bool {
		return w.Replica.Client().Set(t.Context(), "k", "w", 0).Err() == nil
	})
}

func TestReplicatedCluster(t *testing.T) {
	t.Parallel()
	c := redistest.Replicated(t)
	rdb := c.Client(t)
	want := func(value string) {
		t.Helper()
		if got, err := rdb.Get(t.Context(), "{slot}key").Result(); err != nil || got != value {
			t.Fatalf("got %q, %v, want %q", got, err, value)
		}
	}
	testutil.Ok(t, rdb.Set(t.Context(), "{slot}key", "first", 0).Err())
	from := slices.IndexFunc(c.Masters, func(m *redistest.Instance) bool { return m.Client().DBSize(t.Context()).Val() == 1 })
	to := (from + 1) % len(c.Masters)
	if n, err := c.MoveSlot(t.Context(), "{slot}key", c.Masters[from], c.Masters[to]); err != nil || n != 1 {
		t.Fatalf("got %d keys, %v, want 1", n, err)
	}
	want("first")
	c.Failover(t, c.Replicas[to])
	want("first")
	if got := c.Replicas[to].Client().DBSize(t.Context()).Val(); got != 1 {
		t.Errorf("got %d keys on the promoted replica, want 1", got)
	}
}
