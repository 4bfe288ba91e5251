package store_test

import (
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/tasks/internal/store"
)

// The depth of a queue has the workflows of one node on its ring and the nodes of ready lists. The age is of the first workflow of
// one node at the head, else since the last take.
func TestDepths(t *testing.T) {
	t.Parallel()
	rdb := redistest.New(t)
	hourAgo, second := time.Now().Add(-time.Hour), time.Now().Add(-time.Second)
	single := store.GeneratedReference(store.NewID(second, [9]byte{}))
	for _, c := range []struct {
		name  string
		ring  []any
		nodes int
		ready int64
		since time.Time
	}{
		{"singles", []any{single, single + "@1"}, 0, 2, second},
		{"keys", []any{"=a", "b~/0-4"}, 8, 8, hourAgo},
		{"both", []any{single, "+"}, 3, 4, second},
		{"none", nil, 0, 0, time.Time{}},
	} {
		keys := len(c.ring)
		for _, e := range c.ring {
			if store.IsSingle(e.(string)) {
				keys--
			}
		}
		testutil.Ok(t, rdb.HSet(t.Context(), "muster:{0}:queue:"+c.name, "ready:n", c.nodes, "ready:k", keys, "taken", hourAgo.UnixMilli()).Err())
		if len(c.ring) > 0 {
			rdb.RPush(t.Context(), "muster:{0}:ring:"+c.name, c.ring...)
		}
		depths, err := store.New(rdb, store.DefaultNamespace).Queues.Depths(t.Context(), []string{c.name})
		testutil.Ok(t, err)
		if got := depths[c.name]; got.Ready != c.ready || !c.since.IsZero() && got.Since.UnixMilli() != c.since.UnixMilli() {
			t.Errorf("queue %s: %d ready since %s, want %d since %s", c.name, got.Ready, got.Since, c.ready, c.since)
		}
	}
}

// A worker that lost a batch can still acquire a place for its node. The node keeps its turn in the new batch, in which it waits.
func TestPlaceOfALostBatchKeepsTheTurnOfTheNode(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		s := store.New(rdb, store.DefaultNamespace)
		f, err := s.Flows.Address(t.Context(), store.GeneratedReference("workflow"))
		testutil.Ok(t, err)
		testutil.Ok(t, rdb.HSet(t.Context(), s.Key(f), "n", 2).Err())
		limit := store.Limit{Name: "a.task", Key: "key", N: 1}
		place := func(node, batch string) store.Place {
			p, err := s.Limits.NewPlace(t.Context(), &limit, f, node, batch)
			testutil.Ok(t, err)
			return p
		}
		wantPlace := func(p store.Place, want bool) {
			t.Helper()
			got, err := s.Limits.Acquire(t.Context(), &p)
			if err != nil || got.Has != want {
				t.Fatalf("got %v, %v, want %v", got.Has, err, want)
			}
		}
		lost, current := place("1", "lost"), place("1", "current")
		wantPlace(lost, true)
		wantPlace(current, false)
		wantPlace(lost, true)
		if _, err := s.Limits.Release(t.Context(), &lost); err != nil {
			t.Fatal(err)
		}
		wantPlace(place("2", "other"), false)
		wantPlace(current, true)
	})
}

// A send of a single task that is repeated, because its reply was lost, does not reset the task.
func TestRepeatedSendOfASingleTaskChangesNothing(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		s := store.New(rdb, store.DefaultNamespace)
		if _, err := s.Shards(t.Context()); err != nil {
			t.Fatal(err)
		}
		f, err := s.Flows.Address(t.Context(), "once~")
		testutil.Ok(t, err)
		g := &store.Grow{Single: true, Graph: []byte("{}"), Work: 1, Inputs: []store.Literal{{Node: "0", Input: []byte("7")}}, Roots: []store.Release{{Span: "0", Lane: "n:default"}}}
		for range 2 {
			if _, err := s.Flows.Submit(t.Context(), f, g); err != nil {
				t.Fatal(err)
			}
			rdb.HSet(t.Context(), s.Key(f), "0", "D|1", "n", 3)
		}
		if got := rdb.HMGet(t.Context(), s.Key(f), "0", "n").Val(); got[0] != "D|1" || got[1] != "3" {
			t.Errorf("got record and number of tasks %v, want those of the run", got)
		}
		if n := rdb.LLen(t.Context(), "muster:{0}:ring:default").Val(); n != 1 {
			t.Errorf("got %d entries on the ring, want 1", n)
		}
	})
}

// Invalid elements of a ready list are omitted and do not affect the others.
func TestTakeLeavesOutWhatCannotBeRead(t *testing.T) {
	t.Parallel()
	rdb := redistest.New(t)
	ctx := t.Context()
	rdb.HSet(ctx, "muster:{0}:w:x", "n", 3, "g", "{}")
	rdb.RPush(ctx, "muster:{0}:ready:n:default:x", "x/0", "x/9-0", "/", "x", "x/1-2")
	rdb.RPush(ctx, "muster:{0}:ring:default", "=x")
	s := store.New(rdb, store.DefaultNamespace)
	if _, err := s.Shards(ctx); err != nil {
		t.Fatal(err)
	}
	var got []string
	for i := range 3 { // a repeated call returns the same reply
		res, err := s.Turns.Make(ctx, &store.Turn{Worker: "w", Queues: []store.Room{{Queue: "default", Most: 100}}, ID: "1", Again: i > 0, Most: 100})
		testutil.Ok(t, err)
		got = nil
		if res.Nodes[0].Graph == nil || res.Nodes[1].Graph != nil {
			t.Error("want the graph in the first element only: it can be large")
		}
		for _, el := range res.Nodes {
			got = append(got, el.Nodes...)
		}
		if want := []string{"0", "1", "2"}; !slices.Equal(got, want) {
			t.Errorf("got nodes %q, want %q", got, want)
		}
	}
}

// A worker may have been suspended, and be back before another one removes it.
func TestWorkerThatIsBackStaysListed(t *testing.T) {
	t.Parallel()
	s := store.New(redistest.New(t), store.DefaultNamespace)
	testutil.Ok(t, s.Workers.ListMissing(t.Context(), []string{"back", "dead"}))
	if _, _, err := s.Workers.Beat(t.Context(), "back", false, "", time.Hour, time.Hour); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"back", "dead"} {
		testutil.Ok(t, s.Workers.Remove(t.Context(), name, time.Hour))
	}
	got := s.Redis().ZRange(t.Context(), "muster:workers", 0, -1).Val()
	if want := []string{"back"}; !slices.Equal(got, want) {
		t.Errorf("listed are %v, want %v", got, want)
	}
}
