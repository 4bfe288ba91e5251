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

// newQueue returns the queue of a row, with items.
func newQueue(ctx context.Context, l *lab, items ...workqueue.Item) (*workqueue.Queue, error) {
	q := workqueue.New(l.rdb, "bench", workqueue.Config{})
	added, err := q.Enqueue(ctx, items...)
	if err == nil && added != len(items) {
		err = fmt.Errorf("got %d new items, want %d", added, len(items))
	}
	return q, err
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

// importAndDrain is how long 100 artifacts take from a file until all are done.
func importAndDrain(ctx context.Context, l *lab) (float64, error) {
	var lines bytes.Buffer
	for i := range 100 {
		fmt.Fprintf(&lines, `{"id":"a%d","kind":"bench"}`+"\n", i)
	}
	start := time.Now()
	q := workqueue.New(l.rdb, "bench", workqueue.Config{})
	if _, err := artifact.Import(ctx, q, &lines, artifact.ImportConfig{}); err != nil {
		return 0, err
	}
	err := drained(ctx, q, workqueue.PoolConfig{Workers: 8}, nothing)
	return time.Since(start).Seconds(), errors.Join(err, allDone(ctx, q, 100))
}

func allDone(ctx context.Context, q *workqueue.Queue, n int64) error {
	s, err := q.Stats(ctx)
	if err == nil && (s.Done != n || s.Total != n) {
		err = fmt.Errorf("got %+v, want %d items, all done", s, n)
	}
	return err
}

// drainLong is how long 8 workers take for 40 items of 3 s. Each must run once.
func drainLong(ctx context.Context, l *lab) (float64, error) {
	q, err := newQueue(ctx, l, benchItems(40)...)
	if err != nil {
		return 0, err
	}
	var runs atomic.Int64
	start := time.Now()
	err = drained(ctx, q, workqueue.PoolConfig{Workers: 8}, func(ctx context.Context, _ workqueue.Leased) (workqueue.Outcome, error) {
		runs.Add(1)
		select {
		case <-time.After(3 * time.Second):
		case <-ctx.Done():
		}
		return workqueue.Done(), nil
	})
	took := time.Since(start).Seconds()
	if n := runs.Load(); err == nil && n != 40 {
		err = fmt.Errorf("got %d runs of 40 items, want 40", n)
	}
	return took, err
}

// noopItems is how many items a second a pool of 8 leases and settles. Their
// handler does nothing.
func noopItems(ctx context.Context, l *lab) (float64, error) {
	const n = 100_000
	q, err := newQueue(ctx, l, benchItems(n)...)
	if err != nil {
		return 0, err
	}
	start := time.Now()
	err = drained(ctx, q, workqueue.PoolConfig{Workers: 8}, nothing)
	took := time.Since(start).Seconds()
	return n / took, errors.Join(err, allDone(ctx, q, n))
}

// noopTasks is the same for raw asynq, with fewer tasks: it is slower.
func noopTasks(ctx context.Context, l *lab) (float64, error) {
	const n = 10_000
	cl := asynq.NewClientFromRedisClient(l.rdb)
	for i := range n {
		if _, err := cl.EnqueueContext(ctx, rawTask(i, asynq.TaskID(fmt.Sprint(i)))); err != nil {
			return 0, err
		}
	}
	start := time.Now()
	_, stop, err := rawServers(l, 1, 8, func(*asynq.Client) asynq.Handler {
		return asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return nil })
	})
	if err != nil {
		return 0, err
	}
	err = awaitIdle(ctx, l.rdb)
	took := time.Since(start)
	return n / took.Seconds(), errors.Join(err, stop())
}

// enqueueBulk is how many items a second one process adds.
func enqueueBulk(ctx context.Context, l *lab) (float64, error) {
	items := benchItems(100_000)
	start := time.Now()
	_, err := newQueue(ctx, l, items...)
	return float64(len(items)) / time.Since(start).Seconds(), err
}

// importMemory is how much more memory the process uses while it imports a
// million artifacts. It must not grow with their number.
func importMemory(ctx context.Context, l *lab) (float64, error) {
	const n = 1_000_000
	debug.FreeOSMemory()
	before := resident()
	var early, late float64 // the most in the first tenth, and in the last nine
	q := workqueue.New(l.rdb, "bench", workqueue.Config{})
	rep, err := artifact.Import(ctx, q, &artifactLines{n: n}, artifact.ImportConfig{Progress: func(r artifact.Report) {
		if now := resident(); r.Lines <= n/10 {
			early = max(early, now)
		} else {
			late = max(late, now)
		}
	}})
	if err == nil && rep.New != n {
		err = fmt.Errorf("got %+v, want %d new artifacts", rep, n)
	}
	const mb = 1 << 20
	if err == nil && late > early+16*mb {
		err = fmt.Errorf("memory grew from %.0f to %.0f MB with the number of lines", early/mb, late/mb)
	}
	return (max(early, late) - min(before, early)) / mb, err
}

// resident is the memory that the process holds, in bytes.
func resident() float64 {
	s := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(s)
	return float64(s[0].Value.Uint64() - s[1].Value.Uint64())
}

// artifactLines is a file of n artifacts, made as it is read.
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
	q, err := newQueue(ctx, l, items...)
	if err != nil {
		return 0, err
	}
	slots := limit.NewKeyedLimiter(l.rdb, limit.KeyedConfig{Default: 2})
	var fast, slow atomic.Int64
	var took time.Duration
	start := time.Now()
	var slowTook time.Duration
	err = drained(ctx, q, workqueue.PoolConfig{Workers: 10, Limiter: func(string) *limit.KeyedLimiter { return slots }},
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
	// The slow host must have been busy all the time, else it slowed nothing.
	if ideal := 200 * slowItem / 2; err == nil && slowTook > ideal*13/10 {
		err = fmt.Errorf("the slow host took %v, want at most %v", slowTook, ideal*13/10)
	}
	return took.Seconds(), err
}

// stopIdle is how long an idle pool takes to stop.
func stopIdle(ctx context.Context, l *lab) (float64, error) {
	q := workqueue.New(l.rdb, "bench", workqueue.Config{})
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
