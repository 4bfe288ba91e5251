package engine

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"muster/tasks/internal/graph"
	"muster/tasks/internal/store"
	"muster/tasks/redistest"
)

// What comes too late for a workflow that is gone does not make its key again, which nothing would expire.
func TestLateStepsLeaveNothing(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		e := engineOn(t, rdb)
		f, err := e.store.Flow(t.Context(), "gone")
		if err != nil {
			t.Fatal(err)
		}
		if err := e.store.Note(t.Context(), f, "0", e.now()); err != nil { // the agenda does not know yet
			t.Fatal(err)
		}
		if ok, err := e.store.StoreInputs(t.Context(), f, "0", []store.Literal{{Node: "0.0", Input: []byte("1")}}); ok || err != nil {
			t.Errorf("inputs of a workflow that is gone: %v, %v", ok, err)
		}
		if n, err := e.store.Reissue(t.Context(), f, "0", 0); n != -1 || err != nil {
			t.Errorf("reissue of a workflow that is gone: %v, %v", n, err)
		}
		if err := e.attend(t.Context(), store.Entry{Flow: f, Node: "0"}); err != nil {
			t.Error(err)
		}
		for _, key := range rdb.Keys(t.Context(), "muster:*").Val() {
			if key != "muster:shards" {
				t.Errorf("%s is left", key)
			}
		}
	})
}

// A workflow that nobody can read leaves nothing behind either, when members of its groups wait for a place.
func TestGivenUpLeavesNoPlaces(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		e := engineOn(t, rdb)
		id := groupOf(t, e, 3, &graph.Opts{AtMost: 1}, &graph.Opts{})
		if n := len(rdb.Keys(t.Context(), "*:w:"+id+"*").Val()); n != 3 {
			t.Fatalf("%d keys, want the workflow, who has a place and who waits for one", n)
		}
		f, err := e.store.Flow(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if err := e.store.Abort(t.Context(), f, "0", []byte(`{}`)); err != nil {
			t.Fatal(err)
		}
		for _, key := range rdb.Keys(t.Context(), "*:w:"+id+"*").Val() {
			if ttl := rdb.PTTL(t.Context(), key).Val(); ttl <= 0 {
				t.Errorf("%s has time to live %v", key, ttl)
			}
		}
	})
}
