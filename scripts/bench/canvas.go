package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"runtime"
	"slices"
	"time"

	"muster/tasks"
	"muster/tasks/tasktype"
)

var (
	benchStep  = tasks.New[int, int]("bench.step")            // returns its input
	benchSleep = tasks.New[time.Duration, int]("bench.sleep") // sleeps for its input
	benchNap   = tasks.New[int, int]("bench.nap")             // sleeps for 20 ms
	benchSince = tasks.New[int64, int64]("bench.since")       // returns the µs since its input, a unix time in µs
	benchSum   = tasks.New[[]int, int]("bench.sum")
	benchAsk   = tasks.New[int, int]("bench.ask", tasks.External())
)

const nap = 20 * time.Millisecond

func benchMux() *tasks.Mux {
	mux := tasks.NewMux()
	tasks.Handle(mux, benchStep, func(_ context.Context, i int) (int, error) { return i, nil })
	tasks.Handle(mux, benchSleep, func(_ context.Context, d time.Duration) (int, error) {
		time.Sleep(d)
		return 0, nil
	})
	tasks.Handle(mux, benchNap, func(_ context.Context, i int) (int, error) {
		time.Sleep(nap)
		return i, nil
	})
	tasks.Handle(mux, benchSince, func(_ context.Context, us int64) (int64, error) {
		return time.Now().UnixMicro() - us, nil
	})
	tasks.Handle(mux, benchSum, func(_ context.Context, is []int) (int, error) {
		sum := 0
		for _, i := range is {
			sum += i
		}
		return sum, nil
	})
	return mux
}

func chains(n, steps int) measureFunc {
	return onFleet(1, 8, timed(func(ctx context.Context, f *fleet) error {
		runs := make([]*tasks.AsyncResult[int], n)
		for i := range runs {
			s := benchStep.S(1)
			for range steps - 1 {
				s = tasks.Chain(s, benchStep)
			}
			run, err := s.Send(ctx, f.client)
			if err != nil {
				return err
			}
			runs[i] = run
		}
		for _, run := range runs {
			if _, err := run.Wait(ctx); err != nil {
				return err
			}
		}
		return nil
	}))
}

func runChord(ctx context.Context, f *fleet, n int) error {
	got, err := sendWait(ctx, f.client, tasks.Chord(tasks.Each(seq(n), benchStep), benchSum))
	if want := n * (n - 1) / 2; err == nil && got != want {
		err = fmt.Errorf("the sum of a chord of %d is %d, want %d", n, got, want)
	}
	return err
}

func chord(n int) measureFunc {
	return onFleet(1, 8, timed(func(ctx context.Context, f *fleet) error { return runChord(ctx, f, n) }))
}

// runGroup sends a group of n as one workflow, and waits for its values.
func runGroup(ctx context.Context, f *fleet, n int) error {
	got, err := sendWait(ctx, f.client, tasks.Each(seq(n), benchStep))
	if err == nil && !slices.Equal(got, seq(n)) {
		err = fmt.Errorf("a group of %d does not yield the values of its members", n)
	}
	return err
}

func group(n, workers, slots int) measureFunc {
	return rate(n, onFleet(workers, slots, timed(func(ctx context.Context, f *fleet) error { return runGroup(ctx, f, n) })))
}

// sendSingles sends n tasks, and returns when they have run.
func sendSingles(ctx context.Context, f *fleet, n int) error {
	before := f.succeeded()
	err := bySenders(n, func(i int) error {
		_, err := benchStep.S(i).Send(ctx, f.client)
		return err
	})
	for err == nil && f.succeeded() < before+int64(n) {
		time.Sleep(time.Millisecond)
		err = ctx.Err()
	}
	return err
}

func singles(n int) measureFunc {
	return rate(n, onFleet(1, 8, timed(func(ctx context.Context, f *fleet) error { return sendSingles(ctx, f, n) })))
}

func sendGroup(n int) measureFunc {
	return func(ctx context.Context, l *lab) (float64, error) {
		c, err := tasks.Connect(ctx, l.url())
		if err != nil {
			return 0, err
		}
		began := time.Now()
		_, err = tasks.Each(make([]int, n), benchStep).Send(ctx, c)
		took := time.Since(began)
		return float64(n) / took.Seconds(), errors.Join(err, c.Close())
	}
}

func redisPerNode(n int) measureFunc {
	return onFleet(1, 8, func(ctx context.Context, l *lab, f *fleet) (float64, error) {
		used, err := l.redisTime(ctx, func() error { return runGroup(ctx, f, n) })
		return used / float64(n), err
	})
}

func redisPerSingle() measureFunc {
	return onFleet(1, 8, func(ctx context.Context, l *lab, f *fleet) (float64, error) {
		before := f.succeeded()
		v, err := l.redisPaced(ctx, func(i int) error {
			_, err := benchNap.S(i).Send(ctx, f.client)
			return err
		})
		if got := f.succeeded() - before; err == nil && got != paced {
			err = fmt.Errorf("got %d ended tasks, want %d: the worker does not keep up", got, paced)
		}
		return v, err
	})
}

const crowd = 100_000 // members of the group that others are sent behind

// behind takes n samples while a large group of empty tasks runs. It sends another such group when one ends.
func behind(ctx context.Context, f *fleet, n int, sample func() (float64, error)) ([]float64, error) {
	var vs []float64
	for len(vs) < n {
		run, err := tasks.Each(make([]int, crowd), benchStep).Send(ctx, f.client)
		if err != nil {
			return nil, err
		}
		for len(vs) < n {
			p, err := run.Progress(ctx)
			if err != nil {
				return nil, err
			}
			if p.Ended {
				break
			}
			v, err := sample()
			if err != nil {
				return nil, err
			}
			vs = append(vs, v)
		}
	}
	return vs, nil
}

// highPriority is how long tasks with a priority wait for their handler behind a large group: the 99th percentile, in
// ms.
func highPriority() measureFunc {
	return onFleet(1, 8, func(ctx context.Context, _ *lab, f *fleet) (float64, error) {
		waits, err := behind(ctx, f, 300, func() (float64, error) {
			us, err := sendWait(ctx, f.client, benchSince.S(time.Now().UnixMicro(), tasks.Priority(1)))
			return float64(us) / 1000, err
		})
		slices.Sort(waits)
		if err != nil {
			return 0, err
		}
		return waits[len(waits)*99/100], nil
	})
}

// tenBehind is how long a group of ten takes behind a large one: the worst of some, in ms.
func tenBehind() measureFunc {
	return onFleet(1, 8, func(ctx context.Context, _ *lab, f *fleet) (float64, error) {
		took, err := behind(ctx, f, 5, func() (float64, error) {
			return timed(func(ctx context.Context, f *fleet) error { return runGroup(ctx, f, 10) })(ctx, nil, f)
		})
		if err != nil {
			return 0, err
		}
		return slices.Max(took), nil
	})
}

const mixedWorkers, mixedSlots = 2, 8

// mixedTasks are 500 tasks, of which one in ten is long. The order is the same each time.
func mixedTasks() []time.Duration {
	random := rand.New(rand.NewSource(7))
	ds := make([]time.Duration, 500)
	for i := range ds {
		ds[i] = time.Millisecond
		if random.Intn(10) == 0 {
			ds[i] = 500 * time.Millisecond
		}
	}
	return ds
}

func mixed() measureFunc {
	return onFleet(mixedWorkers, mixedSlots, timed(func(ctx context.Context, f *fleet) error {
		_, err := sendWait(ctx, f.client, tasks.Each(mixedTasks(), benchSleep))
		return err
	}))
}

// mixedIdeal is how long the tasks take, in ms, if each one in order starts at no cost on the slot that is free
// first.
func mixedIdeal() float64 {
	busy := make([]time.Duration, mixedWorkers*mixedSlots)
	for _, d := range mixedTasks() {
		busy[slices.Index(busy, slices.Min(busy))] += d
	}
	return ms(slices.Max(busy))
}

func idleLoad() measureFunc {
	return onFleet(1, 8, func(ctx context.Context, l *lab, _ *fleet) (float64, error) {
		const span = 20 * time.Second
		time.Sleep(2 * time.Second)
		before, err := l.info(ctx, "total_commands_processed")
		if err != nil {
			return 0, err
		}
		time.Sleep(span)
		after, err := l.info(ctx, "total_commands_processed")
		return (after - before) / span.Seconds(), err
	})
}

// bytesPer is how many bytes Redis keeps for each of n nodes after work with them.
func bytesPer(n int, work func(context.Context, *fleet, int) error) measureFunc {
	return onFleet(1, 8, func(ctx context.Context, l *lab, f *fleet) (float64, error) {
		before, err := l.info(ctx, "used_memory")
		if err != nil {
			return 0, err
		}
		if err := errors.Join(work(ctx, f, n), f.stop()); err != nil {
			return 0, err
		}
		after, err := l.info(ctx, "used_memory")
		return (after - before) / float64(n), err
	})
}

// openMembers opens n external tasks as one group. They have no tokens yet, and must cost no goroutine.
func openMembers(ctx context.Context, f *fleet, n int) error {
	before := runtime.NumGoroutine()
	if _, err := tasks.Each(make([]int, n), benchAsk).Send(ctx, f.client); err != nil {
		return err
	}
	if _, err := waitOpen(ctx, f, n); err != nil {
		return err
	}
	if more := runtime.NumGoroutine() - before; more > 100 {
		return fmt.Errorf("%d open nodes cost %d goroutines", n, more)
	}
	return nil
}

// openSingles opens n workflows of one external task, and makes a token for each.
func openSingles(ctx context.Context, f *fleet, n int) error {
	for i := range n {
		if _, err := benchAsk.S(i).Send(ctx, f.client); err != nil {
			return err
		}
	}
	open, err := waitOpen(ctx, f, n)
	for _, o := range open {
		if _, err := f.client.NewToken(ctx, o.Workflow, o.Node); err != nil {
			return err
		}
	}
	return err
}

// waitOpen waits until n nodes are open, and returns them.
func waitOpen(ctx context.Context, f *fleet, n int) (open []tasktype.OpenToken, err error) {
	for cursor := ""; len(open) < n; {
		page, next, err := f.client.OpenTokens(ctx, benchAsk.Name(), cursor)
		if err != nil {
			return nil, err
		}
		open = append(open, page...)
		if cursor = next; next == "" && len(open) < n { // not all are open yet: from the start again
			open = nil
			time.Sleep(100 * time.Millisecond)
		}
	}
	return open, nil
}

// memoryAfter is the heap of a worker after some chords of 10,000, in MB.
func memoryAfter(chords int) measureFunc {
	return onFleet(1, 8, func(ctx context.Context, _ *lab, f *fleet) (float64, error) {
		for range chords {
			if err := runChord(ctx, f, 10000); err != nil {
				return 0, err
			}
		}
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc) / 1e6, nil
	})
}

const killNodes = 50_000

// groupWithKills is how long a group of 50,000 tasks of 20 ms takes, in s, on three worker processes that are killed one
// after the other. It fails unless all values are right. The other workers must find the dead ones by themselves:
// tasks.ExpireLeases is not called.
func groupWithKills(kills int) measureFunc {
	return func(ctx context.Context, l *lab) (_ float64, err error) {
		c := tasks.NewClient(l.rdb)
		defer func() { err = errors.Join(err, c.Close()) }()
		workers, err := startChildren(ctx, l, childNap, 3)
		if err != nil {
			return 0, err
		}
		defer workers.close()
		began := time.Now()
		run, err := tasks.Each(seq(killNodes), benchNap).Send(ctx, c)
		if err != nil {
			return 0, err
		}
		done := func() (int, error) {
			p, err := run.Progress(ctx)
			return p.Done, err
		}
		if err := workers.killAll(ctx, kills, killNodes, done, nil); err != nil {
			return 0, err
		}
		got, err := run.Wait(ctx)
		took := time.Since(began)
		if err == nil && !slices.Equal(got, seq(killNodes)) {
			err = fmt.Errorf("after %d kills the group does not yield the values of its members", kills)
		}
		return took.Seconds(), err
	}
}

// killAllowance is how long the group may take with kills, in s: 1.3 times as long as without, and 10 s.
func killAllowance(ctx context.Context, l *lab) (float64, error) {
	v, err := groupWithKills(0)(ctx, l)
	return 1.3*v + 10, err
}
