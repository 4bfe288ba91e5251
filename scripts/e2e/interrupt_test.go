//go:build e2e && unix

package e2e

import (
	"os"
	"testing"
	"time"
)

// TestInterrupted sends SIGINT in every phase of a round: it exits with 130 within seconds and leaves no process, and the next round
// continues: all records, no duplicates.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	phases := []struct {
		name    string
		reached func(*testing.T, *bench) bool
		presses int
		within  time.Duration // after the last signal
	}{
		{"while Redis starts", func(_ *testing.T, b *bench) bool {
			_, err := os.Stat(b.data)
			return err == nil
		}, 1, 15 * time.Second},
		{"while workers start", func(t *testing.T, b *bench) bool {
			return len(b.workers(t)) > 0
		}, 1, 15 * time.Second},
		{"while proxies are checked", func(_ *testing.T, b *bench) bool { return b.proxiesAsked() > 5 }, 1, 20 * time.Second},
		{"while pages are listed", func(_ *testing.T, b *bench) bool { return b.pagesAsked() > 3 }, 1, 20 * time.Second},
		{"while details are fetched", func(_ *testing.T, b *bench) bool { return b.pagesAsked() > 60 }, 1, 20 * time.Second},
		{"twice", func(_ *testing.T, b *bench) bool { return b.pagesAsked() > 60 }, 2, 5 * time.Second},
	}
	for _, p := range phases {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			first := b.once(t, "--setting", "workers.processes=2")
			first.until(t, p.name, func() bool { return p.reached(t, b) })
			for range p.presses {
				first.interrupt(t)
			}
			pressed := time.Now()
			first.wait(t, 130)
			if took := time.Since(pressed); took > p.within {
				t.Errorf("it took %s to stop, want at most %s", took.Round(time.Millisecond), p.within)
			}
			b.wantQuiet(t)
			if b.pagesAsked() > 60 {
				pages := 0
				for _, s := range first.summary(t).Sites {
					pages += s.Pages
				}
				if pages == 0 {
					t.Error("the summary contains no page")
				}
			}

			second := b.once(t, "--setting", "workers.processes=2")
			second.wait(t, 0)
			wantAll(t, b.World, second.summary(t))
			// A drain completes running pages; the second signal aborts them.
			b.wantFetchedOnce(t, (p.presses-1)*2*concurrency)
			b.wantQuiet(t)
		})
	}
}
