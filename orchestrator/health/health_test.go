package health

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"muster/tasks"
	"muster/tasks/redistest"
	"muster/tasks/tasktype"
)

func TestMain(m *testing.M) {
	redistest.Main(m, func() error { return goleak.Find() })
}

func check(name, detail string, err error) Check {
	return Check{Name: name, Run: func(context.Context) (string, error) { return detail, err }}
}

func TestReportHasTheWorstStatus(t *testing.T) {
	t.Parallel()
	good, half, bad := check("a", "fine", nil), check("b", "so so", Degrade(errors.New("low"))), check("c", "", errors.New("gone"))
	wrapped := check("d", "", fmt.Errorf("ask: %w", Degrade(errors.New("low"))))
	for _, c := range []struct {
		checks []Check
		want   Status
	}{
		{nil, OK}, {[]Check{good}, OK}, {[]Check{half, good}, Degraded}, {[]Check{good, wrapped}, Degraded},
		{[]Check{bad, half, good}, Failed},
	} {
		var r Registry
		for _, check := range c.checks {
			r.Add(check)
		}
		got := r.Run(t.Context())
		if got.Status != c.want || len(got.Checks) != len(c.checks) {
			t.Errorf("%d checks: %s with %d results, want %s", len(c.checks), got.Status, len(got.Checks), c.want)
		}
		for i, result := range got.Checks {
			if result.Name != c.checks[i].Name {
				t.Errorf("result %d is of %s, want %s", i, result.Name, c.checks[i].Name)
			}
		}
	}
	if Degrade(nil) != nil {
		t.Error("a successful check became degraded")
	}
}

func TestPanicIsAFailure(t *testing.T) {
	t.Parallel()
	var r Registry
	r.Add(Check{Name: "x", Run: func(context.Context) (string, error) { panic("boom") }})
	if got := r.Run(t.Context()).Checks[0]; got.Status != Failed || !strings.Contains(got.Error, "boom") {
		t.Fatalf("got %+v, want failed: boom", got)
	}
}

func TestChecksRunConcurrentlyWithTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		free := make(chan struct{})
		var r Registry
		r.Add(Check{Name: "deaf", Timeout: time.Second, Run: func(context.Context) (string, error) {
			asked.Add(1)
			<-free
			return "back", nil
		}})
		for _, name := range []string{"slow 1", "slow 2"} {
			r.Add(Check{Name: name, Timeout: 3 * time.Second, Run: func(ctx context.Context) (string, error) {
				select {
				case <-time.After(2 * time.Second):
					return "at last", nil
				case <-ctx.Done():
					return "", ctx.Err()
				}
			}})
		}
		start := time.Now()
		got := r.Run(t.Context())
		if took := time.Since(start); took != 2*time.Second {
			t.Errorf("took %v, want the 2 s of the slow ones", took)
		}
		if c := got.Checks[0]; c.Status != Failed || !strings.HasPrefix(c.Error, "no response within 1s") || c.Millis != 1000 {
			t.Errorf("deaf: %+v", c)
		}
		if c := got.Checks[1]; c.Status != OK || c.Detail != "at last" || c.Millis != 2000 {
			t.Errorf("slow: %+v", c)
		}

		// The check is not started again while it is running.
		got = r.Run(t.Context())
		if c := got.Checks[0]; asked.Load() != 1 || c.Status != Failed || !strings.Contains(c.Error, "started 2s ago") {
			t.Errorf("started %d times: %+v", asked.Load(), c)
		}
		close(free)
		synctest.Wait()
		if c := r.Run(t.Context()).Checks[0]; asked.Load() != 2 || c.Status != OK {
			t.Errorf("started %d times: %+v", asked.Load(), c)
		}
	})
}

// A run that starts during a check waits for the result of that check.
func TestConcurrentRunsShareACheck(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		var r Registry
		r.Add(Check{Name: "x", Timeout: time.Minute, Run: func(ctx context.Context) (string, error) {
			asked.Add(1)
			select {
			case <-time.After(time.Second):
				return "fine", nil
			case <-ctx.Done():
				return "", ctx.Err()
			}
		}})
		impatient, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			if got := r.Run(impatient); got.Status != Failed || !strings.Contains(got.Checks[0].Error, "canceled by the caller") {
				t.Errorf("the canceled run: got %+v, want failed: canceled by the caller", got)
			}
		})
		synctest.Wait()
		for range 5 {
			all.Go(func() {
				if got := r.Run(t.Context()); got.Status != OK {
					t.Errorf("a waiting run: got %+v, want ok", got)
				}
			})
		}
		synctest.Wait()
		cancel()
		all.Wait()
		if n := asked.Load(); n != 1 {
			t.Errorf("started %d times, want once", n)
		}
	})
}

func TestDuplicateNamePanics(t *testing.T) {
	t.Parallel()
	defer func() {
		if recover() == nil {
			t.Error("Add accepted a duplicate name")
		}
	}()
	var r Registry
	r.Add(check("x", "", nil))
	r.Add(check("x", "", nil))
}

// one runs a single check.
func one(t *testing.T, c Check) Result {
	t.Helper()
	var r Registry
	r.Add(c)
	return r.Run(t.Context()).Checks[0]
}

func TestRedisResponds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		url    func(t *testing.T) string
		memory string
		status Status
	}{
		"redis":     {func(t *testing.T) string { return redistest.Server(t).URL() }, "MB used", OK},
		"miniredis": {func(t *testing.T) string { return redistest.MiniURL(t) }, "install redis-server", Degraded}, // its data is volatile
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, err := tasks.Connect(t.Context(), c.url(t))
			if err != nil {
				t.Fatal(err)
			}
			if got := one(t, Redis(client.Ping, 0)); got.Status != OK {
				t.Errorf("redis: got %+v, want ok", got)
			}
			if got := one(t, Memory(MemoryInfo(client))); got.Status != c.status || !strings.Contains(got.Detail+got.Error, c.memory) {
				t.Errorf("memory: got %+v, want %s with %q", got, c.status, c.memory)
			}
			if err := client.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestRedisDoesNotRespond(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	c, err := tasks.Connect(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	server.Freeze()
	got := one(t, Redis(c.Ping, 200*time.Millisecond)) // before Thaw
	server.Thaw()
	if got.Status != Failed {
		t.Errorf("a silent Redis: got %+v, want failed", got)
	}
	server.Kill()
	if got := one(t, Redis(c.Ping, 0)); got.Status != Failed {
		t.Errorf("a dead Redis: got %+v, want failed", got)
	}
}

func TestMemoryOfARealRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t, "maxmemory", "1gb")
	c, err := tasks.Connect(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got := one(t, Memory(MemoryInfo(c))); got.Status != OK || !strings.Contains(got.Detail, "of 1024 MB used") {
		t.Errorf("memory: got %+v, want ok, of 1024 MB used", got)
	}
}

func TestMemoryAlarms(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		used int
		want Status
	}{{0, OK}, {69, OK}, {70, Degraded}, {84, Degraded}, {85, Failed}, {120, Failed}} {
		info := fmt.Sprintf("# Memory\r\nused_memory:%d\r\nused_memory_human:x\r\nmaxmemory:%d\r\n", c.used<<20, 100<<20)
		got := one(t, Memory(func(context.Context) (string, error) { return info, nil }))
		if got.Status != c.want {
			t.Errorf("%d%%: got %+v, want %s", c.used, got, c.want)
		}
	}
}

func TestProxiesAndWorkers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		n    int
		err  error
		want Status
	}{{10, nil, OK}, {9, nil, Degraded}, {0, nil, Degraded}, {0, errors.New("gone"), Failed}} {
		got := one(t, Proxies(func(context.Context) (int, error) { return c.n, c.err }, func() int { return 10 }))
		if got.Status != c.want {
			t.Errorf("%d proxies, %v: got %+v, want %s", c.n, c.err, got, c.want)
		}
	}
	none := func(context.Context) ([]tasktype.Worker, error) { return nil, nil }
	if got := one(t, Workers(none, 0)); got.Status != Failed || !strings.Contains(got.Error, "muster worker") {
		t.Errorf("no workers: got %+v, want failed with advice", got)
	}
	list := func(context.Context) ([]tasktype.Worker, error) {
		return []tasktype.Worker{{Concurrency: 8, Active: 3}, {Concurrency: 4}}, nil
	}
	if got := one(t, Workers(list, 0)); got.Status != OK || got.Detail != "2 alive, 3 of 12 slots busy" {
		t.Errorf("workers: got %+v, want 2 alive, 3 of 12 slots busy", got)
	}
}

func TestAgentsCheckReportsUnavailableAgents(t *testing.T) {
	t.Parallel()
	var list []AgentState
	check := Agents(func(context.Context) ([]AgentState, error) { return list, nil }, "unavailable")
	ask := func() Result {
		r := &Registry{}
		r.Add(check)
		return r.Run(t.Context()).Checks[0]
	}
	if got := ask(); got.Status != OK || got.Detail != "none" {
		t.Errorf("without agents: got %+v, want ok", got)
	}
	list = []AgentState{{"one", "healthy", "an old error"}, {"two", "draining", ""}}
	if got := ask(); got.Status != OK || got.Detail != "1 draining, 1 healthy" {
		t.Errorf("with good agents: got %+v, want ok", got)
	}
	for i := range 7 {
		list = append(list, AgentState{fmt.Sprint("gone", i), "unavailable", "connection refused"})
	}
	got := ask()
	if got.Status != Degraded || !strings.Contains(got.Error, "gone0: connection refused") || !strings.Contains(got.Error, "and 2 more") || strings.Contains(got.Error, "gone6") {
		t.Errorf("got %+v, want degraded with five of the agents", got)
	}
}

func TestScrapesWithoutProgress(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		stalled []string
		err     error
		want    Status
		text    string
	}{
		{nil, nil, OK, "all make progress"},
		{[]string{"shop: no page for 3m", "news: no page for 5m"}, nil, Degraded, "shop: no page for 3m; news: no page for 5m"},
		{nil, errors.New("redis is away"), Failed, "redis is away"},
	} {
		r := &Registry{}
		r.Add(Scrapes(func(context.Context) ([]string, error) { return c.stalled, c.err }))
		if got := r.Run(t.Context()).Checks[0]; got.Status != c.want || !strings.Contains(got.Detail+got.Error, c.text) {
			t.Errorf("%v, %v: got %+v, want %s and %q", c.stalled, c.err, got, c.want, c.text)
		}
	}
}

// Without Redis, its memory usage is unknown; the check redis reports the connection error.
func TestMemoryWithoutRedis(t *testing.T) {
	t.Parallel()
	got := one(t, Memory(func(context.Context) (string, error) {
		return "", errors.New("dial tcp 127.0.0.1:6379: connect: connection refused")
	}))
	if got.Status != Failed || got.Error != "unknown: Redis does not respond; see the check redis" {
		t.Errorf("got %+v, want an unknown memory usage", got)
	}
}
