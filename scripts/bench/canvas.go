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

// canvasRows measure workflows, many of them against the same work written by hand on asynq.
func canvasRows() []row {
	return []row{
		{name: "canvas.chain_50", unit: "ms", measure: chains(1, 50), yardstick: rawChains(1, 50), bar: atMost(0.02)},
		{name: "canvas.chains_100_of_10", unit: "ms", measure: chains(100, 10), yardstick: rawChains(100, 10), bar: atMost(0.45)},
		{name: "canvas.chord_1000", unit: "ms", measure: chord(1000), yardstick: rawChord(1000), bar: atMost(0.25)},
		{name: "canvas.chord_10000_of_1000", unit: "ms", measure: chord(10000), yardstick: chord(1000), bar: atMost(11)},
		{name: "canvas.group_20000_c8", unit: "nodes/s", measure: group(20000, 1, 8), yardstick: rawGroup(20000, 1, 8), bar: atLeast(6)},
		{name: "canvas.group_20000_c64", unit: "nodes/s", measure: group(20000, 1, 64), yardstick: rawGroup(20000, 1, 64), bar: atLeast(6)},
		{name: "canvas.group_20000_w2_c8", unit: "nodes/s", measure: group(20000, 2, 8), yardstick: rawGroup(20000, 2, 8), bar: atLeast(6)},
		{name: "canvas.singles_20000_c8", unit: "tasks/s", measure: singles(20000), yardstick: rawSingles(20000), bar: atLeast(1.5)},
		{name: "canvas.send_group_10000", unit: "tasks/s", measure: sendGroup(10000), yardstick: rawSend(10000), bar: atLeast(10)},
		{name: "canvas.redis_per_node_20000", unit: "µs", measure: redisPerNode(20000), bar: atMost(15)},
		{name: "canvas.redis_per_single_20ms", unit: "µs", measure: redisPerSingle, yardstick: rawRedisPerSingle, bar: atMost(1)},
		{name: "canvas.high_priority_p99", unit: "ms", measure: highPriority, bar: atMost(25)},
		{name: "canvas.ten_behind_100000", unit: "ms", measure: tenBehind, bar: atMost(150)},
		{name: "canvas.mixed_500_w2_c8", unit: "ms", measure: mixed, yardstick: mixedIdeal, bar: atMost(1.08)},
		{name: "canvas.idle", unit: "commands/s", rounds: 1, measure: idleLoad, bar: atMost(10)},
		{name: "canvas.bytes_per_node", unit: "bytes", rounds: 1, measure: bytesPerNode(10000), bar: atMost(100)},
		{name: "canvas.bytes_per_single", unit: "bytes", rounds: 1, measure: bytesPerSingle(10000), bar: atMost(300)},
		{name: "canvas.bytes_per_open_100000", unit: "bytes", rounds: 1, measure: bytesPer(100000, openMembers(100000)), bar: atMost(400)},
		{name: "canvas.bytes_per_open_single", unit: "bytes", rounds: 1, measure: bytesPer(10000, openSingles(10000)), bar: atMost(1100)},
		{name: "canvas.chord_10000_memory", unit: "MB", rounds: 1, measure: memoryAfter(12), yardstick: memoryAfter(2), bar: atMost(1.2)},
		{name: "canvas.kills_30", unit: "s", rounds: 1, limit: killLimit, measure: withKills(30), yardstick: killAllowance, bar: atMost(1)},
	}
}

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

var redisPerSingle = onFleet(1, 8, func(ctx context.Context, l *lab, f *fleet) (float64, error) {
	before := f.succeeded()
	v, err := l.redisPaced(ctx, func(i int) error {
		_, err := benchNap.S(i).Send(ctx, f.client)
		return err
	})
	if got := f.succeeded() - before; err == nil && got != paced {
		err = fmt.Errorf("got %d tasks that have ended, want %d: the worker does not keep up", got, paced)
	}
	return v, err
})

const crowd = 100_000 // members of the group that others are sent behind

// behind takes n samples while a large group of empty tasks runs. It sends more such groups if one ends before.
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
var highPriority = onFleet(1, 8, func(ctx context.Context, _ *lab, f *fleet) (float64, error) {
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

// tenBehind is how long a group of ten takes behind a large one: the worst of some, in ms.
var tenBehind = onFleet(1, 8, func(ctx context.Context, _ *lab, f *fleet) (float64, error) {
	took, err := behind(ctx, f, 5, func() (float64, error) {
		return timed(func(ctx context.Context, f *fleet) error { return runGroup(ctx, f, 10) })(ctx, nil, f)
	})
	if err != nil {
		return 0, err
	}
	return slices.Max(took), nil
})

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

var mixed = onFleet(mixedWorkers, mixedSlots, timed(func(ctx context.Context, f *fleet) error {
	_, err := sendWait(ctx, f.client, tasks.Each(mixedTasks(), benchSleep))
	return err
}))

// mixedIdeal is how long the tasks take, in ms, if each one goes in order and at no cost to the slot that is free
// first.
func mixedIdeal(context.Context, *lab) (float64, error) {
	busy := make([]time.Duration, mixedWorkers*mixedSlots)
	for _, d := range mixedTasks() {
		busy[slices.Index(busy, slices.Min(busy))] += d
	}
	return ms(slices.Max(busy)), nil
}

var idleLoad = onFleet(1, 8, func(ctx context.Context, l *lab, _ *fleet) (float64, error) {
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

// bytesPer is how many bytes Redis keeps for each of n nodes once all have ended.
func bytesPer(n int, work func(context.Context, *fleet) error) measureFunc {
	return onFleet(1, 8, func(ctx context.Context, l *lab, f *fleet) (float64, error) {
		before, err := l.info(ctx, "used_memory")
		if err != nil {
			return 0, err
		}
		if err := errors.Join(work(ctx, f), f.stop()); err != nil {
			return 0, err
		}
		after, err := l.info(ctx, "used_memory")
		return (after - before) / float64(n), err
	})
}

func bytesPerNode(n int) measureFunc {
	return bytesPer(n, func(ctx context.Context, f *fleet) error { return runChord(ctx, f, n) })
}

func bytesPerSingle(n int) measureFunc {
	return bytesPer(n, func(ctx context.Context, f *fleet) error { return sendSingles(ctx, f, n) })
}

// openMembers opens n members of a group, which wait for answers then and have no tokens yet. They must cost no goroutine.
func openMembers(n int) func(context.Context, *fleet) error {
	return func(ctx context.Context, f *fleet) error {
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
}

// openSingles opens n workflows of one task, and makes a token for each.
func openSingles(n int) func(context.Context, *fleet) error {
	return func(ctx context.Context, f *fleet) error {
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
