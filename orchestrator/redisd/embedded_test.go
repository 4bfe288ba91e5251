package redisd

import (
	"strings"
	"testing"
	"time"

	"muster/internal/testutil"
)

// The built-in Redis is volatile and warns about it.
func TestEmbeddedIsVolatileWithWarning(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	cfg.Mode = Embedded
	first := start(t, cfg)
	if first.Mode() != Embedded || !first.Owned() {
		t.Fatalf("got mode %s, owned %v; want an owned embedded one", first.Mode(), first.Owned())
	}
	for what, text := range map[string]string{"guarantee": first.Guarantee(), "warnings": strings.Join(first.Warnings(), "\n")} {
		if !strings.Contains(text, "lost when Muster stops") || !strings.Contains(text, "install redis-server") {
			t.Errorf("%s: got %q, want the loss and the advice", what, text)
		}
	}
	set(t, first.URL(), "k", "v")
	stop(t, first)
	if Ping(t.Context(), first.URL(), time.Second) == nil {
		t.Fatal("it responds after Stop")
	}

	second := start(t, cfg)
	if second.URL() != first.URL() {
		t.Errorf("got address %s, want the same as before, %s", second.URL(), first.URL())
	}
	if n := client(t, second.URL()).DBSize(t.Context()).Val(); n != 0 {
		t.Errorf("got %d keys after a restart, want none", n)
	}
}

func TestEmbeddedExpiresKeys(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	cfg.Mode = Embedded
	rdb := client(t, start(t, cfg).URL())
	if err := rdb.Set(t.Context(), "short", "v", 100*time.Millisecond).Err(); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, "the key expires", func() bool { return rdb.Exists(t.Context(), "short").Val() == 0 })
}
