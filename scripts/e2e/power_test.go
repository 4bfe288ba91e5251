//go:build e2e && linux

package e2e

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"muster/internal/testutil"
)

// unsynced is the maximum age of writes that a Redis with appendfsync everysec has not synced: a second, and another one while the
// disk is busy.
const unsynced = 2 * time.Second

// past is the state of a run at one time.
type past struct {
	at    time.Time
	log   int64           // size of the append-only file
	asked int             // requested pages
	jobs  map[string]bool // jobs with records, by directory
}

// TestPowerCut kills all processes at a random time with SIGKILL and truncates a random part of the unsynced append-only file. The
// next run continues: it has the same jobs, unless they started in the truncated part; only pages in flight or of that part are
// fetched again, and each record exists once. MUSTER_E2E_POWER is the number of histories, MUSTER_E2E_SEED the first random seed.
func TestPowerCut(t *testing.T) {
	t.Parallel()
	histories, first := number(t, "MUSTER_E2E_POWER", 1), number(t, "MUSTER_E2E_SEED", 1)
	slots := make(chan struct{}, 2) // limits concurrent histories, so that the machine is not the bottleneck
	for seed := first; seed < first+histories; seed++ {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			slots <- struct{}{}
			defer func() { <-slots }()
			powerCut(t, rand.New(rand.NewPCG(uint64(seed), 0)))
		})
	}
}

func powerCut(t *testing.T, random *rand.Rand) {
	b := setup(t)
	var again int // pages that may be fetched again
	jobs := map[string]bool{}
	for cut := range 1 + random.IntN(3) {
		before := b.look()
		r := b.once(t, "--setting", "workers.processes=2")
		history := b.watch(r, before)
		moment := random.IntN(60)
		if cut > 0 || random.IntN(4) > 0 { // otherwise during the proxy check
			r.until(t, "pages being fetched", func() bool { return b.pagesAsked() >= (cut+1)*moment || r.ended() })
		}
		select {
		case <-time.After(time.Duration(random.IntN(1500)) * time.Millisecond):
		case <-r.done:
		}
		if r.ended() {
			t.Logf("cut %d: the run had exited before", cut)
			break
		}
		b.killAll(t, r)
		synced := history.at(time.Now().Add(-unsynced))
		now := b.cutLog(t, random, synced.log)
		asked := b.pagesAsked() - synced.asked
		again += asked + 2*concurrency
		maps.Copy(jobs, synced.jobs)
		for _, site := range b.Sites() { // the next run starts a new job for a finished one
			if ended, _ := filepath.Glob(filepath.Join(b.out, site.Name, "*", "report.json")); len(ended) > 0 {
				maps.DeleteFunc(jobs, func(dir string, _ bool) bool { return filepath.Dir(dir) == filepath.Join(b.out, site.Name) })
				again += site.Traffic().Requests()
			}
		}
		t.Logf("cut %d after %d pages: the log was truncated from %d to %d bytes, at least %d; %d pages in that time", cut, b.pagesAsked(), now[0], now[1], synced.log, asked)
	}
	r := b.once(t, "--setting", "workers.processes=2")
	r.wait(t, 0)
	s := r.summary(t)
	wantAll(t, b.World, s)
	for _, site := range s.Sites {
		for dir := range jobs {
			if filepath.Dir(dir) == filepath.Join(b.out, site.Site) && filepath.Base(dir) != site.JobID {
				t.Errorf("%s: got job %s, want the job before the cut, %s", site.Site, site.JobID, filepath.Base(dir))
			}
		}
	}
	b.wantFetchedOnce(t, again)
	b.wantQuiet(t)
}

// watched contains the recorded states of a run.
type watched struct {
	mu      sync.Mutex // guards moments
	moments []past
}

// look returns the current state.
func (b *bench) look() past {
	now := past{at: time.Now(), log: logSize(b.logFile()), asked: b.pagesAsked(), jobs: map[string]bool{}}
	folders, _ := filepath.Glob(filepath.Join(b.out, "*", "*", "*.jsonl")) // the pattern is valid
	for _, f := range folders {
		now.jobs[filepath.Dir(f)] = true
	}
	return now
}

// watch records the state of a run until it exits. before is the state before the run.
func (b *bench) watch(r *run, before past) *watched {
	w := &watched{moments: []past{before}}
	go func() {
		for tick := time.NewTicker(20 * time.Millisecond); ; {
			now := b.look()
			w.mu.Lock()
			w.moments = append(w.moments, now)
			w.mu.Unlock()
			select {
			case <-tick.C:
			case <-r.done:
				tick.Stop()
				return
			}
		}
	}()
	return w
}

// at returns the last recorded state before a time.
func (w *watched) at(when time.Time) past {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range slices.Backward(w.moments) {
		if p.at.Before(when) {
			return p
		}
	}
	return w.moments[0]
}

// logFile returns the current part of the append-only file, or "".
func (b *bench) logFile() string {
	parts, _ := filepath.Glob(filepath.Join(b.data, "redis", "appendonlydir", "*.incr.aof")) // the pattern is valid
	if len(parts) == 0 {
		return ""
	}
	return newestPart(parts)
}

// newestPart returns the part with the highest number, as in appendonly.aof.12.incr.aof.
func newestPart(parts []string) string {
	count := func(part string) int {
		fields := strings.Split(filepath.Base(part), ".")
		n, _ := strconv.Atoi(fields[len(fields)-3]) // the pattern ensures a number
		return n
	}
	return slices.MaxFunc(parts, func(a, b string) int { return count(a) - count(b) })
}

func logSize(file string) int64 {
	info, err := os.Stat(file)
	if err != nil {
		return 0
	}
	return info.Size()
}

// killAll kills all processes of a run and waits for their exit.
func (b *bench) killAll(t *testing.T, r *run) {
	t.Helper()
	children := append(b.redis(t), b.workers(t)...)
	for _, pid := range append([]int{r.cmd.Process.Pid}, children...) {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have exited with another process
	}
	<-r.done
	testutil.Eventually(t, "all processes have exited", func() bool {
		return !slices.ContainsFunc(children, func(pid int) bool { return syscall.Kill(pid, 0) == nil })
	})
}

// cutLog truncates the append-only file at a random byte after synced and returns its old and new length.
func (b *bench) cutLog(t *testing.T, random *rand.Rand, synced int64) [2]int64 {
	t.Helper()
	file := b.logFile()
	if file == "" {
		return [2]int64{} // Redis had not started
	}
	size := logSize(file)
	synced = min(synced, size) // Redis truncates an incomplete end at startup
	to := synced + random.Int64N(size-synced+1)
	testutil.Ok(t, os.Truncate(file, to))
	return [2]int64{size, to}
}
