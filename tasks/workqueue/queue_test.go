package workqueue_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"muster/internal/testutil"
	"muster/tasks/redistest"
	"muster/tasks/workqueue"
)

func TestMain(m *testing.M) {
	if url := os.Getenv("WORKQUEUE_CRASH_CHILD"); url != "" {
		if err := crashChild(url); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	// Enough to find errors, on two kinds of Redis and two cores; more with -rapid.checks.
	flag.Parse()
	set := map[string]string{"rapid.checks": "30"}
	if testing.Short() { // rapid divides the checks by five, the steps by two
		set = map[string]string{"rapid.checks": "150", "rapid.steps": "60"}
	}
	for name, value := range set {
		if f := flag.Lookup(name); f.Value.String() != f.DefValue {
			continue
		}
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	redistest.Main(m, func() error { return goleak.Find() })
}

// kit is a queue under test.
type kit struct {
	*workqueue.Queue
	t   *testing.T
	rdb redis.UniversalClient
}

func newKit(t *testing.T, rdb redis.UniversalClient, cfg workqueue.Config) *kit {
	t.Helper()
	return &kit{workqueue.New(rdb, "q:"+t.Name(), cfg), t, rdb}
}

func (k *kit) enqueue(ids ...string) int {
	k.t.Helper()
	items := make([]workqueue.Item, len(ids))
	for i, id := range ids {
		items[i] = workqueue.Item{ID: id, Kind: "test", Payload: []byte(`{"of":"` + id + `"}`)}
	}
	n, err := k.Enqueue(k.t.Context(), items...)
	testutil.Ok(k.t, err)
	return n
}

func (k *kit) lease(worker string, n int) []workqueue.Leased {
	k.t.Helper()
	got, err := k.Lease(k.t.Context(), worker, n)
	testutil.Ok(k.t, err)
	return got
}

func (k *kit) leaseOne(worker string) workqueue.Leased {
	k.t.Helper()
	got := k.lease(worker, 1)
	if len(got) != 1 {
		k.t.Fatalf("leased %d items, want 1", len(got))
	}
	return got[0]
}

func (k *kit) settle(l workqueue.Leased, o workqueue.Outcome) {
	k.t.Helper()
	testutil.Ok(k.t, k.Settle(k.t.Context(), l, o))
}

func (k *kit) retry(l workqueue.Leased, after time.Duration) workqueue.State {
	k.t.Helper()
	s, err := k.Retry(k.t.Context(), l, errors.New("no luck"), after, true)
	testutil.Ok(k.t, err)
	return s
}

func (k *kit) get(id string) workqueue.Info {
	k.t.Helper()
	got, err := k.Get(k.t.Context(), id)
	if err != nil || len(got) != 1 {
		k.t.Fatalf("get %s: got %d items, %v; want 1", id, len(got), err)
	}
	return got[0]
}

// wantStats compares "queued in_progress done skipped error", and recounts.
func (k *kit) wantStats(want string) {
	k.t.Helper()
	s, err := k.Stats(k.t.Context())
	testutil.Ok(k.t, err)
	got := fmt.Sprint(s.Queued, s.InProgress, s.Done, s.Skipped, s.Error)
	if got != want {
		k.t.Fatalf("stats are %s, want %s", got, want)
	}
	if s.Total != s.Queued+s.InProgress+s.Done+s.Skipped+s.Error {
		k.t.Fatalf("got total %d, want the sum of %+v", s.Total, s)
	}
	if _, err := k.Verify(k.t.Context()); err != nil {
		k.t.Fatal(err)
	}
}

func (k *kit) eventually(what string, fact func() bool) {
	k.t.Helper()
	testutil.Eventually(k.t, what, fact)
}

func ids(ls []workqueue.Leased) string {
	var out []string
	for _, l := range ls {
		out = append(out, l.ID)
	}
	return strings.Join(out, " ")
}

func numbered(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("item-%05d", n-i) // names in another order than the items
	}
	return out
}

// short is a config whose leases end before a test does.
var short = workqueue.Config{LeaseTTL: 150 * time.Millisecond}

// every runs a test with a queue on each kind of Redis.
func every(t *testing.T, cfg workqueue.Config, test func(k *kit)) {
	t.Helper()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) { test(newKit(t, rdb, cfg)) })
}

// A queue uses Redis's clock, and never the clocks of workers.
func TestClockJumps(t *testing.T) {
	t.Parallel()
	rdb, jump := redistest.Clock(t)
	k := newKit(t, rdb, workqueue.Config{LeaseTTL: time.Minute})
	k.enqueue("a", "b")
	k.leaseOne("w")
	k.retry(k.leaseOne("w"), time.Minute)
	jump(72 * time.Hour) // leases end, delayed items are ready
	if got := k.lease("w3", 9); ids(got) != "a b" || got[0].Attempts != 1 {
		t.Fatalf("leased %s, want a b, the first with an attempt; %+v", ids(got), got)
	}
	// The time of a worker that is a day ahead of Redis, or late by a day, is not used.
	skewed, late := k.get("a"), time.Now().Add(-48*time.Hour)
	lease := workqueue.Leased{Item: skewed.Item, Token: skewed.Token, Worker: "w3", Expires: late}
	if lost, err := k.Heartbeat(t.Context(), lease); err != nil || len(lost) != 0 {
		t.Fatal(lost, err)
	}
	k.settle(lease, workqueue.Done())
	k.wantStats("0 1 1 0 0")
}

func TestNewReportsBadNames(t *testing.T) {
	t.Parallel()
	rdb := redistest.Mini(t)
	for _, q := range []*workqueue.Queue{
		workqueue.New(rdb, "", workqueue.Config{}),
		workqueue.New(rdb, "a{b}", workqueue.Config{}),
		workqueue.New(rdb, "a b", workqueue.Config{}),
		workqueue.New(rdb, "a", workqueue.Config{Namespace: "{x}"}),
		workqueue.New(rdb, "a", workqueue.Config{MaxAttempts: -1}),
		workqueue.New(rdb, "a", workqueue.Config{LeaseTTL: -time.Second}),
		workqueue.New(rdb, "a", workqueue.Config{Backoff: workqueue.Backoff{Base: -1}}),
	} {
		if _, err := q.Stats(t.Context()); err == nil {
			t.Errorf("stats of queue %q: got nil, want an error", q.Name())
		}
		if err := q.Settle(t.Context(), workqueue.Leased{}, workqueue.Done()); err == nil {
			t.Errorf("settle in queue %q: got nil, want an error", q.Name())
		}
	}
}

func TestBackoff(t *testing.T) {
	t.Parallel()
	for n, base := range map[int]time.Duration{1: time.Minute, 2: 2 * time.Minute, 3: 4 * time.Minute, 7: time.Hour, 10_000: time.Hour} {
		seen := map[time.Duration]bool{}
		for range 1000 {
			d := workqueue.DefaultBackoff.Delay(n)
			if d < base || d > base+15*time.Second {
				t.Fatalf("attempt %d waits %v, want %v to %v", n, d, base, base+15*time.Second)
			}
			seen[d] = true
		}
		if len(seen) < 2 {
			t.Errorf("attempt %d: got no jitter, want some", n)
		}
	}
	two := workqueue.Backoff{Base: 2 * time.Second, Max: time.Minute}
	for n, want := range []time.Duration{1: 2 * time.Second, 2: 4 * time.Second, 3: 8 * time.Second, 10: time.Minute} {
		if got := two.Delay(n); want > 0 && got != want {
			t.Errorf("attempt %d waits %v, want %v", n, got, want)
		}
	}
}
