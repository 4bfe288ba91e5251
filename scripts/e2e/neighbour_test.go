//go:build e2e && unix

package e2e

import (
	"bytes"
	"os"
	"testing"
	"time"

	"muster/orchestrator/redisd"
)

// TestFirstOfTwoStops stops the run that has brought the Redis, while another one on the same data folder
// works with it. That one runs the Redis on, and ends well.
func TestFirstOfTwoStops(t *testing.T) {
	t.Parallel()
	if redisd.Ping(t.Context(), "redis://127.0.0.1:6379/0", time.Second) == nil {
		t.Skip("NOT COVERED: a Redis answers at the usual address, and both would use that")
	}
	b := setup(t)
	conf, err := os.ReadFile(b.conf)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(b.conf, bytes.Replace(conf, []byte(`"mode": "child"`), []byte(`"mode": "auto"`), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	first := b.once(t)
	first.until(t, "pages being fetched", func() bool { return b.pagesAsked() >= 10 })
	c := b.client(t)
	second := b.once(t)
	second.until(t, "its worker", func() bool {
		live, err := c.Workers(t.Context())
		return err == nil && len(live) == 2
	})
	brought := b.redis(t)
	first.interrupt(t)
	first.wait(t, 130)
	second.until(t, "the Redis being run on", func() bool {
		now := b.redis(t)
		return len(now) == 1 && len(brought) == 1 && now[0] != brought[0]
	})
	second.wait(t, 0)
	wantAll(t, b.World, second.summary(t))
	b.wantQuiet(t)
}
