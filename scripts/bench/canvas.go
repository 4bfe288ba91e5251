package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"muster/tasks"
)

// canvasRows measure workflows against the same work written by hand on asynq.
func canvasRows() []row {
	return []row{
		{name: "canvas.chain_50", unit: "ms", measure: chainOf(50), yardstick: rawChain(50), bar: atMost(0.03)},
		{name: "canvas.throughput_20000_c8", unit: "tasks/s", measure: throughput(20000, 8), yardstick: rawThroughput(20000, 8), bar: atLeast(1)},
		{name: "canvas.throughput_20000_c64", unit: "tasks/s", measure: throughput(20000, 64), yardstick: rawThroughput(20000, 64), bar: atLeast(1.5)},
		{name: "canvas.enqueue_group_10000", unit: "tasks/s", measure: enqueueGroup(10000), yardstick: rawEnqueue(10000), bar: atLeast(4)},
		{name: "canvas.chord_1000", unit: "ms", measure: chordOf(1000), yardstick: rawChord(1000), bar: atMost(1)},
		{name: "canvas.chord_10000_of_1000", unit: "ms", measure: chordOf(10000), yardstick: chordOf(1000), bar: atMost(11)},
		{name: "canvas.chord_10000_memory", unit: "MB", rounds: 1, measure: memoryAfter(12), yardstick: memoryAfter(2), bar: atMost(1.2)},
		{name: "canvas.chains_100_of_10", unit: "ms", measure: chains(100, 10), yardstick: rawChains(100, 10), bar: atMost(1)},
		{name: "canvas.idle", unit: "commands/s", rounds: 1, measure: idleLoad, bar: atMost(8)},
		{name: "canvas.bytes_single", unit: "bytes", rounds: 1, measure: bytesSingle(10000), bar: atMost(450)},
		{name: "canvas.bytes_per_node", unit: "bytes", rounds: 1, measure: bytesPerNode(10000), bar: atMost(250)},
	}
}

var (
	benchStep = tasks.New[int, int]("bench.step")
	benchSum  = tasks.New[[]int, int]("bench.sum")
)

// fleet starts one worker with n slots on an empty Redis.
func fleet(ctx context.Context, l *lab, n int) (*tasks.Client, func() error, error) {
	c, err := tasks.Connect(ctx, l.url())
	if err != nil {
		return nil, nil, err
	}
	mux := tasks.NewMux()
	tasks.Handle(mux, benchStep, func(_ context.Context, i int) (int, error) { return i, nil })
	tasks.Handle(mux, benchSum, func(_ context.Context, is []int) (int, error) {
		sum := 0
		for _, i := range is {
			sum += i
		}
		return sum, nil
	})
	ready := make(chan struct{})
	w, err := tasks.NewWorker(c, mux, tasks.WorkerConfig{Concurrency: n, Ready: func() { close(ready) }})
	if err != nil {
		return nil, nil, errors.Join(err, c.Close())
	}
	run, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- w.Run(run) }()
	select {
	case <-ready:
	case err := <-done:
		stop()
		return nil, nil, errors.Join(err, c.Close())
	}
	return c, func() error {
		stop()
		return errors.Join(<-done, c.Close())
	}, nil
}

// timed measures how long work takes on a fleet, in ms.
func timed(n int, work func(ctx context.Context, c *tasks.Client) error) func(context.Context, *lab) (float64, error) {
	return func(ctx context.Context, l *lab) (float64, error) {
		c, stop, err := fleet(ctx, l, n)
		if err != nil {
			return 0, err
		}
		if _, err := sendWait(ctx, c, benchStep.S(1)); err != nil {
			return 0, errors.Join(err, stop())
		}
		began := time.Now()
		err = work(ctx, c)
		took := time.Since(began)
		return float64(took.Microseconds()) / 1000, errors.Join(err, stop())
	}
}

func sendWait[O any](ctx context.Context, c *tasks.Client, s tasks.Signature[O]) (O, error) {
	run, err := s.Send(ctx, c)
	if err != nil {
		var zero O
		return zero, err
	}
	return run.Wait(ctx)
}

func chain(n int) tasks.Signature[int] {
	s := benchStep.S(1)
	for range n - 1 {
		s = tasks.Chain(s, benchStep)
	}
	return s
}

func chainOf(n int) func(context.Context, *lab) (float64, error) {
	return timed(8, func(ctx context.Context, c *tasks.Client) error {
		_, err := sendWait(ctx, c, chain(n))
		return err
	})
}

// memoryAfter measures what a worker holds on to after some chords of 10,000, in MB.
func memoryAfter(chords int) func(context.Context, *lab) (float64, error) {
	return func(ctx context.Context, l *lab) (float64, error) {
		c, stop, err := fleet(ctx, l, 8)
		if err != nil {
			return 0, err
		}
		for range chords {
			if _, err := sendWait(ctx, c, tasks.Chord(tasks.Each(make([]int, 10000), benchStep), benchSum)); err != nil {
				return 0, errors.Join(err, stop())
			}
		}
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc) / 1e6, stop()
	}
}

func chordOf(n int) func(context.Context, *lab) (float64, error) {
	return timed(8, func(ctx context.Context, c *tasks.Client) error {
		got, err := sendWait(ctx, c, tasks.Chord(tasks.Each(make([]int, n), benchStep), benchSum))
		if err == nil && got != 0 {
			err = fmt.Errorf("sum is %d", got)
		}
		return err
	})
}

func chains(n, steps int) func(context.Context, *lab) (float64, error) {
	return timed(8, func(ctx context.Context, c *tasks.Client) error {
		runs := make([]*tasks.AsyncResult[int], n)
		for i := range runs {
			run, err := chain(steps).Send(ctx, c)
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
	})
}

func throughput(n, slots int) func(context.Context, *lab) (float64, error) {
	ms := timed(slots, func(ctx context.Context, c *tasks.Client) error {
		errs := make(chan error, 8)
		runs := make([]*tasks.AsyncResult[int], n)
		for p := range 8 {
			go func() {
				for i := p; i < n; i += 8 {
					run, err := benchStep.S(i).Send(ctx, c)
					if err != nil {
						errs <- err
						return
					}
					runs[i] = run
				}
				errs <- nil
			}()
		}
		for range 8 {
			if err := <-errs; err != nil {
				return err
			}
		}
		return awaitIdle(ctx, c.Redis())
	})
	return func(ctx context.Context, l *lab) (float64, error) {
		took, err := ms(ctx, l)
		return float64(n) / took * 1000, err
	}
}

// awaitIdle waits until asynq has no task left.
func awaitIdle(ctx context.Context, rdb redis.UniversalClient) error {
	for {
		left, err := rdb.LLen(ctx, "asynq:{default}:pending").Result()
		if err != nil {
			return err
		}
		active, err := rdb.LLen(ctx, "asynq:{default}:active").Result()
		if err != nil {
			return err
		}
		if left+active == 0 {
			return nil
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func enqueueGroup(n int) func(context.Context, *lab) (float64, error) {
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

func idleLoad(ctx context.Context, l *lab) (float64, error) {
	_, stop, err := fleet(ctx, l, 8)
	if err != nil {
		return 0, err
	}
	count := func() float64 {
		v, cerr := l.info(ctx, "total_commands_processed")
		err = errors.Join(err, cerr)
		return v
	}
	time.Sleep(2 * time.Second)
	before := count()
	time.Sleep(20 * time.Second)
	after := count()
	return (after - before) / 20, errors.Join(err, stop())
}

func memory(ctx context.Context, l *lab, n int, work func(context.Context, *tasks.Client) error) (float64, error) {
	c, stop, err := fleet(ctx, l, 8)
	if err != nil {
		return 0, err
	}
	if _, err := sendWait(ctx, c, benchStep.S(1)); err != nil {
		return 0, errors.Join(err, stop())
	}
	before, err := l.info(ctx, "used_memory")
	if err != nil {
		return 0, errors.Join(err, stop())
	}
	err = errors.Join(work(ctx, c), awaitIdle(ctx, c.Redis()))
	if err := errors.Join(err, stop()); err != nil {
		return 0, err
	}
	after, err := l.info(ctx, "used_memory")
	keys, kerr := l.redis().DBSize(ctx).Result()
	_ = keys
	return (after - before) / float64(n), errors.Join(err, kerr)
}

func bytesSingle(n int) func(context.Context, *lab) (float64, error) {
	return func(ctx context.Context, l *lab) (float64, error) {
		return memory(ctx, l, n, func(ctx context.Context, c *tasks.Client) error {
			for i := range n {
				if _, err := benchStep.S(i).Send(ctx, c); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

func bytesPerNode(n int) func(context.Context, *lab) (float64, error) {
	return func(ctx context.Context, l *lab) (float64, error) {
		return memory(ctx, l, n, func(ctx context.Context, c *tasks.Client) error {
			_, err := sendWait(ctx, c, tasks.Chord(tasks.Each(make([]int, n), benchStep), benchSum))
			return err
		})
	}
}

// rawServer runs handlers on asynq as it comes, polling every 10 ms.
func rawServer(l *lab, slots int, h func(cl *asynq.Client) asynq.Handler) (*asynq.Client, func() error, error) {
	opt := asynq.RedisClientOpt{Addr: l.address(), PoolSize: slots + 20}
	cl := asynq.NewClient(opt)
	srv := asynq.NewServer(opt, asynq.Config{Concurrency: slots, TaskCheckInterval: 10 * time.Millisecond, LogLevel: asynq.ErrorLevel})
	if err := srv.Start(h(cl)); err != nil {
		return nil, nil, errors.Join(err, cl.Close())
	}
	return cl, func() error {
		srv.Shutdown()
		return cl.Close()
	}, nil
}

func rawEnqueue(n int) func(context.Context, *lab) (float64, error) {
	return func(_ context.Context, l *lab) (float64, error) {
		cl := asynq.NewClient(asynq.RedisClientOpt{Addr: l.address()})
		began := time.Now()
		for i := range n {
			if _, err := cl.Enqueue(asynq.NewTask("raw", []byte(strconv.Itoa(i)))); err != nil {
				return 0, errors.Join(err, cl.Close())
			}
		}
		return float64(n) / time.Since(began).Seconds(), cl.Close()
	}
}

func rawThroughput(n, slots int) func(context.Context, *lab) (float64, error) {
	return func(ctx context.Context, l *lab) (float64, error) {
		var left atomic.Int64
		left.Store(int64(n))
		done := make(chan struct{})
		cl, stop, err := rawServer(l, slots, func(*asynq.Client) asynq.Handler {
			return asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
				if left.Add(-1) == 0 {
					close(done)
				}
				return nil
			})
		})
		if err != nil {
			return 0, err
		}
		began := time.Now()
		errs := make(chan error, 8)
		for p := range 8 {
			go func() {
				for i := p; i < n; i += 8 {
					if _, err := cl.Enqueue(asynq.NewTask("raw", []byte(strconv.Itoa(i)))); err != nil {
						errs <- err
						return
					}
				}
				errs <- nil
			}()
		}
		for range 8 {
			if err := <-errs; err != nil {
				return 0, errors.Join(err, stop())
			}
		}
		<-done
		err = awaitIdle(ctx, l.redis())
		return float64(n) / time.Since(began).Seconds(), errors.Join(err, stop())
	}
}

type rawStep struct{ Left, Chain int }

// rawSteps is a handler that enqueues the next step, as users of asynq write chains.
func rawSteps(ended func()) func(cl *asynq.Client) asynq.Handler {
	return func(cl *asynq.Client) asynq.Handler {
		return asynq.HandlerFunc(func(_ context.Context, t *asynq.Task) error {
			var s rawStep
			if err := json.Unmarshal(t.Payload(), &s); err != nil {
				return err
			}
			if s.Left--; s.Left == 0 {
				ended()
				return nil
			}
			raw, err := json.Marshal(s)
			if err != nil {
				return err
			}
			_, err = cl.Enqueue(asynq.NewTask("raw", raw))
			return err
		})
	}
}

func rawChain(n int) func(context.Context, *lab) (float64, error) { return rawChains(1, n) }

func rawChains(n, steps int) func(context.Context, *lab) (float64, error) {
	return func(_ context.Context, l *lab) (float64, error) {
		var left atomic.Int64
		left.Store(int64(n) + 1)
		done, warm := make(chan struct{}), make(chan struct{})
		cl, stop, err := rawServer(l, 8, rawSteps(func() {
			switch left.Add(-1) {
			case int64(n):
				close(warm)
			case 0:
				close(done)
			}
		}))
		if err != nil {
			return 0, err
		}
		if _, err := cl.Enqueue(asynq.NewTask("raw", []byte(`{"Left":1}`))); err != nil {
			return 0, errors.Join(err, stop())
		}
		<-warm
		began := time.Now()
		for i := range n {
			raw, err := json.Marshal(rawStep{steps, i})
			if err == nil {
				_, err = cl.Enqueue(asynq.NewTask("raw", raw))
			}
			if err != nil {
				return 0, errors.Join(err, stop())
			}
		}
		<-done
		return float64(time.Since(began).Microseconds()) / 1000, stop()
	}
}

// rawChord is the usual chord by hand: each member adds its result and counts, the last one enqueues
// the body.
func rawChord(n int) func(context.Context, *lab) (float64, error) {
	return func(ctx context.Context, l *lab) (float64, error) {
		done := make(chan error, 1)
		rdb := l.redis()
		cl, stop, err := rawServer(l, 8, func(cl *asynq.Client) asynq.Handler {
			return asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
				if t.Type() == "body" {
					_, err := rdb.LRange(ctx, "chord:results", 0, -1).Result()
					done <- err
					return err
				}
				pipe := rdb.TxPipeline()
				pipe.RPush(ctx, "chord:results", t.Payload())
				count := pipe.Incr(ctx, "chord:count")
				if _, err := pipe.Exec(ctx); err != nil {
					return err
				}
				if count.Val() == int64(n) {
					_, err := cl.Enqueue(asynq.NewTask("body", nil))
					return err
				}
				return nil
			})
		})
		if err != nil {
			return 0, err
		}
		began := time.Now()
		for range n {
			if _, err := cl.Enqueue(asynq.NewTask("member", []byte("0"))); err != nil {
				return 0, errors.Join(err, stop())
			}
		}
		err = <-done
		return float64(time.Since(began).Microseconds()) / 1000, errors.Join(err, stop())
	}
}
