package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/urfave/cli/v2"

	"muster/orchestrator"
	"muster/orchestrator/monitor"
	"muster/tasks/metrics"
	"muster/tasks/workqueue"
)

// queueRun is the JSON result of "queue run".
type queueRun struct {
	Seconds   float64         `json:"seconds"`
	PerSecond float64         `json:"per_second"`
	Done      int64           `json:"done"`
	Skipped   int64           `json:"skipped"`
	Failed    int64           `json:"failed"`
	Retried   int64           `json:"retried"`
	Queue     workqueue.Stats `json:"queue"`
}

func runQueue(env environment, c *cli.Context) error {
	return withQueue(env.creating(), c, queueSettings, func(ctx context.Context, q queueScope) error {
		pool, err := q.system.NewQueuePool(q.Name(), c.String("content"), c.Bool("drain"))
		if err != nil {
			return err
		}
		if address := c.String("metrics-listen"); address != "" {
			stop, err := serveMetrics(address, "queue", q.system.System, q.display, metrics.Handler(append(pool.Collectors(), orchestrator.RuntimeMetrics())...))
			if err != nil {
				return err
			}
			defer stop()
		}
		run := ctx
		if d := c.Duration("drain-timeout"); d > 0 {
			var cancel context.CancelFunc
			run, cancel = context.WithTimeout(ctx, d)
			defer cancel()
		}
		watch, stop := context.WithCancel(context.WithoutCancel(ctx))
		var watchers sync.WaitGroup
		track := q.display.Track("queue " + q.Name())
		watchers.Go(func() { q.show(watch, track, pool) })
		start := time.Now()
		err = pool.Run(run)
		stop()
		watchers.Wait()
		return errors.Join(err, q.report(ctx, env, c, track, pool, time.Since(start)))
	})
}

// show updates a track until ctx is done.
func (q queueScope) show(ctx context.Context, track *monitor.Track, pool *orchestrator.QueuePool) {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	var last int64
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		s, err := q.Stats(ctx)
		if err != nil {
			continue // the pool reports the error
		}
		p := pool.Stats()
		ended := p.Done + p.Skipped + p.Failed
		track.Update(monitor.Progress{
			Done: s.Done + s.Skipped + s.Error, Total: s.Total, Unit: "items",
			Note: fmt.Sprintf("%d/s, queued=%d, delayed=%d, in_progress=%d, done=%d, error=%d", 2*(ended-last), s.Queued, s.Delayed, s.InProgress, s.Done, s.Error),
		})
		last = ended
	}
}

// report prints how a run ended. A drain that left items is an error, unless it
// was interrupted.
func (q queueScope) report(ctx context.Context, env environment, c *cli.Context, track *monitor.Track, pool *orchestrator.QueuePool, took time.Duration) error {
	s, err := q.Stats(context.WithoutCancel(ctx))
	if err != nil {
		return err
	}
	note := fmt.Sprintf("queued=%d, in_progress=%d, done=%d, skipped=%d, error=%d", s.Queued, s.InProgress, s.Done, s.Skipped, s.Error)
	track.Update(monitor.Progress{Done: s.Done + s.Skipped + s.Error, Total: s.Total, Unit: "items"})
	if s.Open() > 0 {
		track.Fail(note)
	} else {
		track.Done(note)
	}
	q.display.Close()
	p := pool.Stats()
	ended := p.Done + p.Skipped + p.Failed
	if c.Bool("json") {
		err = printJSON(env.stdout, queueRun{
			Seconds: took.Seconds(), PerSecond: float64(ended) / took.Seconds(),
			Done: p.Done, Skipped: p.Skipped, Failed: p.Failed, Retried: p.Retried, Queue: s,
		})
	} else {
		fmt.Fprintf(env.stdout, "Queue: %s\n", note)
		if s.Open() == 0 && c.Bool("drain") {
			fmt.Fprintln(env.stdout, "✓ Queue empty, exiting")
		}
	}
	if s.Open() > 0 && ctx.Err() != nil {
		return withState(ctx, err, "%s left; continue with muster queue run --queue %s", count(int(s.Open()), "item"), q.Name())
	}
	if c.Bool("drain") && s.Open() > 0 {
		err = errors.Join(err, fmt.Errorf("the queue is not empty: %d items are left; run it again", s.Open()))
	}
	return err
}
