package workqueue_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"muster/internal/redistest"
	"muster/internal/testutil"
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

// every runs a test with a queue on each kind of Redis.
func every(t *testing.T, cfg workqueue.Config, test func(k *kit)) {
	t.Helper()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) { test(newKit(t, rdb, cfg)) })
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

func TestPayloadsAreUnchanged(t *testing.T) {
	t.Parallel()
	every(t, workqueue.Config{}, func(k *kit) {
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
				k.t.Fatalf("got %.200q, want %.200q", got.Payload, p)
			}
			if info := k.get(item.ID); info.Priority != -3 || info.MaxAttempts != 7 || !bytes.Equal(info.Payload, p) {
				k.t.Fatalf("got %+v, want %+v", info.Item, item)
			}
		}
	})
}

func TestBadItemsAreRejectedAndNothingIsAdded(t *testing.T) {
	t.Parallel()
	every(t, workqueue.Config{MaxPayload: 100}, func(k *kit) {
		for _, bad := range []workqueue.Item{
			{}, {ID: strings.Repeat("x", 10<<20)}, {ID: "a\xff"}, {ID: "a\x00b"}, {ID: "a", Payload: make([]byte, 101)},
			{ID: "a", Priority: 101}, {ID: "a", MaxAttempts: -1}, {ID: "a", Kind: "\xff"},
			{ID: "a", ResourceKeys: []string{""}}, {ID: "a", ResourceKeys: []string{"a\x1fb"}},
			{ID: "a", ResourceKeys: make([]string, 9)}, {ID: "a", Labels: map[string]string{"x": "\xff"}},
			{ID: "a", Kind: strings.Repeat("k", 100<<10)},
		} {
			n, err := k.Enqueue(k.t.Context(), workqueue.Item{ID: "good"}, bad)
			if err == nil || len(err.Error()) > 400 {
				k.t.Errorf("%.100q: got %d, %v; want a short error", bad.ID, n, err)
			}
		}
		longest := workqueue.Item{ID: strings.Repeat("x", workqueue.MaxID), ResourceKeys: slices.Repeat([]string{"h"}, workqueue.MaxResourceKeys)}
		if err := k.Check(longest); err != nil {
			k.t.Errorf("an item at the limits: got %.100v, want nil", err)
		}
		s, _ := k.Stats(k.t.Context())
		if s.Total > 1 { // the good one may be in before an item too long to encode is met
			k.t.Fatalf("got %+v, want one item at most", s)
		}
	})
}

// More items than one script takes are added, and none after the lease has ended.
func TestEnqueueUnderALeaseOfManyItems(t *testing.T) {
	t.Parallel()
	every(t, workqueue.Config{}, func(k *kit) {
		k.enqueue("a")
		l := k.leaseOne("w")
		items := make([]workqueue.Item, 1200)
		for i := range items {
			items[i].ID = fmt.Sprint("n", i)
		}
		if n, err := k.EnqueueUnder(k.t.Context(), l, items[:700]...); n != 700 || err != nil {
			k.t.Fatalf("got %d, %v; want 700", n, err)
		}
		k.settle(l, workqueue.Done())
		if n, err := k.EnqueueUnder(k.t.Context(), l, items...); n != 0 || !errors.Is(err, workqueue.ErrLeaseLost) {
			k.t.Fatalf("got %d, %v; want 0, %v", n, err, workqueue.ErrLeaseLost)
		}
		if n, err := k.EnqueueUnder(k.t.Context(), workqueue.Leased{}, items...); n != 0 || err == nil {
			k.t.Fatalf("without a lease: got %d, %v; want an error", n, err)
		}
		k.wantStats("700 0 1 0 0")
	})
}

func TestItemThatIsDoneIsNotLeased(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		q := workqueue.New(rdb, "q", workqueue.Config{})
		done := workqueue.Item{ID: "a", Done: true, Result: []byte("r"), Payload: []byte("p")}
		for _, want := range []int{1, 0} {
			if n, err := q.Enqueue(t.Context(), done); n != want || err != nil {
				t.Errorf("enqueue: got %d, %v, want %d", n, err, want)
			}
		}
		if got, err := q.Lease(t.Context(), "w", 1); len(got) != 0 || err != nil {
			t.Errorf("lease: got %v, %v, want none", got, err)
		}
		infos, err := q.Get(t.Context(), "a")
		if err != nil || len(infos) != 1 || infos[0].State != workqueue.StateDone || string(infos[0].Result) != "r" {
			t.Errorf("item: got %+v, %v, want done with a result", infos, err)
		}
		if s, err := q.Stats(t.Context()); err != nil || s.Done != 1 || s.Queued != 0 {
			t.Errorf("stats: got %+v, %v, want 1 done", s, err)
		}
		if _, err := q.Enqueue(t.Context(), workqueue.Item{ID: "b", Done: true}); err == nil {
			t.Error("an item that is done without a result was added")
		}
	})
}

func TestHeartbeatExtendsByTheTTLOfItsOwnLeases(t *testing.T) {
	t.Parallel()
	every(t, workqueue.Config{LeaseTTL: time.Minute}, func(k *kit) {
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
		if d := k.get("a").Expires.Sub(before); d < 29*time.Second || time.Until(k.get("a").Expires) > 61*time.Second {
			k.t.Fatalf("lease lasts %v longer than the other one, want half a minute", d)
		}
		if d := k.get("b").Expires.Sub(before).Abs(); d > 15*time.Second {
			k.t.Fatalf("the other worker's lease changed by %v, want no change", d)
		}
		_ = b
	})
}

func TestBudgetPassesOverLanes(t *testing.T) {
	t.Parallel()
	every(t, workqueue.Config{}, func(k *kit) {
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
			k.t.Fatalf("leased %s, %+v, %v; want slow00 slow01 fast0 fast1 free1 free2, others passed over", ids(got.Items), got, err)
		}
		got, _ = k.LeaseWithin(k.t.Context(), "w", 3, workqueue.Budget{Default: -1, Left: map[string]int{"r": 0}})
		if ids(got.Items) != "fast2 fast3 fast4" {
			k.t.Fatalf("leased %s, want fast2 fast3 fast4", ids(got.Items))
		}
		k.wantStats("19 9 0 0 0")
	})
}

func TestSettleTakesNoOtherOutcome(t *testing.T) {
	t.Parallel()
	every(t, workqueue.Config{}, func(k *kit) {
		k.enqueue("a")
		l := k.leaseOne("w")
		for _, s := range []workqueue.State{"bogus", "", workqueue.StateQueued} {
			if err := k.Settle(k.t.Context(), l, workqueue.Outcome{State: s}); err == nil {
				k.t.Errorf("state %q: got nil, want an error", s)
			}
		}
		k.wantStats("0 1 0 0 0")
	})
}

func TestExpiredLeasesEndInError(t *testing.T) {
	t.Parallel()
	every(t, workqueue.Config{MaxAttempts: 2, LeaseTTL: 30 * time.Millisecond}, func(k *kit) {
		k.enqueue("a")
		first := k.leaseOne("w")
		var again []workqueue.Leased
		k.eventually("the poison item to end", func() bool {
			got := k.lease("w", 1)
			again = append(again, got...)
			return len(got) == 0 && k.get("a").State == workqueue.StateError
		})
		if len(again) != 1 || again[0].Attempts != 1 || again[0].Token == first.Token {
			k.t.Errorf("got %+v after %+v, want a once more, with one attempt and a new token", again, first)
		}
		k.wantStats("0 0 0 0 1")
	})
}

// itemsOf returns items with the IDs prefix0, prefix1, ….
func itemsOf(prefix string, n int) []workqueue.Item {
	items := make([]workqueue.Item, n)
	for i := range items {
		items[i] = workqueue.Item{ID: fmt.Sprint(prefix, i)}
	}
	return items
}

func TestSettleWithALostLeaseAddsNothing(t *testing.T) {
	t.Parallel()
	every(t, workqueue.Config{}, func(k *kit) {
		k.enqueue("a")
		l := k.leaseOne("w")
		if _, err := k.ExpireWorker(k.t.Context(), "w"); err != nil {
			k.t.Fatal(err)
		}
		for _, n := range []int{1, 2000} {
			o := workqueue.Done()
			o.Items = itemsOf("new", n)
			if err := k.Settle(k.t.Context(), l, o); !errors.Is(err, workqueue.ErrLeaseLost) {
				k.t.Errorf("%d items: got %v, want ErrLeaseLost", n, err)
			}
		}
		k.wantStats("1 0 0 0 0")
	})
}

func TestSettleAddsManyItemsInTheirOrder(t *testing.T) {
	t.Parallel()
	every(t, workqueue.Config{}, func(k *kit) {
		k.enqueue("a")
		l := k.leaseOne("w")
		o := workqueue.Done()
		o.Items = append(itemsOf("new", 1300), workqueue.Item{ID: "a"}, workqueue.Item{ID: "new0"})
		k.settle(l, o)
		k.settle(l, o) // the reply was lost
		k.wantStats("1300 0 1 0 0")
		for i, got := range k.lease("w", 500) {
			if want := fmt.Sprint("new", i); got.ID != want {
				k.t.Fatalf("item %d is %s, want %s", i, got.ID, want)
			}
		}
	})
}

func TestFullQueueCountsRefusedItemsOnce(t *testing.T) {
	t.Parallel()
	every(t, workqueue.Config{MaxItems: 3}, func(k *kit) {
		k.enqueue("a", "b")
		o := workqueue.Done()
		o.Items = append(itemsOf("new", 4), workqueue.Item{ID: "b"})
		k.settle(k.leaseOne("w"), o)
		k.settle(k.leaseOne("w"), o)
		if n := k.enqueue("new3", "other", "new0"); n != 0 {
			k.t.Errorf("%d items added to a full queue, want 0", n)
		}
		k.wantStats("1 0 2 0 0")
		if s, err := k.Stats(k.t.Context()); err != nil || s.Refused != 4 {
			k.t.Errorf("got %+v, %v, want 4 refused items", s, err)
		}
	})
}

func TestMaxInProgressBoundsAllWorkers(t *testing.T) {
	t.Parallel()
	every(t, workqueue.Config{}, func(k *kit) {
		if _, err := k.Enqueue(k.t.Context(), itemsOf("i", 20)...); err != nil {
			k.t.Fatal(err)
		}
		lease := func(worker string, want, room int, own ...workqueue.Leased) []workqueue.Leased {
			k.t.Helper()
			ids := make([]string, len(own))
			for i, l := range own {
				ids[i] = l.ID
			}
			got, err := k.LeaseWithin(k.t.Context(), worker, 100, workqueue.Budget{Default: -1, MaxInProgress: 5, Ahead: 3, Own: ids})
			if err != nil || len(got.Items) != want || got.Room != room {
				k.t.Fatalf("%s: got %d items, room %d, %v; want %d and %d", worker, len(got.Items), got.Room, err, want, room)
			}
			return got.Items
		}
		first := lease("w1", 8, 5)
		lease("w2", 0, 0)
		for _, l := range first[:5] {
			k.settle(l, workqueue.Done())
		}
		lease("w2", 2, 2)
		lease("w1", 0, 3, first[5:]...)
		lease("w1", 0, 3, first...) // some have ended
		k.settle(first[5], workqueue.Done())
		lease("w1", 1, 3, first[5:]...)
	})
}

func TestPassRejectsBadItems(t *testing.T) {
	t.Parallel()
	every(t, workqueue.Config{MaxPayload: 100}, func(k *kit) {
		k.enqueue("a")
		l := k.leaseOne("w")
		for _, to := range []workqueue.Item{
			{}, {ID: "b"}, {ID: "a", Payload: make([]byte, 101)}, {ID: "a", Kind: strings.Repeat("k", 100<<10)},
		} {
			if err := k.Pass(k.t.Context(), l, to); err == nil || errors.Is(err, workqueue.ErrLeaseLost) || len(err.Error()) > 400 {
				k.t.Errorf("%.80q: got %v, want a short error with the reason", to.ID, err)
			}
		}
		if err := k.Pass(k.t.Context(), workqueue.Leased{Item: workqueue.Item{ID: "unknown"}, Token: 1}, workqueue.Item{ID: "unknown"}); err != nil {
			k.t.Errorf("an unknown item: got %v, want nil", err)
		}
		k.wantStats("0 1 0 0 0")
	})
}

func TestAmendRejectsOtherOutcomes(t *testing.T) {
	t.Parallel()
	every(t, workqueue.Config{MaxPayload: 100}, func(k *kit) {
		ctx := k.t.Context()
		k.enqueue("done")
		k.settle(k.leaseOne("w"), workqueue.Done())
		for what, err := range map[string]error{
			"from queued":  k.Amend(ctx, "done", workqueue.StateQueued, workqueue.Done()),
			"to queued":    k.Amend(ctx, "done", workqueue.StateDone, workqueue.Outcome{State: workqueue.StateQueued}),
			"outputs":      k.Amend(ctx, "done", workqueue.StateDone, workqueue.Skipped("s").With(nil, []byte("o"))),
			"large result": k.Amend(ctx, "done", workqueue.StateDone, workqueue.Skipped("s").With(make([]byte, 101))),
		} {
			if err == nil || errors.Is(err, workqueue.ErrNotInState) {
				k.t.Errorf("%s: got %v, want an error with the reason", what, err)
			}
		}
		k.wantStats("0 0 1 0 0")
	})
}

// A process that does not know yet that a queue was deleted leaves nothing.
func TestLeaseOfADeletedQueueLeavesNothing(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		ctx := t.Context()
		q := workqueue.New(rdb, "deleted", workqueue.Config{})
		if _, err := q.Enqueue(ctx, workqueue.Item{ID: "a"}); err != nil {
			t.Fatal(err)
		}
		testutil.Ok(t, q.Delete(ctx))
		if leases, err := q.Lease(ctx, "w", 1); err != nil || len(leases) != 0 {
			t.Errorf("got %d leases, %v, want none", len(leases), err)
		}
		if n := rdb.Exists(ctx, "muster:wq:{deleted}:meta").Val(); n != 0 {
			t.Error("the queue has metadata")
		}
	})
}

// Items that have ended are forgotten after Config.Keep, and can be added again. Others stay.
func TestEndedItemsAreForgotten(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		kept := newKit(t, rdb, workqueue.Config{})
		k := &kit{workqueue.New(rdb, "forgets", workqueue.Config{Keep: time.Millisecond, CountLanes: true}), t, rdb}
		for _, q := range []*kit{kept, k} {
			q.enqueue("done", "skipped", "error", "amended", "running", "waiting")
			q.settle(q.leaseOne("w"), workqueue.Done())
			q.settle(q.leaseOne("w"), workqueue.Skipped("no need"))
			q.settle(q.leaseOne("w"), workqueue.Failed(errors.New("broken")))
		}
		l := k.leaseOne("w")
		k.settle(l, workqueue.Failed(errors.New("broken")))
		if _, err := k.Requeue(t.Context(), workqueue.RequeueOptions{IDs: []string{"amended"}}); err != nil {
			t.Fatal(err)
		}
		k.leaseOne("w")
		k.eventually("only open items are left", func() bool {
			k.lease("w", 1)
			s, err := k.Stats(t.Context())
			return err == nil && s.Total == s.Open()
		})
		if n := k.enqueue("done", "running"); n != 1 {
			t.Errorf("added %d items, want the one that was forgotten", n)
		}
		if _, err := k.Verify(t.Context()); err != nil {
			t.Error(err)
		}
		kept.wantStats("3 0 1 1 1")
		for age, want := range map[time.Duration]int{time.Hour: 0, -time.Hour: 3} {
			if n, err := kept.ForgetEnded(t.Context(), age); err != nil || age > 0 && n != want {
				t.Errorf("forgot %d items that ended %s ago, %v, want %d", n, age, err, want)
			}
		}
		kept.wantStats("3 0 0 0 0")
	})
}

// NotBefore does not depend on the difference between the clocks of Redis and of this machine.
func TestItemsWaitWhateverTheClocks(t *testing.T) {
	t.Parallel()
	for _, ahead := range []time.Duration{-10 * time.Minute, -time.Second, time.Second, 10 * time.Minute} {
		rdb, jump := redistest.Clock(t)
		jump(ahead)
		k := newKit(t, rdb, workqueue.Config{})
		if _, err := k.Enqueue(t.Context(), workqueue.Item{ID: "a", NotBefore: time.Now().Add(time.Hour)}); err != nil {
			t.Fatal(err)
		}
		for _, wait := range []time.Duration{time.Hour, time.Minute} {
			got, err := k.LeaseWithin(t.Context(), "w", 1, workqueue.Budget{Default: -1})
			if err != nil || len(got.Items) > 0 || got.Next > wait || got.Next < wait/2 {
				t.Errorf("Redis ahead by %v: got %+v, %v, want none for %v", ahead, got, err, wait)
			}
			jump(time.Hour - time.Minute)
		}
		if got, err := k.Lease(t.Context(), "w", 1); err != nil || len(got) != 1 {
			t.Errorf("Redis ahead by %v: got %v, %v, want the item", ahead, got, err)
		}
	}
}
