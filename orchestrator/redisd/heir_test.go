package redisd

import (
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/tasks/redistest"
)

// The Redis of two orchestrators on one data folder outlives the one that started it, however that ends.
func TestNeighbourRunsItOn(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]Mode{"child": Child, "embedded": Embedded} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if mode == Child {
				redistest.Server(t) // skips where there is none
			}
			cfg := config(t)
			cfg.Mode = mode
			first := start(t, cfg)
			cfg.Mode = Auto
			second, third := start(t, cfg), start(t, cfg)
			if second.Owned() || third.Owned() || second.URL() != first.URL() {
				t.Fatalf("the second has a Redis of its own: %s at %s", second.Mode(), second.URL())
			}
			set(t, first.URL(), "k", "v")
			stop(t, first)
			testutil.Eventually(t, "a neighbour to run the Redis on", func() bool {
				return second.Owned() || third.Owned()
			})
			wantValue(t, second.URL(), "k", "v")
			if second.Owned() == third.Owned() {
				t.Fatal("both run it")
			}
			if url, err := Discover(t.Context(), cfg.DataDir); err != nil || url != first.URL() {
				t.Fatalf("others find it at %s, %v", url, err)
			}
			next, last := second, third
			if third.Owned() {
				next, last = third, second
			}
			stop(t, next)
			testutil.Eventually(t, "the last one to run it on", last.Owned)
			wantValue(t, last.URL(), "k", "v")
			stop(t, last)
			if Ping(t.Context(), last.URL(), time.Second) == nil {
				t.Error("the Redis outlives the last that used it")
			}
		})
	}
}

func TestNeighbourRunsItOnAfterACrash(t *testing.T) {
	t.Parallel()
	redistest.Server(t) // skips where there is none
	cfg := config(t)
	cfg.Mode = Child
	first, cmd := holder(t, cfg)
	set(t, first.URL, "k", "v")
	cfg.Mode = Auto
	second := start(t, cfg)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	testutil.Eventually(t, "the neighbour to run the Redis on", second.Owned)
	wantValue(t, first.URL, "k", "v")
}
