package redisd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"muster/internal/testutil"
)

// Two orchestrators on one data directory share a Redis, which stops with the one that runs it. Watch in the other returns.
func TestWatchReturnsWhenTheSharedRedisEnds(t *testing.T) {
	t.Parallel()
	eachOwn(t, func(t *testing.T, cfg Config) {
		first := start(t, cfg)
		if _, err := Start(t.Context(), cfg); !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), fmt.Sprintf("process %d,", os.Getpid())) {
			t.Errorf("without Auto: got %v, want ErrInUse with the process", err)
		}
		cfg.Mode = Auto
		second := start(t, cfg)
		if second.Owned() || second.URL() != first.URL() || !strings.Contains(second.Guarantee(), "stops with that orchestrator") {
			t.Fatalf("got mode %s at %s, %q; want the Redis of the first", second.Mode(), Redact(second.URL()), second.Guarantee())
		}
		gone := make(chan error, 1)
		go func() { gone <- second.Watch(t.Context()) }()
		stop(t, first)
		err := <-gone
		wantError(t, err, "run the command again", "muster start", cfg.DataDir)
		if !errors.Is(err, ErrGone) {
			t.Errorf("got %v, want ErrGone", err)
		}
	})
}

func TestWatchOutlastsARestart(t *testing.T) {
	t.Parallel()
	cfg := childConfig(t)
	first := start(t, cfg)
	set(t, first.URL(), "k", "v")
	shared := cfg
	shared.Mode, shared.Attempts, shared.Interval = Auto, 1000, 20*time.Millisecond
	second := start(t, shared)
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() { gone <- second.Watch(ctx) }()
	stop(t, first)
	start(t, cfg)
	testutil.Eventually(t, "the shared Redis responds again", func() bool { return second.Ping(t.Context()) == nil })
	wantValue(t, second.URL(), "k", "v")
	cancel()
	if err := <-gone; err != nil {
		t.Errorf("got %v, want none after a restart", err)
	}
}

func TestWatchOfUnsharedRedisWaitsForItsContext(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	cfg.Mode = Embedded
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := start(t, cfg).Watch(ctx); err != nil {
		t.Errorf("got %v, want none", err)
	}
}
