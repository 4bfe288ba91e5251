package tasks_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"golang.org/x/sync/errgroup"

	"muster/tasks"
	"muster/tasks/redistest"
)

var (
	benchStep = tasks.New[int, int]("bench.step")     // returns its input
	benchSent = tasks.New[int64, int64]("bench.sent") // returns the µs since its input, a unix time in µs
	benchSum  = tasks.New[[]int, int]("bench.sum")
)

// benchClient starts a Redis for b and a worker with eight slots.
func benchClient(b *testing.B, more ...func(*tasks.Mux)) *tasks.Client {
	b.Helper()
	client := tasks.NewClient(redistest.Server(b).Client())
	mux := tasks.NewMux()
	tasks.Handle(mux, benchStep, func(_ context.Context, i int) (int, error) { return i, nil })
	tasks.Handle(mux, benchSent, func(_ context.Context, at int64) (int64, error) { return time.Now().UnixMicro() - at, nil })
	tasks.Handle(mux, benchSum, func(_ context.Context, is []int) (sum int, _ error) {
		for _, i := range is {
			sum += i
		}
		return sum, nil
	})
	for _, handle := range more {
		handle(mux)
	}
	worker, err := tasks.StartWorker(b.Context(), client, mux, tasks.WorkerConfig{Concurrency: 8})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := worker.Stop(); err != nil {
			b.Error(err)
		}
	})
	do(b, client, benchStep.S(1)) // the worker is up
	return client
}

func do[O any](b *testing.B, client *tasks.Client, s tasks.Signature[O]) O {
	b.Helper()
	out, err := s.Do(b.Context(), client)
	if err != nil {
		b.Fatal(err)
	}
	return out
}

// asynqServer starts a server of asynq with eight slots on a Redis for b. It polls every 10 ms.
func asynqServer(b *testing.B, handler func(*asynq.Client, *asynq.Task) error) *asynq.Client {
	b.Helper()
	opt := asynq.RedisClientOpt{Addr: redistest.Server(b).Addr, PoolSize: 30}
	client := asynq.NewClient(opt)
	server := asynq.NewServer(opt, asynq.Config{Concurrency: 8, TaskCheckInterval: 10 * time.Millisecond, LogLevel: asynq.ErrorLevel})
	if err := server.Start(asynq.HandlerFunc(func(_ context.Context, t *asynq.Task) error { return handler(client, t) })); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { server.Shutdown(); _ = client.Close() })
	return client
}

// eachSender calls send for 0 to n-1 in eight goroutines.
func eachSender(b *testing.B, n int, send func(i int) error) {
	b.Helper()
	var g errgroup.Group
	g.SetLimit(8)
	for i := range n {
		g.Go(func() error { return send(i) })
	}
	if err := g.Wait(); err != nil {
		b.Fatal(err)
	}
}

// asynqRun returns a function that enqueues n tasks of asynq with eight senders and waits until all have run.
func asynqRun(b *testing.B, opts ...asynq.Option) func(n int) {
	b.Helper()
	ran := make(chan struct{}, 1024)
	client := asynqServer(b, func(_ *asynq.Client, t *asynq.Task) error {
		if w := t.ResultWriter(); w != nil && len(opts) > 0 {
			if _, err := w.Write(t.Payload()); err != nil {
				return err
			}
		}
		ran <- struct{}{}
		return nil
	})
	return func(n int) {
		go func() {
			eachSender(b, n, func(i int) error {
				_, err := client.Enqueue(asynq.NewTask("raw", fmt.Append(nil, i)), opts...)
				return err
			})
		}()
		for range n {
			<-ran
		}
	}
}

// Single tasks, sent by eight goroutines, until all have their results; asynq keeps results as well and does not read
// them.
func BenchmarkSingle(b *testing.B) {
	client := benchClient(b)
	runs := make([]*tasks.AsyncResult[int], b.N)
	redistest.Measured(b, client.Redis(), func() {
		eachSender(b, b.N, func(i int) (err error) {
			runs[i], err = benchStep.S(i).Send(b.Context(), client)
			return err
		})
		for _, run := range runs {
			if _, err := run.Wait(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
	run := asynqRun(b, asynq.Retention(time.Hour))
	redistest.Baseline(b, "asynq", func() { run(b.N) })
}

// A single task on an idle worker, every 5 ms: the latency from the call of Send to the handler, and the cost for
// Redis.
func BenchmarkSingleEvery5ms(b *testing.B) {
	client := benchClient(b)
	waits := make([]int64, b.N)
	redistest.Measured(b, client.Redis(), func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for i := range waits {
			waits[i] = do(b, client, benchSent.S(time.Now().UnixMicro()))
			<-tick.C
		}
	})
	reportLatency(b, "", waits)
	started := make(chan int64)
	raw := asynqServer(b, func(_ *asynq.Client, t *asynq.Task) error {
		var at int64
		err := json.Unmarshal(t.Payload(), &at)
		started <- time.Now().UnixMicro() - at
		return err
	})
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for i := range waits {
		if _, err := raw.Enqueue(asynq.NewTask("raw", fmt.Append(nil, time.Now().UnixMicro())), asynq.Retention(time.Hour)); err != nil {
			b.Fatal(err)
		}
		waits[i] = <-started
		<-tick.C
	}
	reportLatency(b, "asynq-", waits)
}

func reportLatency(b *testing.B, prefix string, us []int64) {
	slices.Sort(us)
	b.ReportMetric(float64(us[len(us)/2])/1000, prefix+"p50-ms")
	b.ReportMetric(float64(us[len(us)*99/100])/1000, prefix+"p99-ms")
}

// A task with a priority while a group of 50,000 runs.
func BenchmarkPriorityBehindGroup(b *testing.B) {
	client := benchClient(b)
	var waits []int64
	b.ResetTimer()
	for len(waits) < b.N {
		b.StopTimer()
		run, err := tasks.Each(make([]int, 50_000), benchStep).Send(b.Context(), client)
		if err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		for len(waits) < b.N {
			if p, err := run.Progress(b.Context()); err != nil {
				b.Fatal(err)
			} else if p.Ended {
				break
			}
			waits = append(waits, do(b, client, benchSent.S(time.Now().UnixMicro(), tasks.Priority(1))))
		}
		b.StopTimer()
		if err := run.Revoke(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	reportLatency(b, "", waits)
}

// A chain of 50; with asynq each handler enqueues the next step.
func BenchmarkChain50(b *testing.B) {
	client := benchClient(b)
	redistest.Measured(b, client.Redis(), func() {
		for range b.N {
			s := benchStep.S(1)
			for range 49 {
				s = tasks.Chain(s, benchStep)
			}
			do(b, client, s)
		}
	})
	done := make(chan struct{})
	enqueue := func(cl *asynq.Client, left int) error {
		payload, err := json.Marshal(left)
		if err == nil {
			_, err = cl.Enqueue(asynq.NewTask("raw", payload))
		}
		return err
	}
	raw := asynqServer(b, func(cl *asynq.Client, t *asynq.Task) error {
		var left int
		if err := json.Unmarshal(t.Payload(), &left); err != nil {
			return err
		}
		if left == 1 {
			done <- struct{}{}
			return nil
		}
		return enqueue(cl, left-1)
	})
	redistest.Baseline(b, "asynq", func() {
		for range b.N {
			if err := enqueue(raw, 50); err != nil {
				b.Fatal(err)
			}
			<-done
		}
	})
}

// A chord of 1,000; with asynq each member increments a counter, and the last one enqueues the body.
func BenchmarkChord1000(b *testing.B) {
	const size = 1000
	client := benchClient(b)
	redistest.Measured(b, client.Redis(), func() {
		for range b.N {
			do(b, client, tasks.Chord(tasks.Each(make([]int, size), benchStep), benchSum))
		}
	})
	done := make(chan struct{})
	var members atomic.Int64
	raw := asynqServer(b, func(cl *asynq.Client, t *asynq.Task) error {
		if t.Type() == "body" {
			done <- struct{}{}
		} else if members.Add(1)%size == 0 {
			_, err := cl.Enqueue(asynq.NewTask("body", nil))
			return err
		}
		return nil
	})
	redistest.Baseline(b, "asynq", func() {
		for range b.N {
			for range size {
				if _, err := raw.Enqueue(asynq.NewTask("raw", nil)); err != nil {
					b.Fatal(err)
				}
			}
			<-done
		}
	})
}

// A group of 20,000 and its values; asynq keeps the results of 20,000 tasks and does not read them.
func BenchmarkGroup20000(b *testing.B) {
	const size = 20_000
	client := benchClient(b)
	redistest.Measured(b, client.Redis(), func() {
		for range b.N {
			do(b, client, tasks.Each(make([]int, size), benchStep))
		}
	})
	b.ReportMetric(float64(size*b.N)/b.Elapsed().Seconds(), "nodes/s")
	run := asynqRun(b, asynq.Retention(time.Hour))
	redistest.Baseline(b, "asynq", func() { run(size * b.N) })
}

// Sending a group of 10,000 without a worker; asynq enqueues the tasks one by one.
func BenchmarkSendGroup10000(b *testing.B) {
	const size = 10_000
	client := tasks.NewClient(redistest.Server(b).Client())
	redistest.Measured(b, client.Redis(), func() {
		for range b.N {
			if _, err := tasks.Each(make([]int, size), benchStep).Send(b.Context(), client); err != nil {
				b.Fatal(err)
			}
		}
	})
	raw := asynq.NewClient(asynq.RedisClientOpt{Addr: redistest.Server(b).Addr})
	defer raw.Close()
	redistest.Baseline(b, "asynq", func() {
		for range size * b.N {
			if _, err := raw.Enqueue(asynq.NewTask("raw", nil)); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkSend sends tasks that no worker runs: in one goroutine one by one, many at once, and with asynq.
func BenchmarkSend(b *testing.B) {
	client := tasks.NewClient(redistest.Server(b).Client())
	b.Run("one", func(b *testing.B) {
		for b.Loop() {
			if _, err := benchStep.S(1).Send(b.Context(), client); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("many", func(b *testing.B) {
		sends := make([]tasks.Sending, 1000)
		for i := range sends {
			sends[i].Work = benchStep.S(i)
		}
		for left := b.N; left > 0; left -= len(sends) {
			if _, err := client.SendMany(b.Context(), sends[:min(left, len(sends))]); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("asynq", func(b *testing.B) {
		client := asynq.NewClient(asynq.RedisClientOpt{Addr: redistest.Server(b).Addr})
		defer func() { _ = client.Close() }()
		for b.Loop() {
			if _, err := client.Enqueue(asynq.NewTask("raw", []byte("1"))); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkRevokeAmongMany revokes workflows of a fairness key that has 20,000 ready ones. x-own is the time of workflows
// without a key.
func BenchmarkRevokeAmongMany(b *testing.B) {
	client := tasks.NewClient(redistest.Server(b).Client())
	b.Cleanup(func() { _ = client.Close() })
	for i := range 20_000 {
		benchSend(b, client, i, tasks.FairnessKey("many"))
	}
	revoke := func(opts ...tasks.SendOption) func() {
		runs := make([]*tasks.AsyncResult[int], b.N)
		for i := range runs {
			runs[i] = benchSend(b, client, i, opts...)
		}
		return func() {
			for _, run := range runs {
				if err := run.Revoke(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	shared, own := revoke(tasks.FairnessKey("many")), revoke()
	redistest.Measured(b, client.Redis(), shared)
	redistest.Baseline(b, "own", own)
}

func benchSend(b *testing.B, client *tasks.Client, i int, opts ...tasks.SendOption) *tasks.AsyncResult[int] {
	b.Helper()
	run, err := benchStep.S(i).Send(b.Context(), client, opts...)
	if err != nil {
		b.Fatal(err)
	}
	return run
}
