package tasks_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"muster/tasks"
	"muster/tasks/redistest"
)

// A fleet runs single tasks on workers of eight slots and two queues, all in this process.
type fleet struct {
	rdb  redis.UniversalClient
	send func(i int) error
	ran  chan struct{} // one value for each task
}

var costQueues = map[string]int{"default": 2, "low": 1}

// musterFleet starts workers, each with a separate client.
func musterFleet(b *testing.B, workers int) *fleet {
	b.Helper()
	srv := redistest.Server(b)
	f := &fleet{rdb: srv.Client(), ran: make(chan struct{}, 1024)}
	for range workers {
		mux := tasks.NewMux()
		tasks.Handle(mux, benchStep, func(_ context.Context, i int) (int, error) { f.ran <- struct{}{}; return i, nil })
		client := tasks.NewClient(srv.Client())
		worker, err := tasks.StartWorker(b.Context(), client, mux, tasks.WorkerConfig{Concurrency: 8, Queues: costQueues})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = worker.Stop(); _ = client.Close() })
	}
	sender := tasks.NewClient(srv.Client())
	b.Cleanup(func() { _ = sender.Close() })
	f.send = func(i int) error { _, err := benchStep.S(i).Send(b.Context(), sender); return err }
	return f
}

// asynqFleet starts servers of asynq with its defaults. Results are kept.
func asynqFleet(b *testing.B, workers int) *fleet {
	b.Helper()
	srv := redistest.Server(b)
	f := &fleet{rdb: srv.Client(), ran: make(chan struct{}, 1024)}
	opt := asynq.RedisClientOpt{Addr: srv.Addr}
	for range workers {
		server := asynq.NewServer(opt, asynq.Config{Concurrency: 8, Queues: costQueues, LogLevel: asynq.ErrorLevel})
		if err := server.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { f.ran <- struct{}{}; return nil })); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(server.Shutdown)
	}
	client := asynq.NewClient(opt)
	b.Cleanup(func() { _ = client.Close() })
	f.send = func(i int) error {
		_, err := client.Enqueue(asynq.NewTask("raw", fmt.Append(nil, i)), asynq.Retention(time.Hour))
		return err
	}
	return f
}

// BenchmarkCost has the cost of a single task at some rates and numbers of workers, and of an idle second, beside asynq.
func BenchmarkCost(b *testing.B) {
	for _, workers := range []int{1, 8, 32} {
		for name, start := range map[string]func(*testing.B, int) *fleet{"muster": musterFleet, "asynq": asynqFleet} {
			b.Run(fmt.Sprintf("%s-%d", name, workers), func(b *testing.B) {
				f := start(b, workers)
				for _, rate := range []int{20, 100, 200, 1000, 2000, 10_000} {
					b.Run(fmt.Sprint(rate, "-per-second"), func(b *testing.B) {
						redistest.Measured(b, f.rdb, func() { f.run(b, rate) })
					})
				}
				b.Run("idle-second", func(b *testing.B) {
					redistest.Measured(b, f.rdb, func() { time.Sleep(time.Duration(b.N) * time.Second) })
				})
			})
		}
	}
}

// run sends b.N tasks at a rate, and returns when all have run. It reports the rate that the machine reached.
func (f *fleet) run(b *testing.B, rate int) {
	began := time.Now()
	var next atomic.Int64
	for range 8 {
		go func() {
			for i := next.Add(1) - 1; i < int64(b.N); i = next.Add(1) - 1 {
				time.Sleep(time.Until(began.Add(time.Duration(i) * time.Second / time.Duration(rate))))
				if err := f.send(int(i)); err != nil {
					b.Error(err)
					return
				}
			}
		}()
	}
	for range b.N {
		<-f.ran
	}
	b.ReportMetric(float64(b.N)/time.Since(began).Seconds(), "tasks/s")
}

// BenchmarkTasksThatWait has the cost of a group of tasks of 50 ms on a worker of eight slots.
func BenchmarkTasksThatWait(b *testing.B) {
	nap := tasks.New[int, int]("nap")
	client := benchClient(b, func(mux *tasks.Mux) {
		tasks.Handle(mux, nap, func(_ context.Context, i int) (int, error) { <-time.After(50 * time.Millisecond); return i, nil })
	})
	redistest.Measured(b, client.Redis(), func() { do(b, client, tasks.Each(make([]int, b.N), nap)) })
}
