package store_test

import (
	"slices"
	"testing"
	"time"

	"muster/internal/redistest"
	"muster/tasks/internal/store"
)

// A worker may have been suspended, and be back before another one removes it.
func TestWorkerThatIsBackStaysListed(t *testing.T) {
	t.Parallel()
	s := store.New(redistest.New(t), store.DefaultNamespace)
	if err := s.Workers.ListMissing(t.Context(), []string{"back", "dead"}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Workers.Beat(t.Context(), "back", false, "", time.Hour, time.Hour); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"back", "dead"} {
		if err := s.Workers.Remove(t.Context(), name, time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	got := s.Redis().ZRange(t.Context(), "muster:workers", 0, -1).Val()
	if want := []string{"back"}; !slices.Equal(got, want) {
		t.Errorf("listed are %v, want %v", got, want)
	}
}
