package store_test

import (
	"slices"
	"testing"

	"muster/internal/redistest"
	"muster/tasks/internal/store"
)

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
		if err != nil {
			t.Fatal(err)
		}
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
