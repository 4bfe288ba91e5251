package store_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/tasks/internal/store"
)

// A worker that lost a batch can still acquire a place for its node. The node keeps its turn in the new batch, in which it waits.
func TestPlaceOfALostBatchKeepsTheTurnOfTheNode(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		s := store.New(rdb, store.DefaultNamespace)
		f, err := s.Flows.Address(t.Context(), store.GeneratedReference("workflow"))
		if err != nil {
			t.Fatal(err)
		}
		limit := store.Limit{Name: "a.task", Key: "key", N: 1}
		place := func(node, batch string) store.Place {
			p, err := s.Limits.NewPlace(t.Context(), &limit, f, node, batch)
			if err != nil {
				t.Fatal(err)
			}
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
