// Package sim runs the engine's objects and scripts under a scheduler and a clock that a seed decides on: random
// workflows, interleavings, crashes, lost, repeated and late calls, and clocks that differ. A history that goes
// wrong prints its seed, which mostly makes it again: the order of calls that the goroutines of a worker begin at
// the same time is not decided by it.
package sim

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"muster/internal/redistest"
	"muster/tasks/internal/engine"
	"muster/tasks/internal/store"
)

func TestMain(m *testing.M) { redistest.Main(m, func() error { return goleak.Find() }) }

const (
	seedVar      = "MUSTER_SIM_SEED"      // the seed of the only history to run
	firstVar     = "MUSTER_SIM_FIRST"     // the seed of the first history
	historiesVar = "MUSTER_SIM_HISTORIES" // how many histories TestSimulation runs
	histories    = 40
	mostReports  = 3 // failed histories that are shown; of the others, only the seeds
)

// eventWidth is how much of an argument events show: more when one history is looked at.
func eventWidth() int {
	if os.Getenv(seedVar) != "" {
		return 400
	}
	return 60
}

// newLane returns a connection for histories with scripts that Redis knows.
func newLane(t *testing.T, all ...*scripts) *link {
	t.Helper()
	l := newLink(t)
	for _, s := range all {
		e := engine.New(connection{l.rdb, keeper{&process{}}}, store.DefaultNamespace, slog.New(slog.DiscardHandler))
		e.UseScripts(s.built())
		s.load(l)
	}
	return l
}

// simulate runs the history of a seed. It is called outside of bubbles.
func simulate(t *testing.T, l *link, s *scripts, seed uint64) *history {
	h := newHistory(l, s, seed)
	hangs := time.AfterFunc(5*time.Minute, func() {
		panic(fmt.Sprintf("seed %d: the history hangs: does something wait for a mutex that is held during a call to Redis?", seed))
	})
	defer hangs.Stop()
	synctest.Test(t, func(*testing.T) { h.run() })
	if len(h.problem) == 0 {
		h.check(context.Background())
	}
	return h
}

func newHistory(l *link, s *scripts, seed uint64) *history {
	h := &history{seed: seed, width: eventWidth(), rng: rand.New(rand.NewPCG(seed, 0)), link: l, scripts: s, fleet: &fleet{}, shards: 1}
	if seed%3 == 0 {
		h.shards = clusterShards
	}
	return h
}

// report describes the failures of a history, and how to reproduce it.
func (h *history) report(most int) string {
	events := h.events[max(0, len(h.events)-most):]
	return fmt.Sprintf("seed %d: %s\n%s\nsee it again: %s=%d go test ./tasks/internal/sim -run '^TestSimulation$'",
		h.seed, strings.Join(h.problem, "\n\t"), strings.Join(events, "\n"), seedVar, h.seed)
}

func number(t *testing.T, name string, otherwise uint64) (n uint64, given bool) {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		return otherwise, false
	}
	n, err := strconv.ParseUint(v, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n, true
}

// In any order of steps, with calls that are lost or repeated, and processes that die: every workflow ends with the right
// result, every node becomes terminal, no continuation is missing, none runs twice in a history without faults, no node
// runs on two workers at once, and no keys are left.
func TestSimulation(t *testing.T) {
	t.Parallel()
	first, only := number(t, seedVar, 0)
	if !only {
		first, _ = number(t, firstVar, 1)
	}
	n, _ := number(t, historiesVar, histories)
	shown := keptEvents
	if only {
		n, shown = 1, mostSteps
	}
	sc := allScripts(nil)
	began := time.Now()
	var next, steps, retried, most atomic.Uint64
	var mu sync.Mutex // guards failed
	var failed []uint64
	var lanes sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		l := newLane(t, sc...)
		lanes.Go(func() {
			for i := next.Add(1) - 1; i < n; i = next.Add(1) - 1 {
				seed := first + i
				h := simulate(t, l, sc[seed%uint64(len(sc))], seed)
				steps.Add(uint64(h.steps))
				for m := most.Load(); uint64(h.steps) > m && !most.CompareAndSwap(m, uint64(h.steps)); m = most.Load() {
				}
				for _, f := range h.flows {
					if f.retried == "retried" {
						retried.Add(1)
					}
				}
				if len(h.problem) == 0 {
					continue
				}
				mu.Lock()
				if failed = append(failed, seed); len(failed) <= mostReports {
					t.Error(h.report(shown))
				}
				mu.Unlock()
			}
		})
	}
	lanes.Wait()
	if len(failed) > 0 {
		t.Errorf("%d of %d histories have failed; their seeds are %v", len(failed), n, failed)
	}
	t.Logf("%d histories from seed %d, %d steps (at most %d in one), %d retried workflows, %.0f histories/s", n, first, steps.Load(), most.Load(), retried.Load(), float64(n)/time.Since(began).Seconds())
}
