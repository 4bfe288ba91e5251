package store_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/tasks/internal/store"
)

// A send of a single task that is repeated, because its reply was lost, does not reset the task.
func TestRepeatedSendOfASingleTaskChangesNothing(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		s := store.New(rdb, store.DefaultNamespace)
		if _, err := s.Shards(t.Context()); err != nil {
			t.Fatal(err)
		}
		f, err := s.Flows.Address(t.Context(), "once~")
		if err != nil {
			t.Fatal(err)
		}
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
