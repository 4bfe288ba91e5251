//go:build e2e && unix

package e2e

import (
	"os"
	"slices"
	"testing"
	"time"

	"muster/tasks/tasktype"
)

// TestWorkersKilled kills one worker process after another in the middle of a scrape. The round ends
// well, and a page that was done is not fetched again: only those in flight at a kill may be.
func TestWorkersKilled(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := b.once(t, "--worker-processes", "2")

	kills := []int{30, 80, 130}
	for _, asked := range kills {
		r.until(t, "pages being fetched", func() bool { return b.pagesAsked() >= asked && len(b.workers(t)) > 0 })
		b.killBusy(t, r)
	}
	r.wait(t, 0)

	wantAll(t, b.World, r.summary(t))
	b.wantFetchedOnce(t, len(kills)*concurrency)
	b.wantQuiet(t)
}

// killBusy kills a worker that is at work, and wants its work to be free for others at once: what a
// supervisor is for.
func (b *bench) killBusy(t *testing.T, r *run) {
	t.Helper()
	c := b.client(t)
	var at []tasktype.ActiveNode
	var pid int
	r.until(t, "a worker at work", func() bool {
		at = nil
		live, lerr := c.Workers(t.Context())
		active, aerr := c.Active(t.Context())
		if lerr != nil || aerr != nil || len(active) == 0 {
			return false
		}
		for _, w := range live {
			if w.Name == active[0].Worker {
				pid = w.PID
			}
		}
		for _, n := range active {
			if n.Worker == active[0].Worker {
				at = append(at, n)
			}
		}
		return slices.Contains(b.workers(t), pid)
	})
	kill9(t, pid)
	killed := time.Now()
	r.until(t, "its work being taken back", func() bool {
		active, err := c.Active(t.Context())
		return err == nil && !slices.ContainsFunc(at, func(n tasktype.ActiveNode) bool { return slices.Contains(active, n) })
	})
	took := time.Since(killed)
	t.Logf("the %d tasks of a killed worker were free again after %s", len(at), took.Round(time.Millisecond))
	if took > 2*time.Second {
		t.Errorf("the work of a killed worker was free again after %s, want at most 1s", took)
	}
}

// TestRedisKilled kills Redis in the middle of a scrape. It comes back with its data, the workers find
// it again, and the round ends well.
func TestRedisKilled(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := b.once(t)

	for _, asked := range []int{40, 110} {
		r.until(t, "pages being fetched", func() bool { return b.pagesAsked() >= asked && len(b.redis(t)) == 1 })
		kill9(t, b.redis(t)[0])
	}
	r.wait(t, 0)

	wantAll(t, b.World, r.summary(t))
	b.wantQuiet(t)
}

// TestKilledWhileProxiesAreChecked kills both workers and then Redis before there is a pool. The check is
// taken up again each time, and the round ends well.
func TestKilledWhileProxiesAreChecked(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := b.once(t, "--worker-processes", "2")

	r.until(t, "proxies being checked", func() bool { return b.proxiesAsked() > 20 && len(b.workers(t)) == 2 })
	for _, pid := range b.workers(t) {
		kill9(t, pid)
	}
	asked := b.proxiesAsked()
	r.until(t, "proxies being checked again", func() bool { return b.proxiesAsked() > asked+20 && len(b.redis(t)) == 1 })
	kill9(t, b.redis(t)[0])
	r.wait(t, 0)

	wantAll(t, b.World, r.summary(t))
	b.wantQuiet(t)
}

// TestEverythingKilled kills the whole run with -9 in the middle of a scrape, as a power cut would. The
// next run clears what it left, and continues the job: every record, none twice.
func TestEverythingKilled(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first := b.once(t, "--worker-processes", "2")
	first.until(t, "pages being fetched", func() bool { return b.pagesAsked() >= 60 })
	kill9(t, first.cmd.Process.Pid)
	<-first.done

	second := b.once(t, "--worker-processes", "2")
	second.wait(t, 0)
	wantAll(t, b.World, second.summary(t))
	b.wantFetchedOnce(t, 2*concurrency)
	b.wantQuiet(t)
}

// TestEmbeddedRedisKilled kills a run whose Redis lives in the process and keeps nothing. The next run begins
// anew, and still writes no record twice.
func TestEmbeddedRedisKilled(t *testing.T) {
	t.Parallel()
	b := setup(t)
	embedded := append(os.Environ(), "MUSTER_REDIS__MODE=embedded")
	first := muster(t, embedded, b.onceArgs()...)
	first.until(t, "pages being fetched", func() bool { return b.pagesAsked() >= 100 })
	kill9(t, first.cmd.Process.Pid)
	<-first.done

	second := muster(t, embedded, b.onceArgs()...)
	second.wait(t, 0)
	s := second.summary(t)
	if s.Redis != "embedded" {
		t.Errorf("it ran on Redis %q, want embedded", s.Redis)
	}
	wantAll(t, b.World, s)
	b.wantQuiet(t)
}

// wantFetchedOnce wants that no page was fetched twice, but for those that were in flight when something
// was killed.
func (b *bench) wantFetchedOnce(t *testing.T, inFlight int) {
	t.Helper()
	again := 0
	var which []string
	for _, s := range b.Sites() {
		for uri, c := range s.Traffic().Paths {
			if uri != "/robots.txt" && c.Served > 1 {
				again += c.Served - 1
				which = append(which, uri)
			}
		}
	}
	if again > inFlight {
		t.Errorf("%d pages were fetched again, want at most the %d that can have been in flight: %v", again, inFlight, which)
	}
}
