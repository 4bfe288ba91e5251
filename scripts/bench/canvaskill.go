package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"time"

	"muster/tasks"
)

const (
	killNodes   = 50_000
	killWorkers = 3
	killLimit   = 15 * time.Minute
)

// napWorker is the child process of withKills.
func napWorker(ctx context.Context, c *tasks.Client, name string, ready func()) error {
	w, err := tasks.NewWorker(c, benchMux(), tasks.WorkerConfig{Name: name, Concurrency: 8, Ready: ready})
	if err != nil {
		return err
	}
	return w.Run(ctx)
}

// withKills is how long a group of 50,000 tasks of 20 ms takes, in s, while worker processes are killed one after the
// other, by a signal that cannot be caught. It fails unless all values are right. The other workers have to find the
// dead ones by themselves: tasks.ExpireLeases is not called.
func withKills(kills int) measureFunc {
	return func(ctx context.Context, l *lab) (_ float64, err error) {
		c := tasks.NewClient(l.redis())
		defer func() { err = errors.Join(err, c.Close()) }()
		workers := make([]*exec.Cmd, killWorkers)
		defer func() {
			for _, w := range workers {
				killChild(w)
			}
		}()
		for i := range workers {
			if workers[i], err = startChild(ctx, l, childNap, fmt.Sprint("nap", i)); err != nil {
				return 0, err
			}
		}
		began := time.Now()
		run, err := tasks.Each(seq(killNodes), benchNap).Send(ctx, c)
		if err != nil {
			return 0, err
		}
		for kill := range kills {
			// The kill comes somewhere in its share of the nodes.
			if err := awaitDone(ctx, run, (killNodes*kill+rand.N(killNodes))/kills); err != nil {
				return 0, fmt.Errorf("before kill %d: %w", kill+1, err)
			}
			w := &workers[kill%killWorkers]
			killChild(*w)
			if *w, err = startChild(ctx, l, childNap, fmt.Sprint("nap", killWorkers+kill)); err != nil {
				return 0, err
			}
		}
		got, err := run.Wait(ctx)
		took := time.Since(began)
		if err == nil && !slices.Equal(got, seq(killNodes)) {
			err = fmt.Errorf("after %d kills the group does not yield the values of its members", kills)
		}
		return took.Seconds(), err
	}
}

// awaitDone waits until n nodes have ended.
func awaitDone(ctx context.Context, run *tasks.AsyncResult[[]int], n int) error {
	for {
		p, err := run.Progress(ctx)
		if err != nil || p.Done >= n {
			return err
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// killAllowance is how long the group may take with kills, in s: 1.3 times as long as without, and 10 s.
func killAllowance(ctx context.Context, l *lab) (float64, error) {
	v, err := withKills(0)(ctx, l)
	return 1.3*v + 10, err
}
