package tasks_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"muster/tasks"
	"muster/tasks/redistest"
)

// BenchmarkPrograms has the duration of a workflow of a program that shares Redis and the queue with another program, which has
// eight workers with another handler and is sent 200 tasks a second. x-alone is relative to the program without the other one.
func BenchmarkPrograms(b *testing.B) {
	for _, took := range []time.Duration{0, 5 * time.Millisecond} {
		perOp := map[int]time.Duration{}
		for _, others := range []int{0, 8} {
			b.Run(fmt.Sprintf("%s-tasks-beside-%d-workers", took, others), func(b *testing.B) {
				srv := redistest.Server(b)
				client := startProgram(b, srv, func(m *tasks.Mux) {
					tasks.Handle(m, benchStep, func(_ context.Context, n int) (int, error) { time.Sleep(took); return n, nil })
					tasks.Handle(m, benchSum, func(_ context.Context, ns []int) (int, error) { time.Sleep(took); return len(ns), nil })
				})
				for i := range others {
					sender := startProgram(b, srv, func(m *tasks.Mux) {
						tasks.Handle(m, benchOther, func(_ context.Context, n int) (int, error) { return n, nil })
					})
					if i == 0 {
						sendEvery(b, sender, 5*time.Millisecond)
					}
				}
				work := func() {
					members := tasks.Map(tasks.Each(ints(10), benchStep), benchStep)
					if got := do(b, client, tasks.Chord(members, benchSum)); got != 10 {
						b.Fatalf("got %d, want 10", got)
					}
				}
				for began := time.Now(); time.Since(began) < 3*time.Second; {
					work() // until the pools of the tasks are known
				}
				redistest.Measured(b, srv.Client(), func() {
					for range b.N {
						work()
					}
				})
				perOp[others] = b.Elapsed() / time.Duration(b.N)
				if alone := perOp[0]; alone > 0 {
					b.ReportMetric(float64(perOp[others])/float64(alone), "x-alone")
				}
			})
		}
	}
}

// benchOther is a task of the other program.
var benchOther = tasks.New[int, int]("other.step")

// startProgram starts a worker with eight slots as a program with a separate client.
func startProgram(b *testing.B, srv *redistest.Instance, handle func(*tasks.Mux)) *tasks.Client {
	b.Helper()
	client, mux := tasks.NewClient(srv.Client()), tasks.NewMux()
	handle(mux)
	worker, err := tasks.StartWorker(b.Context(), client, mux, tasks.WorkerConfig{Concurrency: 8, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = worker.Stop(); _ = client.Close() })
	return client
}

// sendEvery sends tasks of the other program at intervals until b ends.
func sendEvery(b *testing.B, client *tasks.Client, d time.Duration) {
	b.Helper()
	ctx, stop := context.WithCancel(b.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(d)
		defer tick.Stop()
		for ctx.Err() == nil {
			_, _ = benchOther.S(1).Send(ctx, client)
			<-tick.C
		}
	}()
	b.Cleanup(func() { stop(); <-ended })
}
