//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"muster/tasks"
	taskmetrics "muster/tasks/metrics"
)

// Environment variables of a workflow worker, which is a process of this program.
const (
	workerEnv  = "MUSTER_SOAK_WORKER_URL"
	metricsEnv = "MUSTER_SOAK_WORKER_METRICS" // listen address of its metrics
)

// flowQueue is the queue of the workflow worker.
const flowQueue = "soak"

// The tasks of the workflows.
var (
	onQueue  = tasks.Queue(flowQueue)
	taskNum  = tasks.New[int, int]("soak.num", onQueue)
	taskInc  = tasks.New[int, int]("soak.inc", onQueue)
	taskSum  = tasks.New[[]int, int]("soak.sum", onQueue)
	taskUpTo = tasks.New[int, []int]("soak.upto", onQueue)
	taskOnce = tasks.New[int, int]("soak.flaky", onQueue, tasks.MaxRetry(3), tasks.ConstantBackoff(100*time.Millisecond))
	taskFail = tasks.New[int, int]("soak.fail", onQueue)
	taskLost = tasks.New[[]tasks.Outcome[int], int]("soak.failures", onQueue)
	taskInst = tasks.New[tasks.Failure, int]("soak.instead", onQueue)
)

var errWanted = errors.New("this task fails")

// flow is a workflow with its expected result.
type flow struct {
	name  string
	sig   tasks.Signature[int]
	value int
	fails bool
}

// newFlow returns a random workflow.
func newFlow(r *rand.Rand) flow {
	n := r.IntN(8)
	ns := upTo(n)
	switch r.IntN(8) {
	case 0:
		return flow{"chain", tasks.Chain(tasks.Chain(taskNum.S(n), taskInc), taskInc), n + 2, false}
	case 1:
		return flow{"group", tasks.Chord(tasks.Group(taskNum.S(n), taskOnce.S(n), taskNum.S(n, tasks.In(time.Second))), taskSum), 3 * n, false}
	case 2:
		return flow{"chord", tasks.Chord(tasks.Each(ns, taskNum, tasks.AtMost(2)), taskSum), sum(ns), false}
	case 3:
		return flow{"map", tasks.Chord(tasks.Map(tasks.Chain(taskNum.S(n), taskUpTo), taskInc), taskSum), sum(ns) + n, false}
	case 4:
		return flow{"failures as values", tasks.Chord(tasks.Settle(tasks.Group(taskNum.S(n), taskFail.S(n))), taskLost), 1, false}
	case 5:
		return flow{"rescue", tasks.Chain(tasks.Chain(taskFail.S(n), taskInc).Rescue(taskInst), taskInc), 1, false}
	case 6:
		return flow{"failure", tasks.Chain(tasks.Chain(taskNum.S(n), taskFail), taskInc), 0, true}
	default:
		return flow{"retry", tasks.Chain(taskOnce.S(n), taskInc), n + 1, false}
	}
}

// wrong returns the difference from the expected result, or "".
func (f flow) wrong(got int, err error) string {
	var failure *tasks.Failure
	switch {
	case f.fails && (!errors.As(err, &failure) || failure.Message != errWanted.Error()):
		return fmt.Sprintf("%s: got %d, %v, want the error %q", f.name, got, err, errWanted)
	case !f.fails && (err != nil || got != f.value):
		return fmt.Sprintf("%s: got %d, %v, want %d", f.name, got, err, f.value)
	}
	return ""
}

func upTo(n int) []int {
	ns := make([]int, n)
	for i := range ns {
		ns[i] = i
	}
	return ns
}

func sum(ns []int) int {
	total := 0
	for _, n := range ns {
		total += n
	}
	return total
}

func flowMux() *tasks.Mux {
	m := tasks.NewMux()
	same := func(_ context.Context, n int) (int, error) { return n, nil }
	tasks.Handle(m, taskNum, same)
	tasks.Handle(m, taskInc, func(_ context.Context, n int) (int, error) { return n + 1, nil })
	tasks.Handle(m, taskSum, func(_ context.Context, ns []int) (int, error) { return sum(ns), nil })
	tasks.Handle(m, taskUpTo, func(_ context.Context, n int) ([]int, error) { return upTo(n), nil })
	tasks.Handle(m, taskFail, func(context.Context, int) (int, error) { return 0, errWanted })
	tasks.Handle(m, taskInst, func(context.Context, tasks.Failure) (int, error) { return 0, nil })
	tasks.Handle(m, taskOnce, func(ctx context.Context, n int) (int, error) {
		if tasks.InfoFrom(ctx).Attempt == 1 {
			return 0, errWanted
		}
		return n, nil
	})
	tasks.Handle(m, taskLost, func(_ context.Context, all []tasks.Outcome[int]) (int, error) {
		lost := 0
		for _, o := range all {
			if o.Err != nil {
				lost++
			}
		}
		return lost, nil
	})
	return m
}

// runWorker implements the main function of a workflow worker. It serves metrics.
func runWorker(ctx context.Context, url, metrics string) error {
	c, err := tasks.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer c.Close()
	server := &http.Server{Addr: metrics, Handler: taskmetrics.Handler(), ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.ListenAndServe() }() // until Close; the report shows missing samples
	defer server.Close()
	w, err := tasks.NewWorker(c, flowMux(), tasks.WorkerConfig{Queues: map[string]int{flowQueue: 1}, Concurrency: 4, Grace: 5 * time.Second})
	if err != nil {
		return err
	}
	return w.Run(ctx)
}
