//go:build e2e && unix

package e2e

import (
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"muster/internal/redistest"
	"muster/tasks/tasktype"
)

// TestWorkersKilled repeatedly kills a worker process during a scrape. The round succeeds, and only pages in flight at a kill are
// fetched again.
func TestWorkersKilled(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := b.once(t, "--setting", "workers.processes=2")

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

// killBusy kills a busy worker and checks that its supervisor releases its tasks at once.
func (b *bench) killBusy(t *testing.T, r *run) {
	t.Helper()
	c := b.client(t)
	var at []tasktype.Task
	var pid int
	r.until(t, "a busy worker", func() bool {
		at = nil
		live, lerr := c.Inspect().Workers(t.Context())
		active, aerr := c.Inspect().Active(t.Context())
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
	r.until(t, "the release of its tasks", func() bool {
		active, err := c.Inspect().Active(t.Context())
		return err == nil && !slices.ContainsFunc(at, func(n tasktype.Task) bool { return slices.Contains(active, n) })
	})
	took := time.Since(killed)
	t.Logf("the %d tasks of a killed worker were released after %s", len(at), took.Round(time.Millisecond))
	if took > 4*time.Second { // without the release by its supervisor, 4 to 6 s
		t.Errorf("the tasks of a killed worker were released after %s, want about 1s", took)
	}
}

// TestEverythingKilled kills all processes with SIGKILL during a scrape. The next run cleans up and continues the job: all records,
// no duplicates.
func TestEverythingKilled(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first := b.once(t, "--setting", "workers.processes=2")
	first.until(t, "pages being fetched", func() bool { return b.pagesAsked() >= 60 })
	first.end(syscall.SIGKILL)

	second := b.once(t, "--setting", "workers.processes=2")
	second.wait(t, 0)
	wantAll(t, b.World, second.summary(t))
	b.wantFetchedOnce(t, 2*concurrency)
	b.wantQuiet(t)
}

// TestEmbeddedRedisKilled kills a run with an embedded Redis, which loses its last changes. The next run continues and writes no
// duplicate records.
func TestEmbeddedRedisKilled(t *testing.T) {
	t.Parallel()
	b := setup(t)
	embedded := append(os.Environ(), "MUSTER_REDIS__MODE=embedded")
	first := muster(t, embedded, b.onceArgs()...)
	first.until(t, "pages being fetched", func() bool { return b.pagesAsked() >= 100 })
	first.end(syscall.SIGKILL)

	second := muster(t, embedded, b.onceArgs()...)
	second.wait(t, 0)
	s := second.summary(t)
	if s.Redis != "embedded" {
		t.Errorf("it ran on Redis %q, want embedded", s.Redis)
	}
	wantAll(t, b.World, s)
	server := redistest.Server(t).URL()
	muster(t, embedded, "--config", b.conf, "store", "copy", "--to", server).wait(t, 0)
	list := muster(t, append(os.Environ(), "MUSTER_DATA_DIR="+t.TempDir()), "scrapes", "list", "--redis", server)
	if list.wait(t, 0); !strings.Contains(list.stdout.String(), "shop") {
		t.Errorf("the copy has the scrapes %s, want shop", list.stdout.String())
	}
	b.wantQuiet(t)
}

// wantFetchedOnce checks that only pages in flight at a kill were fetched twice.
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
		t.Errorf("%d pages were fetched again, want at most %d, the maximum in flight: %v", again, inFlight, which)
	}
}
