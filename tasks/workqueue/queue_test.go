package workqueue_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"muster/internal/testutil"
	"muster/tasks/limit"
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
	// Enough to find what is wrong, on two kinds of Redis and two cores; more
	// with -rapid.checks.
	if err := flag.Set("rapid.checks", "30"); err != nil {
		panic(err)
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
	if err != nil {
		k.t.Fatal(err)
	}
	return n
}

func (k *kit) lease(worker string, n int) []workqueue.Leased {
	k.t.Helper()
	got, err := k.Lease(k.t.Context(), worker, n)
	if err != nil {
		k.t.Fatal(err)
	}
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
	if err := k.Settle(k.t.Context(), l, o); err != nil {
		k.t.Fatal(err)
	}
}

func (k *kit) retry(l workqueue.Leased, after time.Duration) workqueue.State {
	k.t.Helper()
	s, err := k.Retry(k.t.Context(), l, errors.New("no luck"), after, true)
	if err != nil {
		k.t.Fatal(err)
	}
	return s
}

func (k *kit) get(id string) workqueue.Info {
	k.t.Helper()
	got, err := k.Get(k.t.Context(), id)
	if err != nil || len(got) != 1 {
		k.t.Fatalf("get %s: %d items, %v", id, len(got), err)
	}
	return got[0]
}

// wantStats compares "queued in_progress done skipped error", and recounts.
func (k *kit) wantStats(want string) {
	k.t.Helper()
	s, err := k.Stats(k.t.Context())
	if err != nil {
		k.t.Fatal(err)
	}
	got := fmt.Sprint(s.Queued, s.InProgress, s.Done, s.Skipped, s.Error)
	if got != want {
		k.t.Fatalf("stats are %s, want %s", got, want)
	}
	if s.Total != s.Queued+s.InProgress+s.Done+s.Skipped+s.Error {
		k.t.Fatalf("total is %d in %+v", s.Total, s)
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
		out[i] = fmt.Sprintf("item-%05d", n-i) // names in no helpful order
	}
	return out
}

// short is a config whose leases end before a test does.
var short = workqueue.Config{LeaseTTL: 150 * time.Millisecond}

// The behaviour of a queue, each row on a real Redis and on miniredis.
var behaviour = []struct {
	name string
	cfg  workqueue.Config
	test func(k *kit)
}{
	{"enqueue reports new", workqueue.Config{}, func(k *kit) {
		if n := k.enqueue("x"); n != 1 {
			k.t.Fatalf("%d new, want 1", n)
		}
		k.wantStats("1 0 0 0 0")
	}},
	{"enqueue again reports present", workqueue.Config{}, func(k *kit) {
		k.enqueue("x")
		if n := k.enqueue("x", "x"); n != 0 {
			k.t.Fatalf("%d new, want 0", n)
		}
		k.wantStats("1 0 0 0 0")
	}},
	{"enqueue again keeps the payload", workqueue.Config{}, func(k *kit) {
		ctx := k.t.Context()
		_, _ = k.Enqueue(ctx, workqueue.Item{ID: "x", Payload: []byte("P")})
		_, _ = k.Enqueue(ctx, workqueue.Item{ID: "x", Payload: []byte("Q"), Priority: 9})
		if got := k.leaseOne("w"); string(got.Payload) != "P" {
			k.t.Fatalf("payload is %q, want P", got.Payload)
		}
	}},
	{"enqueue of a terminal item changes nothing", workqueue.Config{}, func(k *kit) {
		for i, o := range []workqueue.Outcome{workqueue.Done(), workqueue.Skipped("s"), workqueue.Failed(errors.New("e"))} {
			id := fmt.Sprint(i)
			k.enqueue(id)
			k.settle(k.leaseOne("w"), o)
			if k.enqueue(id) != 0 || len(k.lease("w", 9)) != 0 {
				k.t.Fatalf("item in %s came back", o.State)
			}
		}
		k.wantStats("0 0 1 1 1")
	}},
	{"one of many concurrent enqueues is new", workqueue.Config{}, func(k *kit) {
		added := make([]int, 50)
		var wg sync.WaitGroup
		for i := range added {
			wg.Go(func() { added[i], _ = k.Enqueue(k.t.Context(), workqueue.Item{ID: "x"}) })
		}
		wg.Wait()
		if i := slices.Index(added, 1); i < 0 || slices.Contains(added[i+1:], 1) {
			k.t.Fatalf("new counts are %v, want one 1", added)
		}
	}},
	{"lease is oldest first", workqueue.Config{}, func(k *kit) {
		names := numbered(10)
		k.enqueue(names...)
		if got, want := ids(k.lease("w", 3)), strings.Join(names[:3], " "); got != want {
			k.t.Fatalf("leased %s, want %s", got, want)
		}
		k.wantStats("7 3 0 0 0")
	}},
	{"lease goes by priority first", workqueue.Config{}, func(k *kit) {
		_, err := k.Enqueue(k.t.Context(),
			workqueue.Item{ID: "low", Priority: -100}, workqueue.Item{ID: "normal"},
			workqueue.Item{ID: "high", Priority: 100}, workqueue.Item{ID: "normal2"},
			workqueue.Item{ID: "host", Priority: 1, ResourceKeys: []string{"h"}})
		if err != nil {
			k.t.Fatal(err)
		}
		if got, want := ids(k.lease("w", 5)), "high host normal normal2 low"; got != want {
			k.t.Fatalf("leased %s, want %s", got, want)
		}
	}},
	{"empty queue", workqueue.Config{}, func(k *kit) {
		if got := k.lease("w", 3); len(got) != 0 {
			k.t.Fatalf("leased %v of nothing", got)
		}
		k.wantStats("0 0 0 0 0")
		if lost, err := k.Heartbeat(k.t.Context()); len(lost) != 0 || err != nil {
			k.t.Fatalf("heartbeat of nothing: %v, %v", lost, err)
		}
	}},
	{"concurrent lessees share no item", workqueue.Config{}, func(k *kit) {
		k.enqueue(numbered(200)...)
		var mu sync.Mutex
		seen := map[string]int{}
		var wg sync.WaitGroup
		for w := range 8 {
			wg.Go(func() {
				for {
					got, err := k.Lease(k.t.Context(), fmt.Sprint("w", w%2), 3)
					if err != nil || len(got) == 0 {
						return
					}
					mu.Lock()
					for _, l := range got {
						seen[l.ID]++
					}
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		for id, n := range seen {
			if n != 1 {
				k.t.Errorf("%s was leased %d times", id, n)
			}
		}
		if len(seen) != 200 {
			k.t.Fatalf("leased %d of 200", len(seen))
		}
	}},
	{"a worker is not given what it holds", workqueue.Config{}, func(k *kit) {
		k.enqueue("a", "b")
		if got := ids(k.lease("w", 1)) + ids(k.lease("w", 1)) + ids(k.lease("w", 1)); got != "ab" {
			k.t.Fatalf("leased %q, want ab", got)
		}
	}},
	{"limit of zero or below leases nothing", workqueue.Config{}, func(k *kit) {
		k.enqueue("a")
		if got := len(k.lease("w", 0)) + len(k.lease("w", -1)); got != 0 {
			k.t.Fatalf("leased %d", got)
		}
	}},
	{"more than one script's worth", workqueue.Config{}, func(k *kit) {
		names := numbered(1300)
		k.enqueue(names...)
		if got := ids(k.lease("w", 1200)); got != strings.Join(names[:1200], " ") {
			k.t.Fatal("1200 items are not leased in order")
		}
		k.wantStats("100 1200 0 0 0")
	}},
	{"an expired lease is handed out again", short, func(k *kit) {
		k.enqueue("a")
		first := k.leaseOne("w1")
		var again []workqueue.Leased
		k.eventually("the lease to expire", func() bool { again = k.lease("w2", 1); return len(again) == 1 })
		if again[0].ID != "a" || again[0].Attempts != 1 || again[0].Token == first.Token {
			k.t.Fatalf("got %+v after %+v", again[0], first)
		}
		if !time.Now().After(first.Expires.Add(-50 * time.Millisecond)) {
			k.t.Fatal("handed out before its time")
		}
	}},
	{"a lease holds until it expires", workqueue.Config{}, func(k *kit) {
		k.enqueue("a")
		k.leaseOne("w1")
		if got := k.lease("w2", 1); len(got) != 0 {
			k.t.Fatalf("leased %v twice", got)
		}
	}},
	{"heartbeats keep a lease", workqueue.Config{LeaseTTL: 2 * time.Second}, func(k *kit) {
		k.enqueue("a")
		l := k.leaseOne("w1")
		end := l.Expires.Add(600 * time.Millisecond)
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for time.Now().Before(end) {
			<-tick.C
			if lost, err := k.Heartbeat(k.t.Context(), l); len(lost) > 0 || err != nil {
				k.t.Fatalf("lost %v, %v", lost, err)
			}
			if got := k.lease("w2", 1); len(got) != 0 {
				k.t.Fatal("leased in spite of heartbeats")
			}
		}
	}},
	{"heartbeat extends by the TTL of its own leases", workqueue.Config{LeaseTTL: time.Minute}, func(k *kit) {
		k.enqueue("a", "b")
		a, b := k.leaseOne("w1"), k.leaseOne("w2")
		// As if both were leased long ago.
		for _, id := range []string{"a", "b"} {
			key := "muster:wq:{q:" + k.t.Name() + "}:leased"
			k.rdb.ZIncrBy(k.t.Context(), key, -30_000, id)
		}
		before := k.get("b").Expires
		if _, err := k.Heartbeat(k.t.Context(), a); err != nil {
			k.t.Fatal(err)
		}
		left := time.Until(k.get("a").Expires)
		if left < 55*time.Second || left > 61*time.Second {
			k.t.Fatalf("lease has %v left, want a minute", left)
		}
		if d := k.get("b").Expires.Sub(before).Abs(); d > 2*time.Second {
			k.t.Fatalf("the other worker's lease moved by %v", d)
		}
		_ = b
	}},
	{"settle done clears the lease", workqueue.Config{}, func(k *kit) {
		k.enqueue("a")
		k.settle(k.leaseOne("w"), workqueue.Done())
		got := k.get("a")
		if got.State != workqueue.StateDone || got.Worker != "" || !got.Expires.IsZero() || got.Note != "" {
			k.t.Fatalf("got %+v", got)
		}
		k.wantStats("0 0 1 0 0")
	}},
	{"reasons and errors are kept", workqueue.Config{}, func(k *kit) {
		k.enqueue("a", "b")
		k.settle(k.leaseOne("w"), workqueue.Skipped("robots.txt"))
		k.settle(k.leaseOne("w"), workqueue.Failed(errors.New("gone")))
		if a, b := k.get("a"), k.get("b"); a.State != workqueue.StateSkipped || a.Note != "robots.txt" ||
			b.State != workqueue.StateError || b.Note != "gone" {
			k.t.Fatalf("got %+v and %+v", a, b)
		}
		k.wantStats("0 0 0 1 1")
	}},
	{"no other outcome", workqueue.Config{}, func(k *kit) {
		k.enqueue("a")
		l := k.leaseOne("w")
		for _, s := range []workqueue.State{"bogus", "", workqueue.StateQueued} {
			if err := k.Settle(k.t.Context(), l, workqueue.Outcome{State: s}); err == nil {
				k.t.Errorf("state %q was accepted", s)
			}
		}
		k.wantStats("0 1 0 0 0")
	}},
	{"an unknown item is no failure", workqueue.Config{}, func(k *kit) {
		l := workqueue.Leased{Item: workqueue.Item{ID: "nobody"}, Token: 1}
		k.settle(l, workqueue.Done())
		if s := k.retry(l, 0); s != "" {
			k.t.Fatalf("state is %q", s)
		}
		k.wantStats("0 0 0 0 0")
	}},
	{"a lost lease changes nothing", workqueue.Config{}, func(k *kit) {
		k.enqueue("a")
		old := k.leaseOne("w1")
		if n, err := k.ExpireWorker(k.t.Context(), "w1"); n != 1 || err != nil {
			k.t.Fatalf("expired %d, %v", n, err)
		}
		now := k.leaseOne("w2")
		err := k.Settle(k.t.Context(), old, workqueue.Done().With(nil, []byte("out")))
		if !errors.Is(err, workqueue.ErrLeaseLost) {
			k.t.Fatalf("got %v, want ErrLeaseLost", err)
		}
		if _, err := k.Retry(k.t.Context(), old, nil, 0, true); !errors.Is(err, workqueue.ErrLeaseLost) {
			k.t.Fatalf("got %v, want ErrLeaseLost", err)
		}
		if lost, _ := k.Heartbeat(k.t.Context(), old, now); len(lost) != 1 || lost[0].Token != old.Token {
			k.t.Fatalf("lost %v", lost)
		}
		if err := k.Return(k.t.Context(), old); err != nil {
			k.t.Fatal(err)
		}
		if got := k.get("a"); got.Worker != "w2" || got.State != workqueue.StateInProgress {
			k.t.Fatalf("got %+v", got)
		}
		if n, _ := k.Outputs().Len(k.t.Context()); n != 0 {
			k.t.Fatalf("%d outputs of a lost lease", n)
		}
		k.wantStats("0 1 0 0 0")
	}},
	{"a terminal item stays", workqueue.Config{}, func(k *kit) {
		k.enqueue("a")
		l := k.leaseOne("w")
		k.settle(l, workqueue.Done())
		if err := k.Settle(k.t.Context(), l, workqueue.Skipped("late")); !errors.Is(err, workqueue.ErrLeaseLost) {
			k.t.Fatalf("got %v", err)
		}
		if _, err := k.Retry(k.t.Context(), l, nil, 0, true); !errors.Is(err, workqueue.ErrLeaseLost) {
			k.t.Fatalf("got %v", err)
		}
		_ = k.Return(k.t.Context(), l)
		k.wantStats("0 0 1 0 0")
	}},
	{"every call can be repeated", workqueue.Config{}, func(k *kit) {
		k.enqueue("a", "b", "c")
		a, b, c := k.leaseOne("w"), k.leaseOne("w"), k.leaseOne("w")
		for range 2 {
			k.settle(a, workqueue.Done().With([]byte("r"), []byte("1"), []byte("2")))
			if s := k.retry(b, time.Hour); s != workqueue.StateQueued {
				k.t.Fatalf("state %s", s)
			}
			if err := k.Return(k.t.Context(), c); err != nil {
				k.t.Fatal(err)
			}
		}
		k.wantStats("2 0 1 0 0")
		if n, _ := k.Outputs().Len(k.t.Context()); n != 2 {
			k.t.Fatalf("%d outputs, want 2", n)
		}
		if b := k.get("b"); b.Attempts != 1 {
			k.t.Fatalf("%d attempts, want 1", b.Attempts)
		}
	}},
	{"failed runs end in error", workqueue.Config{MaxAttempts: 2}, func(k *kit) {
		k.enqueue("a")
		if s := k.retry(k.leaseOne("w"), 0); s != workqueue.StateQueued || k.get("a").Attempts != 1 {
			k.t.Fatalf("after one: %s, %+v", s, k.get("a"))
		}
		if s := k.retry(k.leaseOne("w"), 0); s != workqueue.StateError {
			k.t.Fatalf("after two: %s", s)
		}
		if got := k.get("a"); got.Attempts != 2 || got.Note != "no luck" {
			k.t.Fatalf("got %+v", got)
		}
		k.wantStats("0 0 0 0 1")
	}},
	{"an item's own limit of attempts", workqueue.Config{MaxAttempts: 2}, func(k *kit) {
		_, _ = k.Enqueue(k.t.Context(), workqueue.Item{ID: "a", MaxAttempts: 1})
		if s := k.retry(k.leaseOne("w"), 0); s != workqueue.StateError {
			k.t.Fatalf("got %s", s)
		}
	}},
	{"an attempt that does not count", workqueue.Config{MaxAttempts: 1}, func(k *kit) {
		k.enqueue("a")
		s, err := k.Retry(k.t.Context(), k.leaseOne("w"), errors.New("busy"), 0, false)
		if err != nil || s != workqueue.StateQueued || k.get("a").Attempts != 0 {
			k.t.Fatalf("got %s, %v, %+v", s, err, k.get("a"))
		}
	}},
	{"back-off delays", workqueue.Config{}, func(k *kit) {
		k.enqueue("a")
		const delay = 300 * time.Millisecond
		lease := k.leaseOne("w")
		began := time.Now()
		k.retry(lease, delay)
		s, _ := k.Stats(k.t.Context())
		available := k.get("a").Available
		got := k.lease("w", 1)
		if time.Since(began) < delay && (len(got) != 0 || s.Delayed != 1 || available.IsZero()) {
			k.t.Fatalf("leased %v, %+v", got, s)
		}
		k.eventually("the delay to pass", func() bool { return len(got) == 1 || len(k.lease("w", 1)) == 1 })
		if got := k.get("a"); !got.Available.IsZero() {
			k.t.Fatalf("still marked %v", got.Available)
		}
	}},
	{"not before its time", workqueue.Config{}, func(k *kit) {
		_, _ = k.Enqueue(k.t.Context(), workqueue.Item{ID: "later", NotBefore: time.Now().Add(time.Hour)},
			workqueue.Item{ID: "past", NotBefore: time.Now().Add(-time.Hour)})
		if got := ids(k.lease("w", 9)); got != "past" {
			k.t.Fatalf("leased %q", got)
		}
		k.wantStats("1 1 0 0 0")
	}},
	{"a poison item ends in error", workqueue.Config{MaxAttempts: 3}, func(k *kit) {
		k.enqueue("a")
		for i := range 3 {
			if l := k.leaseOne("w"); l.Attempts != i {
				k.t.Fatalf("attempts %d, want %d", l.Attempts, i)
			}
			if _, err := k.ExpireWorker(k.t.Context(), "w"); err != nil {
				k.t.Fatal(err)
			}
		}
		if got := k.get("a"); got.State != workqueue.StateError || !strings.Contains(got.Note, "lease expired") {
			k.t.Fatalf("got %+v", got)
		}
		k.wantStats("0 0 0 0 1")
	}},
	{"expiry by time ends in error too", workqueue.Config{MaxAttempts: 1, LeaseTTL: 30 * time.Millisecond}, func(k *kit) {
		k.enqueue("a")
		k.leaseOne("w")
		k.eventually("the poison item to end", func() bool {
			return len(k.lease("w", 1)) == 0 && k.get("a").State == workqueue.StateError
		})
		k.wantStats("0 0 0 0 1")
	}},
	{"strays go back", workqueue.Config{}, func(k *kit) {
		k.enqueue("a", "b", "c")
		held := k.lease("w", 1)
		k.lease("w", 1) // the answer is lost
		k.lease("other", 1)
		if n, err := k.ReturnStrays(k.t.Context(), "w", held...); n != 1 || err != nil {
			k.t.Fatalf("%d went back, %v", n, err)
		}
		k.wantStats("1 2 0 0 0")
		if l := k.leaseOne("w"); l.ID != "b" || l.Attempts != 0 {
			k.t.Fatalf("leased %+v", l)
		}
	}},
	{"returned items stand in their old place", workqueue.Config{}, func(k *kit) {
		k.enqueue("a", "b", "c")
		got := k.lease("w", 2)
		if err := k.Return(k.t.Context(), got...); err != nil {
			k.t.Fatal(err)
		}
		if again := k.lease("w", 3); ids(again) != "a b c" || again[0].Attempts != 0 {
			k.t.Fatalf("leased %s", ids(again))
		}
	}},
	{"payloads come back as they were", workqueue.Config{}, func(k *kit) {
		big := append(append([]byte(`{"a":[1,{"b":null}],"ü":"\u0000 €","n":12345678901234567,"e":[],"s":"`),
			bytes.Repeat([]byte("x"), 1<<20)...), `"}`...)
		for i, p := range [][]byte{big, nil, []byte("not json\nat all"), {0, 255, '\n'}} {
			item := workqueue.Item{ID: fmt.Sprint(i), Kind: "k", Payload: p, ResourceKeys: []string{"h:ü", "r"},
				Labels: map[string]string{"a": "b\nc"}, Priority: -3, MaxAttempts: 7}
			if _, err := k.Enqueue(k.t.Context(), item); err != nil {
				k.t.Fatal(err)
			}
			got := k.leaseOne("w")
			if !bytes.Equal(got.Payload, p) || got.Kind != "k" || !slices.Equal(got.ResourceKeys, item.ResourceKeys) ||
				!maps.Equal(got.Labels, item.Labels) {
				k.t.Fatalf("got %.200q for %.200q", got.Payload, p)
			}
			if info := k.get(item.ID); info.Priority != -3 || info.MaxAttempts != 7 || !bytes.Equal(info.Payload, p) {
				k.t.Fatalf("got %+v", info.Item)
			}
		}
	}},
	{"bad items are refused, and nothing is added", workqueue.Config{MaxPayload: 100}, func(k *kit) {
		for _, bad := range []workqueue.Item{
			{}, {ID: strings.Repeat("x", 10<<20)}, {ID: "a\xff"}, {ID: "a\x00b"}, {ID: "a", Payload: make([]byte, 101)},
			{ID: "a", Priority: 101}, {ID: "a", MaxAttempts: -1}, {ID: "a", Kind: "\xff"},
			{ID: "a", ResourceKeys: []string{""}}, {ID: "a", ResourceKeys: []string{"a\x1fb"}},
			{ID: "a", ResourceKeys: make([]string, 9)}, {ID: "a", Labels: map[string]string{"x": "\xff"}},
			{ID: "a", Kind: strings.Repeat("k", 100<<10)},
		} {
			n, err := k.Enqueue(k.t.Context(), workqueue.Item{ID: "good"}, bad)
			if err == nil || len(err.Error()) > 400 {
				k.t.Errorf("%.100q: got %d, %v", bad.ID, n, err)
			}
		}
		s, _ := k.Stats(k.t.Context())
		if s.Total > 1 { // the good one may be in before an item too long to encode is met
			k.t.Fatalf("%+v", s)
		}
	}},
	{"lease by id", workqueue.Config{}, func(k *kit) {
		ctx := k.t.Context()
		k.enqueue("a", "b", "c", "d", "e")
		k.settle(k.leaseOne("w"), workqueue.Done()) // a
		k.leaseOne("other")                         // b
		k.retry(k.leaseOne("w"), 30*time.Minute)    // c
		got, next, remaining, err := k.LeaseIDs(ctx, "me", []string{"a", "b", "c", "d", "d", "unknown"})
		if err != nil || ids(got) != "d" || remaining != 3 {
			k.t.Fatalf("leased %q, remaining %d, %v", ids(got), remaining, err)
		}
		if in := time.Until(next); in > 2*time.Second {
			k.t.Fatalf("next in %v, but who has b may give it back at any time", in)
		}
		k.settle(got[0], workqueue.Done())
		if got := ids(k.lease("w", 9)); got != "e" {
			k.t.Fatalf("leased %q, want e", got)
		}
		if _, err := k.ExpireWorker(ctx, "other"); err != nil {
			k.t.Fatal(err)
		}
		if got, _, _, _ := k.LeaseIDs(ctx, "me", []string{"b"}); ids(got) != "b" || got[0].Attempts != 1 {
			k.t.Fatalf("leased %q", ids(got))
		}
		k.wantStats("1 2 2 0 0")
	}},
	{"lease by id takes what has come due", workqueue.Config{LeaseTTL: 50 * time.Millisecond}, func(k *kit) {
		k.enqueue("a", "b")
		k.retry(k.leaseOne("w"), 50*time.Millisecond)
		k.leaseOne("w")
		seen := map[string]bool{}
		k.eventually("both to come due", func() bool {
			got, _, _, err := k.LeaseIDs(k.t.Context(), "me", []string{"a", "b"})
			for _, l := range got {
				seen[l.ID] = true
				k.settle(l, workqueue.Done())
			}
			return err == nil && len(seen) == 2
		})
		k.wantStats("0 0 2 0 0")
	}},
	{"budgets pass over lanes", workqueue.Config{}, func(k *kit) {
		var items []workqueue.Item
		for i := range 20 {
			items = append(items, workqueue.Item{ID: fmt.Sprintf("slow%02d", i), ResourceKeys: []string{"host:slow", "r"}})
		}
		for i := range 6 {
			items = append(items, workqueue.Item{ID: fmt.Sprintf("fast%d", i), ResourceKeys: []string{fmt.Sprint("host:", i%3)}})
		}
		items = append(items, workqueue.Item{ID: "free1"}, workqueue.Item{ID: "free2"})
		if _, err := k.Enqueue(k.t.Context(), items...); err != nil {
			k.t.Fatal(err)
		}
		got, err := k.LeaseWithin(k.t.Context(), "w", 100, workqueue.Budget{Default: 1, Left: map[string]int{"host:slow": 2, "r": 5, "host:2": 0}})
		if err != nil || ids(got.Items) != "slow00 slow01 fast0 fast1 free1 free2" || !got.PassedOver {
			k.t.Fatalf("leased %s, %+v, %v", ids(got.Items), got, err)
		}
		got, _ = k.LeaseWithin(k.t.Context(), "w", 3, workqueue.Budget{Default: -1, Left: map[string]int{"r": 0}})
		if ids(got.Items) != "fast2 fast3 fast4" {
			k.t.Fatalf("leased %s", ids(got.Items))
		}
		k.wantStats("19 9 0 0 0")
	}},
	{"lanes keep the order among them", workqueue.Config{}, func(k *kit) {
		var items []workqueue.Item
		var want []string
		for i := range 300 {
			id := fmt.Sprint("i", i)
			items = append(items, workqueue.Item{ID: id, ResourceKeys: []string{fmt.Sprint("h", i*7%130)}})
			want = append(want, id)
		}
		if _, err := k.Enqueue(k.t.Context(), items...); err != nil {
			k.t.Fatal(err)
		}
		var got []string
		for len(got) < 300 {
			ls := k.lease("w", 37)
			if len(ls) == 0 {
				break
			}
			got = append(got, strings.Fields(ids(ls))...)
		}
		if !slices.Equal(got, want) {
			k.t.Fatalf("leased %v", got)
		}
	}},
	{"pause and resume", workqueue.Config{}, func(k *kit) {
		ctx := k.t.Context()
		k.enqueue("a")
		if changed, err := k.Pause(ctx); !changed || err != nil {
			k.t.Fatal(changed, err)
		}
		if changed, _ := k.Pause(ctx); changed {
			k.t.Fatal("paused twice")
		}
		got, next, remaining, err := k.LeaseIDs(ctx, "w", []string{"a"})
		if len(k.lease("w", 1))+len(got) != 0 || next.IsZero() || remaining != 1 || err != nil {
			k.t.Fatalf("leased from a paused queue: %v, %v, %d, %v", got, next, remaining, err)
		}
		if s, _ := k.Stats(ctx); !s.Paused {
			k.t.Fatalf("%+v", s)
		}
		if changed, err := k.Resume(ctx); !changed || err != nil {
			k.t.Fatal(changed, err)
		}
		k.leaseOne("w")
	}},
	{"requeue is the way back", workqueue.Config{MaxAttempts: 1}, func(k *kit) {
		ctx := k.t.Context()
		k.enqueue("a", "b", "c")
		k.retry(k.leaseOne("w"), 0)
		k.settle(k.leaseOne("w"), workqueue.Done().With([]byte("r")))
		k.retry(k.leaseOne("w"), 0)
		want := func(what string, got []string, err error, ids ...string) {
			k.t.Helper()
			if err != nil || !slices.Equal(got, ids) {
				k.t.Fatalf("%s: got %v, %v", what, got, err)
			}
		}
		got, err := k.Requeue(ctx, workqueue.RequeueOptions{DryRun: true})
		want("dry run", got, err, "a", "c")
		k.wantStats("0 0 1 0 2")
		got, err = k.Requeue(ctx, workqueue.RequeueOptions{MaxRetried: 1})
		want("first", got, err, "a", "c")
		k.wantStats("2 0 1 0 0")
		l := k.leaseOne("w")
		if l.ID != "a" || l.Attempts != 0 || l.Retried != 1 {
			k.t.Fatalf("leased %+v", l)
		}
		k.retry(l, 0)
		got, err = k.Requeue(ctx, workqueue.RequeueOptions{MaxRetried: 1})
		want("past its retries", got, err)
		got, err = k.Requeue(ctx, workqueue.RequeueOptions{IDs: []string{"a", "b", "nobody"}})
		want("by id", got, err, "a")
		got, err = k.Requeue(ctx, workqueue.RequeueOptions{IDs: []string{"b"}, States: []workqueue.State{workqueue.StateDone}})
		want("a done one", got, err, "b")
		if info := k.get("b"); info.Result != nil {
			k.t.Fatalf("result %q of a requeued item", info.Result)
		}
		k.wantStats("3 0 0 0 0")
	}},
	{"results and outputs", workqueue.Config{}, func(k *kit) {
		ctx := k.t.Context()
		k.enqueue("a", "b")
		out := k.Outputs()
		if got, err := out.Read(ctx, 10, 0); len(got) != 0 || err != nil {
			k.t.Fatalf("got %v, %v", got, err)
		}
		read := make(chan []workqueue.Output)
		go func() {
			got, _ := out.Read(ctx, 10, 10*time.Second)
			read <- got
		}()
		k.settle(k.leaseOne("w"), workqueue.Done().With([]byte{}, []byte("a0"), []byte(""), []byte("\x00\xff")))
		if got := <-read; len(got) != 3 || got[0].Item != "a" || string(got[2].Data) != "\x00\xff" || got[2].Index != 2 {
			k.t.Fatalf("a waiting reader got %v", got)
		}
		k.settle(k.leaseOne("w"), workqueue.Failed(errors.New("e")).With([]byte("r"), []byte("b0")))
		first, err := out.Read(ctx, 2, 0)
		if err != nil || len(first) != 2 {
			k.t.Fatalf("got %v, %v", first, err)
		}
		rest, err := out.ReadAfter(ctx, first[1].Seq, 10, 0)
		if err != nil || len(rest) != 2 || string(rest[1].Data) != "b0" {
			k.t.Fatalf("got %v, %v", rest, err)
		}
		reader, err := out.Claim(ctx, "r", time.Minute)
		if err != nil {
			k.t.Fatal(err)
		}
		if err := reader.Ack(ctx, first[1].Seq, nil); err != nil {
			k.t.Fatal(err)
		}
		if n, bytes, err := out.Backlog(ctx); n != 2 || bytes != int64(len(rest[0].Data)+len(rest[1].Data)) || err != nil {
			k.t.Fatalf("%d with %d bytes left, %v", n, bytes, err)
		}
		if again, err := out.Read(ctx, 10, 0); err != nil || len(again) != 2 || again[0].Seq != rest[0].Seq {
			k.t.Fatalf("got %v, %v", again, err)
		}
		if err := reader.Ack(ctx, rest[1].Seq, nil); err != nil {
			k.t.Fatal(err)
		}
		if n, bytes, err := out.Backlog(ctx); n != 0 || bytes != 0 || err != nil {
			k.t.Fatalf("%d with %d bytes left, %v", n, bytes, err)
		}
		if err := reader.Ack(ctx, "yesterday", nil); err == nil {
			k.t.Fatal("acknowledged nonsense")
		}
		if a, b := k.get("a"), k.get("b"); a.Result == nil || string(b.Result) != "r" {
			k.t.Fatalf("results %v and %q", a.Result, b.Result)
		}
	}},
	{"a reader that was replaced changes nothing", workqueue.Config{}, func(k *kit) {
		ctx := k.t.Context()
		out := k.Outputs()
		k.enqueue("a")
		k.settle(k.leaseOne("w"), workqueue.Done().With(nil, []byte("a0"), []byte("a1")))
		list, err := out.Read(ctx, 10, 0)
		if err != nil || len(list) != 2 {
			k.t.Fatalf("got %d outputs, %v; want 2", len(list), err)
		}
		claim := func(owner string, ttl time.Duration) workqueue.Reader {
			k.t.Helper()
			var r workqueue.Reader
			k.eventually(owner+" to become the reader", func() bool { r, err = out.Claim(ctx, owner, ttl); return err == nil })
			return r
		}
		first := claim("one", time.Minute)
		if again := claim("one", time.Minute); again.Fence() != first.Fence() || !again.Stale() {
			k.t.Errorf("the same reader again: got fence %d, stale %v; want %d, true", again.Fence(), again.Stale(), first.Fence())
		}
		if _, err := out.Claim(ctx, "two", time.Minute); !errors.Is(err, workqueue.ErrOtherReader) {
			k.t.Errorf("a second reader: got %v, want %v", err, workqueue.ErrOtherReader)
		}
		if err := errors.Join(first.Settled(ctx, time.Minute), first.Release(ctx)); err != nil {
			k.t.Fatal(err)
		}
		second := claim("two", time.Millisecond)
		if second.Stale() || second.Fence() <= first.Fence() {
			k.t.Errorf("after a release: got fence %d, stale %v; want more than %d, false", second.Fence(), second.Stale(), first.Fence())
		}
		if err := second.Ack(ctx, list[0].Seq, map[string]string{"a": "1", "b": "2"}); err != nil {
			k.t.Errorf("the time has run out, but nobody took over: %v", err)
		}
		third := claim("three", time.Minute)
		for range 2 { // until somebody says that it is settled
			if !third.Stale() || third.Fence() <= second.Fence() {
				k.t.Errorf("after one that ran out: got fence %d, stale %v; want more than %d, true", third.Fence(), third.Stale(), second.Fence())
			}
			if err := third.Release(ctx); err != nil {
				k.t.Fatal(err)
			}
			third = claim("four", time.Minute)
		}
		if err := third.Settled(ctx, time.Minute); err != nil {
			k.t.Fatal(err)
		}
		for what, err := range map[string]error{
			"ack": second.Ack(ctx, list[1].Seq, map[string]string{"a": "9", "b": "", "c": "9"}), "keep": second.Keep(ctx, time.Hour),
			"settled": second.Settled(ctx, time.Hour), "release": second.Release(ctx), "ack of the first": first.Ack(ctx, list[1].Seq, nil),
		} {
			if !errors.Is(err, workqueue.ErrLeaseLost) {
				k.t.Errorf("%s by a late reader: got %v, want %v", what, err, workqueue.ErrLeaseLost)
			}
		}
		if left, err := out.Read(ctx, 10, 0); err != nil || len(left) != 1 || left[0].Seq != list[1].Seq {
			k.t.Errorf("got %v, %v; want the second output", left, err)
		}
		if notes, err := out.Notes(ctx); err != nil || !maps.Equal(notes, map[string]string{"a": "1", "b": "2"}) {
			k.t.Errorf("got notes %v, %v; want those of the second reader", notes, err)
		}
		if _, err := out.Claim(ctx, "two", time.Minute); !errors.Is(err, workqueue.ErrOtherReader) {
			k.t.Errorf("a late reader released the outputs of another: %v", err)
		}
		if err := third.Ack(ctx, "", map[string]string{"a": ""}); err != nil {
			k.t.Error(err)
		}
		if notes, err := out.Notes(ctx); err != nil || !maps.Equal(notes, map[string]string{"b": "2"}) {
			k.t.Errorf("got notes %v, %v; want b", notes, err)
		}
	}},
	{"a newer queue is refused", workqueue.Config{}, func(k *kit) {
		k.enqueue("a")
		k.rdb.HSet(k.t.Context(), "muster:wq:{q:"+k.t.Name()+"}:meta", "v", 2)
		if _, err := k.Lease(k.t.Context(), "w", 1); !errors.Is(err, workqueue.ErrNewer) {
			k.t.Fatalf("got %v, want ErrNewer", err)
		}
	}},
	{"repair goes by the records", workqueue.Config{MaxAttempts: 1}, func(k *kit) {
		ctx := k.t.Context()
		key := func(name string) string { return "muster:wq:{" + k.Name() + "}:" + name }
		k.enqueue(numbered(8)...)
		ls := k.lease("w", 5)
		k.settle(ls[0], workqueue.Done())
		k.settle(ls[1], workqueue.Failed(errors.New("e")))
		if _, err := k.Retry(ctx, ls[2], nil, time.Hour, false); err != nil {
			k.t.Fatal(err)
		}
		if n, err := k.Repair(ctx); n != 0 || err != nil {
			k.t.Fatalf("%d of a queue that is right were repaired, %v", n, err)
		}
		k.wantStats("4 2 1 0 1")

		k.rdb.Del(ctx, key("counts"), key("ready"), key("lanes"), key("delayed"), key("failed"), key("leased"))
		k.rdb.ZAdd(ctx, key("leased"), redis.Z{Score: 1, Member: ls[0].ID})
		if _, err := k.Verify(ctx); err == nil {
			k.t.Fatal("nothing is wrong with that")
		}
		if n, err := k.Repair(ctx); n != 8 || err != nil {
			k.t.Fatalf("%d were repaired, %v", n, err)
		}
		k.wantStats("4 2 1 0 1")
		for _, l := range k.lease("w2", 9) { // the leases that were lost have run out
			k.settle(l, workqueue.Done())
		}
		k.wantStats("0 0 5 0 3")
	}},
	{"delete and expire leave nothing", workqueue.Config{}, func(k *kit) {
		ctx := k.t.Context()
		k.enqueue("a", "b")
		k.settle(k.leaseOne("w"), workqueue.Failed(errors.New("e")).With([]byte("r"), []byte("o")))
		if err := k.Delete(ctx); err != nil {
			k.t.Fatal(err)
		}
		if n := k.rdb.DBSize(ctx).Val(); n != 0 {
			k.t.Fatalf("%d keys left: %v", n, k.rdb.Keys(ctx, "*").Val())
		}
		if n := k.enqueue("a"); n != 1 {
			k.t.Fatal("a deleted queue remembers its items")
		}
		k.leaseOne("w")
		if err := k.Expire(ctx, 50*time.Millisecond); err != nil {
			k.t.Fatal(err)
		}
		k.eventually("the queue to expire", func() bool { return k.rdb.DBSize(ctx).Val() == 0 })
	}},
}

func TestQueue(t *testing.T) {
	t.Parallel()
	for _, row := range behaviour {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
				row.test(newKit(t, rdb, row.cfg))
			})
		})
	}
}

func TestQueueSurvivesRedis(t *testing.T) {
	t.Parallel()
	s := redistest.Server(t, "appendonly", "yes", "appendfsync", "always")
	k := newKit(t, s.Client(), workqueue.Config{LeaseTTL: 100 * time.Millisecond})
	k.enqueue("done", "running", "queued")
	k.settle(k.leaseOne("w"), workqueue.Done())
	k.leaseOne("w")
	s.Kill()
	s.Start()
	seen := map[string]bool{}
	k.eventually("the open items to come back", func() bool {
		got, err := k.Lease(t.Context(), "w2", 5)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range got {
			seen[l.ID] = true
			k.settle(l, workqueue.Done())
		}
		return len(seen) == 2
	})
	k.wantStats("0 0 3 0 0")
}

// A Redis that is full refuses new items, each call as a whole, and lets the
// others be worked on to their end; when there is room again all goes on.
func TestQueueInFullRedis(t *testing.T) {
	t.Parallel()
	s := redistest.Server(t, "maxmemory", "8mb", "maxmemory-policy", "noeviction")
	k := newKit(t, s.Client(), workqueue.Config{})
	k.enqueue("done", "failing", "returned", "later")
	first := k.lease("w", 3)
	big := workqueue.Item{Kind: "test", Payload: make([]byte, 512<<10)}
	var added []string
	var err error
	for i := 0; err == nil && i < 100; i++ {
		big.ID = fmt.Sprint("big", i)
		if _, err = k.Enqueue(t.Context(), big); err == nil {
			added = append(added, big.ID)
		}
	}
	for i := 0; i < 3; { // to the last byte
		if s.Client().SetNX(t.Context(), fmt.Sprint("filler", rand.Int()), make([]byte, 2<<10), 0).Err() != nil {
			i++
		}
	}
	if !errors.Is(err, workqueue.ErrFull) || !strings.Contains(err.Error(), "maxmemory") {
		t.Fatalf("got %v, want a refusal", err)
	}
	if got, err := k.Get(t.Context(), big.ID); err != nil || len(got) != 0 {
		t.Fatalf("half an item is there: %+v, %v", got, err)
	}
	if lost, err := k.Heartbeat(t.Context(), first...); err != nil || len(lost) != 0 {
		t.Errorf("heartbeat: %v, %v", lost, err)
	}
	k.settle(first[0], workqueue.Done().With([]byte("r"), []byte("o")))
	if s := k.retry(first[1], time.Hour); s != workqueue.StateQueued {
		t.Error(s)
	}
	if err := k.Return(t.Context(), first[2]); err != nil {
		t.Error(err)
	}
	held := k.lease("w", 2)
	if ids(held) != "returned later" {
		t.Errorf("leased %s", ids(held))
	}
	if out, err := k.Outputs().Read(t.Context(), 10, 0); err != nil || len(out) != 1 {
		t.Errorf("got outputs %v, %v; want one", out, err)
	} else if r, err := k.Outputs().Claim(t.Context(), "r", time.Minute); err != nil {
		t.Errorf("claim the outputs: %v", err)
	} else if err := errors.Join(r.Ack(t.Context(), out[0].Seq, map[string]string{"n": "1"}), r.Release(t.Context())); err != nil {
		t.Errorf("acknowledge: %v", err)
	}
	slots := limit.NewKeyedLimiter(s.Client(), limit.KeyedConfig{})
	if slot, err := slots.Acquire(t.Context(), "h"); err != nil {
		t.Error(err)
	} else if err := slot.Release(t.Context()); err != nil {
		t.Error(err)
	}
	pacer := limit.NewPacer(s.Client(), limit.PacerConfig{})
	if _, _, err := pacer.Reserve(t.Context(), "h", 0); err != nil {
		t.Error(err)
	}
	if err := pacer.NotBefore(t.Context(), "h", time.Now().Add(time.Hour)); err != nil {
		t.Error(err)
	}
	if ok, _, err := limit.NewTokenBucket(s.Client(), limit.BucketConfig{}).Try(t.Context(), "h", 1); !ok || err != nil {
		t.Error(ok, err)
	}
	b := limit.NewBreaker(s.Client(), limit.BreakerConfig{})
	if p, ok, _, err := b.Allow(t.Context(), "h"); !ok || err != nil || p.Failure(t.Context(), "x") != nil {
		t.Error(ok, err)
	}
	k.wantStats(fmt.Sprint(1+len(added), " 2 1 0 0"))

	if err := s.Client().ConfigSet(t.Context(), "maxmemory", "0").Err(); err != nil {
		t.Fatal(err)
	}
	if n := k.enqueue(big.ID, "last"); n != 2 {
		t.Errorf("%d new, want both", n)
	}
	if err := k.Return(t.Context(), held...); err != nil {
		t.Fatal(err)
	}
	for _, l := range k.lease("w", 100) {
		k.settle(l, workqueue.Done())
	}
	k.wantStats(fmt.Sprint("1 0 ", 3+len(added)+2, " 0 0"))
}

// Redis's clock counts, whichever way it jumps, and the clocks of workers do
// not.
func TestClockJumps(t *testing.T) {
	t.Parallel()
	s := miniredis.RunT(t)
	rdb := redis.NewClient(&redis.Options{Addr: s.Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	k := newKit(t, rdb, workqueue.Config{LeaseTTL: time.Minute})
	now := time.Now()
	jump := func(d time.Duration) {
		now = now.Add(d)
		s.SetTime(now)
	}
	jump(0)
	k.enqueue("a", "b", "c")
	a, b := k.leaseOne("w"), k.leaseOne("w")
	k.retry(b, time.Minute)

	jump(-24 * time.Hour) // back: nothing ends early, and what is held can be settled
	if lost, err := k.Heartbeat(t.Context(), a); err != nil || len(lost) != 0 {
		t.Fatal(lost, err)
	}
	k.enqueue("d")
	if got := k.lease("w2", 9); ids(got) != "c d" || got[0].Waited != 0 {
		t.Fatalf("leased %s, %+v", ids(got), got)
	}
	k.settle(a, workqueue.Done())
	k.wantStats("1 2 1 0 0")

	jump(72 * time.Hour) // forward: leases end, what waits is ready
	if got := k.lease("w3", 9); ids(got) != "c d b" || got[0].Attempts != 1 {
		t.Fatalf("leased %s, %+v", ids(got), got)
	}
	k.wantStats("0 3 1 0 0")

	// A worker a day ahead of Redis, and one a day behind, tell it nothing.
	skewed, behind := k.get("c"), time.Now().Add(-48*time.Hour)
	lease := workqueue.Leased{Item: skewed.Item, Token: skewed.Token, Worker: "w3", Expires: behind}
	if lost, err := k.Heartbeat(t.Context(), lease); err != nil || len(lost) != 0 {
		t.Fatal(lost, err)
	}
	k.settle(lease, workqueue.Done())
	k.wantStats("0 2 2 0 0")
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
			t.Errorf("queue %q was accepted", q.Name())
		}
		if err := q.Settle(t.Context(), workqueue.Leased{}, workqueue.Done()); err == nil {
			t.Errorf("queue %q settles", q.Name())
		}
	}
}

func TestBackoff(t *testing.T) {
	t.Parallel()
	for n, base := range map[int]time.Duration{1: time.Minute, 2: 2 * time.Minute, 3: 4 * time.Minute} {
		seen := map[time.Duration]bool{}
		for range 1000 {
			d := workqueue.DefaultBackoff.Delay(n)
			if d < base || d > base+15*time.Second {
				t.Fatalf("attempt %d waits %v", n, d)
			}
			seen[d] = true
		}
		if len(seen) < 2 {
			t.Errorf("attempt %d: no jitter", n)
		}
	}
	for _, n := range []int{7, 20, 10_000} {
		if d := workqueue.DefaultBackoff.Delay(n); d != time.Hour {
			t.Errorf("attempt %d waits %v, want the cap", n, d)
		}
	}
	two := workqueue.Backoff{Base: 2 * time.Second, Max: time.Minute}
	for n, want := range []time.Duration{1: 2 * time.Second, 2: 4 * time.Second, 3: 8 * time.Second, 10: time.Minute} {
		if got := two.Delay(n); want > 0 && got != want {
			t.Errorf("attempt %d waits %v, want %v", n, got, want)
		}
	}
}
