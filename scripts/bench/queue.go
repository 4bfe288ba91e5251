package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"

	"muster/orchestrator/artifact"
	"muster/tasks/limit"
	"muster/tasks/workqueue"
)

func queueRows() []row {
	return []row{
		{name: "queue.import_and_drain_100", unit: "s", bar: atMost(0.5), measure: importAndDrain},
		{name: "queue.drain_40_of_3s", unit: "s", rounds: 1, bar: atMost(16), measure: drainLong},
		{name: "queue.noop_100000", unit: "items/s", rounds: 3, bar: atLeast(2), measure: noopItems, yardstick: noopTasks},
		{name: "queue.enqueue_bulk", unit: "items/s", rounds: 3, bar: atLeast(50_000), measure: enqueueBulk},
		{name: "queue.import_1000000_memory", unit: "MB", rounds: 1, bar: atMost(64), measure: importMemory},
		{name: "queue.fast_beside_slow_host", unit: "s", rounds: 1, bar: atMost(1.3), measure: fastBesideSlow,
			yardstick: func(context.Context, *lab) (float64, error) { return fastIdeal.Seconds(), nil }},
		{name: "queue.stop_idle", unit: "s", bar: atMost(0.3), measure: stopIdle},
	}
}

// drained runs a handler over a queue until nothing is left.
func drained(ctx context.Context, q *workqueue.Queue, cfg workqueue.PoolConfig, h workqueue.Handler) error {
	mux := workqueue.NewMux()
	mux.Handle("bench", h)
	cfg.Drain = true
	p, err := workqueue.NewPool(q, mux, cfg)
	if err != nil {
		return err
	}
	return p.Run(ctx)
}

func nothing(context.Context, workqueue.Leased) (workqueue.Outcome, error) {
	return workqueue.Done(), nil
}

func benchItems(n int) []workqueue.Item {
	items := make([]workqueue.Item, n)
	for i := range items {
		items[i] = workqueue.Item{ID: fmt.Sprintf("item-%07d", i), Kind: "bench", Payload: []byte(`{"url":"http://127.0.0.1/"}`)}
	}
	return items
}

// importAndDrain is from a file of 100 artifacts to all of them done.
func importAndDrain(ctx context.Context, l *lab) (float64, error) {
	var lines bytes.Buffer
	for i := range 100 {
		fmt.Fprintf(&lines, `{"id":"a%d","kind":"bench"}`+"\n", i)
	}
	start := time.Now()
	q := workqueue.New(l.redis(), "bench", workqueue.Config{})
	if _, err := artifact.Import(ctx, q, &lines, artifact.ImportConfig{}); err != nil {
		return 0, err
	}
	err := drained(ctx, q, workqueue.PoolConfig{Workers: 8}, nothing)
	return time.Since(start).Seconds(), errors.Join(err, allDone(ctx, q, 100))
}

func allDone(ctx context.Context, q *workqueue.Queue, n int64) error {
	s, err := q.Stats(ctx)
	if err == nil && (s.Done != n || s.Total != n) {
		err = fmt.Errorf("of %d items the queue says %+v", n, s)
	}
	return err
}

// drainLong is 40 items of 3 s by 8 workers, each run once.
func drainLong(ctx context.Context, l *lab) (float64, error) {
	q := workqueue.New(l.redis(), "bench", workqueue.Config{})
	if _, err := q.Enqueue(ctx, benchItems(40)...); err != nil {
		return 0, err
	}
	var runs atomic.Int64
	start := time.Now()
	err := drained(ctx, q, workqueue.PoolConfig{Workers: 8}, func(ctx context.Context, _ workqueue.Leased) (workqueue.Outcome, error) {
		runs.Add(1)
		select {
		case <-time.After(3 * time.Second):
		case <-ctx.Done():
		}
		return workqueue.Done(), nil
	})
	took := time.Since(start).Seconds()
	if n := runs.Load(); err == nil && n != 40 {
		err = fmt.Errorf("40 items were run %d times", n)
	}
	return took, err
}

// noopItems is how many items a second a pool of 8 takes and settles that do
// nothing.
func noopItems(ctx context.Context, l *lab) (float64, error) {
	const n = 100_000
	q := workqueue.New(l.redis(), "bench", workqueue.Config{})
	if _, err := q.Enqueue(ctx, benchItems(n)...); err != nil {
		return 0, err
	}
	start := time.Now()
	err := drained(ctx, q, workqueue.PoolConfig{Workers: 8}, nothing)
	took := time.Since(start).Seconds()
	return n / took, errors.Join(err, allDone(ctx, q, n))
}

// noopTasks is the same of raw asynq, with fewer tasks: it takes longer.
func noopTasks(ctx context.Context, l *lab) (float64, error) {
	const n = 10_000
	client := asynq.NewClientFromRedisClient(l.redis())
	for i := range n {
		if _, err := client.EnqueueContext(ctx, asynq.NewTask("bench", nil, asynq.TaskID(fmt.Sprint(i)))); err != nil {
			return 0, err
		}
	}
	done := make(chan struct{})
	var ended atomic.Int64
	srv := asynq.NewServerFromRedisClient(l.redis(), asynq.Config{Concurrency: 8, LogLevel: asynq.FatalLevel})
	start := time.Now()
	err := srv.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		if ended.Add(1) == n {
			close(done)
		}
		return nil
	}))
	if err != nil {
		return 0, err
	}
	defer srv.Shutdown()
	select {
	case <-done:
		return n / time.Since(start).Seconds(), nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// enqueueBulk is how many items a second one process adds.
func enqueueBulk(ctx context.Context, l *lab) (float64, error) {
	const n = 100_000
	q := workqueue.New(l.redis(), "bench", workqueue.Config{})
	items := benchItems(n)
	start := time.Now()
	added, err := q.Enqueue(ctx, items...)
	took := time.Since(start).Seconds()
	if err == nil && added != n {
		err = fmt.Errorf("%d of %d items were new", added, n)
	}
	return n / took, err
}

// importMemory is how much more memory the process takes while it imports a
// million artifacts; and that must not grow with their number.
func importMemory(ctx context.Context, l *lab) (float64, error) {
	const n = 1_000_000
	debug.FreeOSMemory()
	before := resident()
	var early, late uint64 // the most in the first tenth, and in the last nine
	q := workqueue.New(l.redis(), "bench", workqueue.Config{})
	rep, err := artifact.Import(ctx, q, &artifactLines{n: n}, artifact.ImportConfig{Progress: func(r artifact.Report) {
		if now := resident(); r.Lines <= n/10 {
			early = max(early, now)
		} else {
			late = max(late, now)
		}
	}})
	if err == nil && rep.New != n {
		err = fmt.Errorf("of %d artifacts %+v were imported", n, rep)
	}
	const mb = 1 << 20
	if err == nil && late > early+16*mb {
		err = fmt.Errorf("memory grew from %d to %d MB with the number of lines", early/mb, late/mb)
	}
	return float64(max(early, late)-min(before, early)) / mb, err
}

// resident is how much memory the process has of the system.
func resident() uint64 {
	s := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64() - s[1].Value.Uint64()
}

// artifactLines is a file of n artifacts that nobody has to hold.
type artifactLines struct {
	n, at int
	rest  []byte
}

func (a *artifactLines) Read(p []byte) (int, error) {
	if len(a.rest) == 0 {
		if a.at == a.n {
			return 0, io.EOF
		}
		a.at++
		a.rest = fmt.Appendf(a.rest[:0], `{"id":"artifact-%07d","url":"http://host-%d.example/%d.pdf","resolver":"bench"}`+"\n", a.at, a.at%97, a.at)
	}
	n := copy(p, a.rest)
	a.rest = a.rest[n:]
	return n, nil
}

// 200 items of a slow host stand in front of 500 of 50 fast ones, 2 at a time
// from each host, 10 workers. Two workers are always with the slow host.
const (
	slowItem  = 100 * time.Millisecond
	fastItem  = 16 * time.Millisecond
	fastIdeal = 500 * fastItem / (10 - 2)
)

// fastBesideSlow is how long it takes until all fast items are done.
func fastBesideSlow(ctx context.Context, l *lab) (float64, error) {
	var items []workqueue.Item
	for i := range 200 {
		items = append(items, workqueue.Item{ID: fmt.Sprint("slow", i), Kind: "bench", Payload: []byte("s"), ResourceKeys: []string{"host:slow"}})
	}
	for i := range 500 {
		items = append(items, workqueue.Item{ID: fmt.Sprint("fast", i), Kind: "bench", Payload: []byte("f"), ResourceKeys: []string{fmt.Sprint("host:", i%50)}})
	}
	q := workqueue.New(l.redis(), "bench", workqueue.Config{})
	if _, err := q.Enqueue(ctx, items...); err != nil {
		return 0, err
	}
	slots := limit.NewKeyedLimiter(l.redis(), limit.KeyedConfig{Default: 2})
	var fast, slow atomic.Int64
	var took time.Duration
	start := time.Now()
	var slowTook time.Duration
	err := drained(ctx, q, workqueue.PoolConfig{Workers: 10, Limiter: func(string) *limit.KeyedLimiter { return slots }},
		func(ctx context.Context, it workqueue.Leased) (workqueue.Outcome, error) {
			if string(it.Payload) == "s" {
				<-time.After(slowItem)
				if slow.Add(1) == 200 {
					slowTook = time.Since(start)
				}
				return workqueue.Done(), nil
			}
			<-time.After(fastItem)
			if fast.Add(1) == 500 {
				took = time.Since(start)
			}
			return workqueue.Done(), nil
		})
	// The slow host must have been busy all the time, or the fast ones had it easy.
	if ideal := 200 * slowItem / 2; err == nil && slowTook > ideal*13/10 {
		err = fmt.Errorf("the slow host took %v; %v is ideal", slowTook, ideal)
	}
	return took.Seconds(), err
}

// stopIdle is how long an idle pool takes to stop.
func stopIdle(ctx context.Context, l *lab) (float64, error) {
	q := workqueue.New(l.redis(), "bench", workqueue.Config{})
	p, err := workqueue.NewPool(q, workqueue.NewMux(), workqueue.PoolConfig{Workers: 8})
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	select {
	case <-time.After(300 * time.Millisecond): // it is idle by now
	case err := <-ended:
		return 0, errors.Join(err, errors.New("an idle pool ended"))
	}
	start := time.Now()
	cancel()
	err = <-ended
	return time.Since(start).Seconds(), err
}
