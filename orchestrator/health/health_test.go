package health

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/jobs/agent"
	"muster/tasks"
	"muster/tasks/embedded"
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
	panics := Check{Name: "x", Run: func(context.Context) (string, error) { panic("boom") }}
	depends := check("e", "fine", nil)
	depends.Needs = []string{"a", "c"}
	for _, c := range []struct {
		checks []Check
		want   Status
		last   string // status and error of the last check
	}{
		{nil, OK, ""},
		{[]Check{good}, OK, "ok "},
		{[]Check{half, good}, Degraded, "ok "},
		{[]Check{good, wrapped}, Degraded, "degraded ask: low"},
		{[]Check{bad, half, good}, Failed, "ok "},
		{[]Check{good, panics}, Failed, "failed panic: boom"},
		{[]Check{bad, good, depends}, Failed, "unknown see the check c"},
		{[]Check{half, good, depends}, Degraded, "ok "},
	} {
		got := Run(t.Context(), c.checks)
		if got.Status != c.want || len(got.Checks) != len(c.checks) {
			t.Errorf("%d checks: %s with %d results, want %s", len(c.checks), got.Status, len(got.Checks), c.want)
		}
		for i, result := range got.Checks {
			if last := string(result.Status) + " " + result.Error; result.Name != c.checks[i].Name || i == len(c.checks)-1 && last != c.last {
				t.Errorf("result %d is of %s, %s; want %s, at the end %s", i, result.Name, last, c.checks[i].Name, c.last)
			}
		}
	}
	if Degrade(nil) != nil {
		t.Error("a successful check became degraded")
	}
}

func TestChecksRunConcurrentlyWithTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		free := make(chan struct{})
		checks := []Check{{Name: "deaf", Timeout: time.Second, Run: func(context.Context) (string, error) {
			<-free
			return "back", nil
		}}}
		for _, name := range []string{"slow 1", "slow 2"} {
			checks = append(checks, Check{Name: name, Timeout: 3 * time.Second, Run: func(ctx context.Context) (string, error) {
				select {
				case <-time.After(2 * time.Second):
					return "at last", nil
				case <-ctx.Done():
					return "", ctx.Err()
				}
			}})
		}
		start := time.Now()
		got := Run(t.Context(), checks)
		if took := time.Since(start); took != 2*time.Second {
			t.Errorf("took %v, want the 2 s of the slow ones", took)
		}
		if c := got.Checks[0]; c.Status != Failed || c.Error != "no response within 1s" || c.Millis != 1000 {
			t.Errorf("deaf: %+v", c)
		}
		if c := got.Checks[1]; c.Status != OK || c.Detail != "at last" || c.Millis != 2000 {
			t.Errorf("slow: %+v", c)
		}
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		if c := Run(canceled, checks[1:2]).Checks[0]; c.Status != Failed {
			t.Errorf("canceled by the caller: got %+v, want failed", c)
		}
		close(free)
	})
}

// one runs a single check.
func one(t *testing.T, c Check) Result {
	t.Helper()
	return Run(t.Context(), []Check{c}).Checks[0]
}

func TestRedisResponds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		url    func(t *testing.T) string
		memory string
		status Status
	}{
		"redis":        {func(t *testing.T) string { return redistest.Server(t).URL() }, "MB used", OK},
		"without INFO": {func(t *testing.T) string { return redistest.Server(t).Managed() }, "unknown", OK},
		"embedded": {func(t *testing.T) string {
			s := testutil.Must(embedded.Start(embedded.Config{Dir: t.TempDir()}))(t)
			t.Cleanup(func() { _ = s.Close() })
			return s.URL()
		}, "MB used", OK},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := testutil.Must(tasks.Connect(t.Context(), c.url(t)))(t)
			if got := one(t, Redis(client.Writable, 0)); got.Status != OK {
				t.Errorf("redis: got %+v, want ok", got)
			}
			if got := one(t, Memory(MemoryInfo(client))); got.Status != c.status || !strings.Contains(got.Detail+got.Error, c.memory) {
				t.Errorf("memory: got %+v, want %s with %q", got, c.status, c.memory)
			}
			testutil.Ok(t, client.Close())
		})
	}
}

func TestRedisDoesNotRespond(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	c := testutil.Must(tasks.Connect(t.Context(), server.URL()))(t)
	defer c.Close()
	server.Freeze()
	got := one(t, Redis(c.Writable, 200*time.Millisecond)) // before Thaw
	server.Thaw()
	if got.Status != Failed {
		t.Errorf("a silent Redis: got %+v, want failed", got)
	}
	server.Kill()
	if got := one(t, Redis(c.Writable, 0)); got.Status != Failed {
		t.Errorf("a dead Redis: got %+v, want failed", got)
	}
}

func TestMemoryOfARealRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t, "maxmemory", "1gb")
	c := testutil.Must(tasks.Connect(t.Context(), server.URL()))(t)
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
	var list []agent.Agent
	check := Agents(func(context.Context) ([]agent.Agent, error) { return list, nil })
	ask := func() Result {
		return one(t, check)
	}
	if got := ask(); got.Status != OK || got.Detail != "none" {
		t.Errorf("without agents: got %+v, want ok", got)
	}
	list = []agent.Agent{{Name: "one", State: "healthy", Health: "an old error"}, {Name: "two", State: "draining"}}
	if got := ask(); got.Status != OK || got.Detail != "1 draining, 1 healthy" {
		t.Errorf("with good agents: got %+v, want ok", got)
	}
	for i := range 7 {
		list = append(list, agent.Agent{Name: fmt.Sprint("gone", i), State: "unavailable", Health: "connection refused"})
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
		if got := one(t, Scrapes(func(context.Context) ([]string, error) { return c.stalled, c.err })); got.Status != c.want || !strings.Contains(got.Detail+got.Error, c.text) {
			t.Errorf("%v, %v: got %+v, want %s and %q", c.stalled, c.err, got, c.want, c.text)
		}
	}
}
