package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The workload of a turn.
const (
	singles      = 10_000 // queued tasks before the worker starts
	chainSteps   = 10
	chordSize    = 100
	chainsAtOnce = 100
	chordsAtOnce = 20
	alone        = 5                      // sequential chains and chords
	latencies    = 100                    // maximum number of tasks on an idle worker
	latencyFor   = 6 * time.Second        // duration of the measurement
	idlePause    = 25 * time.Millisecond  // pause between tasks
	steadyFor    = 4 * time.Second        // duration of the measurement at each rate
	fanSize      = 500                    // tasks of 100 ms
	settle       = 500 * time.Millisecond // pause after a worker is ready
	phaseLimit   = 2 * time.Minute
)

// recoveryLimit is the timeout for the task of a killed worker; asynq may take 165 s.
const recoveryLimit = 200 * time.Second

// steadyRates are the rates, in tasks/s, at which single tasks are sent.
var steadyRates = []int{20, 200, 2000}

// outcome contains the measurements of a system, one value per turn. Slices for unsupported features are empty.
type outcome struct {
	System system

	EnqueueRate, EnqueueCPU, EnqueueStoreCPU []float64 // tasks/s, µs
	BulkRate, BulkCPU                        []float64
	Bytes                                    []float64     // of a queued task
	Rate, WorkerCPU, StoreCPU                []float64     // tasks/s, µs
	Latency                                  []float64     // ms, of all turns
	Chain                                    []float64     // ms, of all turns
	ChainRate, ChainCPU                      []float64     // steps/s, µs of worker and store
	Chord                                    []float64     // ms, of all turns
	ChordRate, ChordCPU                      []float64     // members/s, µs of worker and store
	Steady                                   []steady      // at steadyRates
	Fan, FanCPU                              []float64     // ms until the last task has ended; µs of worker and store per task
	Recovered                                time.Duration // time after SIGKILL of a worker; 0 if not within recoveryLimit
}

// steady contains the measurements at a rate, one value per turn.
type steady struct {
	Rate                     int       // asked for, tasks/s
	Sent                     []float64 // tasks/s
	Client, Worker, StoreCPU []float64 // µs per task
	P50, P99                 []float64 // ms from sending until a task runs
}

// bench is the state shared by the turns.
type bench struct {
	dir   string
	count int // number of stores
}

// room is a store with the marks of its tasks.
type room struct {
	system *system
	store  *store
	marks  *marks
	env    []string
}

// open starts an empty store for a system.
func (b *bench) open(ctx context.Context, s *system) (*room, error) {
	b.count++
	dir := filepath.Join(b.dir, fmt.Sprint("store", b.count))
	startStore := startRedis
	if s.Store == "postgres" {
		startStore = startPostgres
	}
	st, err := startStore(ctx, dir)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(b.dir, fmt.Sprint("marks", b.count))
	m, err := openMarks(path)
	if err != nil {
		return nil, errors.Join(err, st.close())
	}
	r := &room{system: s, store: st, marks: m, env: []string{"PEER_URL=" + st.url, "PEER_MARKS=" + path}}
	if s.Store == "postgres" {
		if _, err := r.run(ctx, "setup"); err != nil {
			return nil, errors.Join(err, r.close())
		}
	}
	return r, nil
}

func (r *room) close() error { return errors.Join(r.marks.close(), r.store.close()) }

// run runs a command of the peer and returns its output.
func (r *room) run(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, phaseLimit)
	defer cancel()
	return output(ctx, r.workFolder(), r.env, append(slices.Clone(r.system.command), args...)...)
}

// workFolder returns the working directory of peers, which is temporary.
func (r *room) workFolder() string { return filepath.Dir(r.marks.file.Name()) }

// worker starts a worker with n slots and returns when it is ready.
func (r *room) worker(n int) (*process, error) {
	p, err := start(nil, r.env, append(slices.Clone(r.system.command), "work", strconv.Itoa(n))...)
	if err != nil {
		return nil, err
	}
	if err := p.await("ready", time.Minute); err != nil {
		p.kill()
		return nil, err
	}
	return p, nil
}

// turn measures a system once.
func (b *bench) turn(ctx context.Context, o *outcome) error {
	r, err := b.open(ctx, &o.System)
	if err != nil {
		return err
	}
	return errors.Join(r.turn(ctx, o), r.close())
}

func (r *room) turn(ctx context.Context, o *outcome) error {
	began := time.Now()
	idle, err := r.withWorker(ctx, o)
	if err != nil {
		return err
	}
	if err := r.singles(ctx, o, idle); err != nil {
		return err
	}
	if err := r.bulk(ctx, o); err != nil {
		return err
	}
	if err := r.fan(ctx, o); err != nil {
		return err
	}
	say("  %.0f tasks/s, took %v", o.Rate[len(o.Rate)-1], time.Since(began).Round(time.Second))
	return nil
}

// withWorker runs the measurements that require an idle worker. It returns the CPU time of the worker start.
func (r *room) withWorker(ctx context.Context, o *outcome) (time.Duration, error) {
	w, err := r.worker(concurrency)
	if err != nil {
		return 0, err
	}
	defer w.kill()
	idle, err := w.cpu()
	if err != nil {
		return 0, err
	}
	if err := sleep(ctx, settle); err != nil {
		return 0, err
	}
	s, err := r.sender()
	if err != nil {
		return 0, err
	}
	defer s.kill()
	if err := r.latency(ctx, s, o); err != nil {
		return 0, err
	}
	if err := r.steady(ctx, s, w, o); err != nil {
		return 0, err
	}
	chain := canvas{"chain", chainSteps, "step", chainSteps, chainsAtOnce}
	chord := canvas{"chord", chordSize, "body", 1, chordsAtOnce}
	if err := r.canvas(ctx, s, w, chain, &o.Chain, &o.ChainRate, &o.ChainCPU); err != nil {
		return 0, err
	}
	return idle, r.canvas(ctx, s, w, chord, &o.Chord, &o.ChordRate, &o.ChordCPU)
}

// sender is a process that sends tasks on request.
type sender struct{ *process }

func (r *room) sender() (sender, error) {
	p, err := start(nil, r.env, append(slices.Clone(r.system.command), "send")...)
	return sender{p}, err
}

// send sends a task or a workflow. It returns the Unix time in µs before sending; ok is false if the system does not support the
// kind.
func (s sender) send(kind string, id, size int) (began int64, ok bool, err error) {
	if _, err := fmt.Fprintln(s.stdin, kind, id, size); err != nil {
		return 0, false, err
	}
	line, err := s.line()
	if err != nil || line == "none" {
		return 0, false, err
	}
	began, err = strconv.ParseInt(line, 10, 64)
	return began, err == nil, err
}

// latency sends single tasks, each after the previous one has run and the worker is idle.
func (r *room) latency(ctx context.Context, s sender, o *outcome) error {
	until := time.Now().Add(latencyFor)
	for i := 0; i <= latencies && (i < 2 || time.Now().Before(until)); i++ {
		from := len(r.marks.all)
		began, _, err := s.send("single", -1-i, 0)
		if err != nil {
			return err
		}
		ran, err := r.marks.await(ctx, from, "single", 1, phaseLimit)
		if err != nil {
			return err
		}
		if i > 0 { // the first task opens the connections
			o.Latency = append(o.Latency, float64(ran[0].at-began)/1000)
		}
		if err := sleep(ctx, idlePause); err != nil {
			return err
		}
	}
	return nil
}

// steady sends single tasks at each of steadyRates. CPU times include the cost of an idle worker. A sender that is too slow sends at
// its own rate.
func (r *room) steady(ctx context.Context, s sender, w *process, o *outcome) error {
	if o.Steady == nil {
		for _, rate := range steadyRates {
			o.Steady = append(o.Steady, steady{Rate: rate})
		}
	}
	all := []*process{s.process, w, r.store.process}
	for i := range o.Steady {
		at := &o.Steady[i]
		before, err := cpus(all)
		if err != nil {
			return err
		}
		from, start, sent := len(r.marks.all), time.Now(), map[int]int64{}
		for n := 0; time.Since(start) < steadyFor; n++ {
			if err := sleep(ctx, time.Until(start.Add(time.Duration(n)*time.Second/time.Duration(at.Rate)))); err != nil {
				return err
			}
			if sent[n], _, err = s.send("single", n, 0); err != nil {
				return err
			}
		}
		took := time.Since(start)
		ran, err := r.marks.await(ctx, from, "single", len(sent), phaseLimit)
		if err != nil {
			return err
		}
		after, err := cpus(all)
		if err != nil {
			return err
		}
		n := float64(len(sent))
		at.Sent = append(at.Sent, n/took.Seconds())
		for k, to := range []*[]float64{&at.Client, &at.Worker, &at.StoreCPU} {
			*to = append(*to, float64((after[k]-before[k]).Microseconds())/n)
		}
		waits := make([]float64, len(ran))
		for k, m := range ran {
			waits[k] = float64(m.at-sent[m.id]) / 1000
		}
		at.P50, at.P99 = append(at.P50, quantile(waits, 0.5)), append(at.P99, quantile(waits, 0.99))
	}
	return nil
}

// cpus returns the CPU times of processes.
func cpus(all []*process) ([]time.Duration, error) {
	out := make([]time.Duration, len(all))
	for i, p := range all {
		var err error
		if out[i], err = p.cpu(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// fan measures parallel tasks that wait, on a worker with many slots.
func (r *room) fan(ctx context.Context, o *outcome) error {
	from := len(r.marks.all)
	w, err := r.worker(napsAtOnce)
	if err != nil {
		return err
	}
	defer w.kill()
	// The tasks of bulk run first.
	if _, err := r.marks.await(ctx, from, "single", singles*min(1, len(o.BulkRate)), phaseLimit); err != nil {
		return err
	}
	s, err := r.sender()
	if err != nil {
		return err
	}
	defer s.kill()
	if err := sleep(ctx, settle); err != nil {
		return err
	}
	before, err := r.busy(w)
	if err != nil {
		return err
	}
	from = len(r.marks.all)
	began, ok, err := s.send("fan", 0, fanSize)
	if err != nil || !ok {
		return err
	}
	ran, err := r.marks.await(ctx, from, "nap", fanSize, phaseLimit)
	if err != nil {
		return err
	}
	after, err := r.busy(w)
	if err != nil {
		return err
	}
	o.Fan = append(o.Fan, float64(ran[len(ran)-1].at-began)/1000)
	o.FanCPU = append(o.FanCPU, float64((after-before).Microseconds())/fanSize)
	return nil
}

// canvas describes a kind of workflow.
type canvas struct {
	kind      string
	size      int
	ends      string // kind of the last task
	endsEach  int    // number of marks of that kind per workflow
	manyCount int    // number of concurrent workflows
}

// canvas measures workflows: first sequentially on an idle worker, then concurrently.
func (r *room) canvas(ctx context.Context, s sender, w *process, c canvas, took, rate, cpu *[]float64) error {
	for i := range 1 + alone {
		from := len(r.marks.all)
		began, ok, err := s.send(c.kind, i, c.size)
		if err != nil || !ok {
			return err
		}
		ran, err := r.marks.await(ctx, from, c.ends, c.endsEach, phaseLimit)
		if err != nil {
			return err
		}
		if i > 0 { // the first workflow warms up
			*took = append(*took, float64(ran[len(ran)-1].at-began)/1000)
		}
		if err := sleep(ctx, idlePause); err != nil {
			return err
		}
	}

	before, err := r.busy(w)
	if err != nil {
		return err
	}
	from, first := len(r.marks.all), int64(0)
	for i := range c.manyCount {
		began, _, err := s.send(c.kind, i, c.size)
		if err != nil {
			return err
		}
		if i == 0 {
			first = began
		}
	}
	ran, err := r.marks.await(ctx, from, c.ends, c.endsEach*c.manyCount, phaseLimit)
	if err != nil {
		return err
	}
	after, err := r.busy(w)
	if err != nil {
		return err
	}
	tasks := float64(c.manyCount * c.size)
	*rate = append(*rate, tasks/(float64(ran[len(ran)-1].at-first)/1e6))
	*cpu = append(*cpu, float64((after-before).Microseconds())/tasks)
	return nil
}

// busy returns the CPU time of a worker and the store.
func (r *room) busy(w *process) (time.Duration, error) {
	worker, err := w.cpu()
	store, err1 := r.store.process.cpu()
	return worker + store, errors.Join(err, err1)
}

// singles measures sending single tasks, their memory in the store, and a worker that runs them. idle is the CPU time of a worker
// start.
func (r *room) singles(ctx context.Context, o *outcome, idle time.Duration) error {
	bytes, err := r.store.used(ctx)
	if err != nil {
		return err
	}
	busy, err := r.store.process.cpu()
	if err != nil {
		return err
	}
	seconds, cpu, _, err := r.enqueue(ctx, "enqueue")
	if err != nil {
		return err
	}
	after, err := r.store.used(ctx)
	if err != nil {
		return err
	}
	sent, err := r.store.process.cpu()
	if err != nil {
		return err
	}

	from := len(r.marks.all)
	w, err := r.worker(concurrency)
	if err != nil {
		return err
	}
	defer w.kill()
	ran, err := r.marks.await(ctx, from, "single", singles, phaseLimit)
	if err != nil {
		return err
	}
	worker, err := w.cpu()
	if err != nil {
		return err
	}
	done, err := r.store.process.cpu()
	if err != nil {
		return err
	}
	if got := distinct(ran); got < singles {
		return fmt.Errorf("%d of %d tasks ran; some ran more than once", got, singles)
	}
	o.EnqueueRate = append(o.EnqueueRate, singles/seconds)
	o.EnqueueCPU = append(o.EnqueueCPU, cpu/singles)
	o.EnqueueStoreCPU = append(o.EnqueueStoreCPU, each(sent-busy))
	o.Bytes = append(o.Bytes, (after-bytes)/singles)
	o.Rate = append(o.Rate, singles/span(ran).Seconds())
	o.WorkerCPU = append(o.WorkerCPU, each(worker-idle))
	o.StoreCPU = append(o.StoreCPU, each(done-sent))
	return nil
}

// each returns the duration per task in µs.
func each(d time.Duration) float64 { return float64(d.Microseconds()) / singles }

// enqueue runs the command enqueue or bulk. cpu is in µs.
func (r *room) enqueue(ctx context.Context, command string) (seconds, cpu float64, ok bool, err error) {
	out, err := r.run(ctx, command, strconv.Itoa(singles))
	if err != nil || strings.TrimSpace(out) == "none" {
		return 0, 0, false, err
	}
	if _, err := fmt.Sscan(out, &seconds, &cpu); err != nil {
		return 0, 0, false, fmt.Errorf("%s printed %q, want the seconds and the µs of CPU time: %w", command, out, err)
	}
	return seconds, cpu, true, nil
}

// bulk measures sending many tasks with one call.
func (r *room) bulk(ctx context.Context, o *outcome) error {
	seconds, cpu, ok, err := r.enqueue(ctx, "bulk")
	if err != nil || !ok {
		return err
	}
	o.BulkRate = append(o.BulkRate, singles/seconds)
	o.BulkCPU = append(o.BulkCPU, cpu/singles)
	return nil
}

// recoveries measures, for all systems concurrently, the time until a task of a killed worker runs again. The machine is idle
// meanwhile.
func (b *bench) recoveries(ctx context.Context, all []*outcome) error {
	var group sync.WaitGroup
	errs := make([]error, len(all))
	for i, o := range all {
		r, err := b.open(ctx, &o.System)
		if err != nil {
			errs[i] = err
			break
		}
		group.Go(func() {
			err := r.recovery(ctx, o)
			errs[i] = errors.Join(err, r.close())
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

func (r *room) recovery(ctx context.Context, o *outcome) error {
	w, err := r.worker(concurrency)
	if err != nil {
		return err
	}
	defer w.kill()
	s, err := r.sender()
	if err != nil {
		return err
	}
	defer s.kill()
	if _, _, err := s.send("slow", 1, 0); err != nil {
		return err
	}
	if _, err := r.marks.await(ctx, 0, "slow", 1, phaseLimit); err != nil {
		return err
	}
	if err := sleep(ctx, settle); err != nil {
		return err
	}
	w.kill()
	killed := time.Now()
	second, err := r.worker(concurrency)
	if err != nil {
		return err
	}
	defer second.kill()
	again, err := r.marks.await(ctx, 1, "slow", 1, recoveryLimit)
	if errors.Is(err, errLate) {
		return nil
	}
	if err == nil {
		o.Recovered = time.UnixMicro(again[0].at).Sub(killed)
		say("  %s ran the task again after %v", o.System.Name, o.Recovered.Round(100*time.Millisecond))
	}
	return err
}
