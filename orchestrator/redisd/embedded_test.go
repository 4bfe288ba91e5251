package redisd

import (
	"strings"
	"testing"
	"time"

	"muster/internal/testutil"
)

// The embedded Redis keeps its data in the data directory, and mode auto uses it from then on. The guarantee names the interval of the writes.
func TestEmbeddedKeepsItsData(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	cfg.Mode = Embedded
	if Exists(t.Context(), cfg) == nil {
		t.Error("got a store in a new directory")
	}
	first := start(t, cfg)
	if first.Mode() != Embedded || !first.Owned() {
		t.Fatalf("got mode %s, owned %v; want an owned embedded one", first.Mode(), first.Owned())
	}
	if !strings.Contains(first.Guarantee(), "every 5s") || len(first.Warnings()) > 0 {
		t.Errorf("got %q and the warnings %q, want the interval of the writes", first.Guarantee(), first.Warnings())
	}
	set(t, first.URL(), "k", "v")
	stop(t, first)
	if Ping(t.Context(), first.URL(), time.Second) == nil {
		t.Fatal("it responds after Stop")
	}

	cfg.Mode = Auto
	testutil.Ok(t, Exists(t.Context(), cfg))
	second := start(t, cfg)
	if second.URL() != first.URL() || second.Mode() != Embedded {
		t.Errorf("got %s at %s, want the embedded Redis at the same address as before, %s", second.Mode(), second.URL(), first.URL())
	}
	if got := client(t, second.URL()).Get(t.Context(), "k").Val(); got != "v" {
		t.Errorf("got %q after a restart, want v", got)
	}
}

func TestEmbeddedExpiresKeys(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	cfg.Mode = Embedded
	rdb := client(t, start(t, cfg).URL())
	testutil.Ok(t, rdb.Set(t.Context(), "short", "v", 100*time.Millisecond).Err())
	testutil.Eventually(t, "the key expires", func() bool { return rdb.Exists(t.Context(), "short").Val() == 0 })
}
