//go:build e2e && unix

package e2e

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"muster/internal/testutil"
	"muster/orchestrator/redisd"
)

// TestFirstOfTwoStops stops the run that started the Redis while another run on the same data directory uses it. The other run exits
// with the reason, and the next run continues its jobs.
func TestFirstOfTwoStops(t *testing.T) {
	t.Parallel()
	b := setup(t)
	conf := testutil.Must(os.ReadFile(b.conf))(t)
	testutil.Ok(t, os.WriteFile(b.conf, bytes.Replace(conf, []byte(`"mode": "child"`), []byte(`"mode": "auto"`), 1), 0o600))
	first := b.once(t)
	first.until(t, "pages being fetched", func() bool { return b.pagesAsked() >= 10 })
	c := b.client(t)
	second := b.once(t)
	second.until(t, "its worker", func() bool {
		live, err := c.Inspect().Workers(t.Context())
		return err == nil && len(live) == 2
	})
	first.interrupt(t)
	first.wait(t, 130)
	second.wait(t, 1)
	if !strings.Contains(second.stderr.String(), redisd.ErrGone.Error()) {
		t.Errorf("got %q, want %q in it", second.stderr.String(), redisd.ErrGone)
	}
	third := b.once(t)
	third.wait(t, 0)
	wantAll(t, b.World, third.summary(t))
	b.wantQuiet(t)
}
