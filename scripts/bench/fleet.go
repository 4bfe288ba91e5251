package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"muster/tasks"
)

// fleet is the workers of a round in this process. Each has its own connection.
type fleet struct {
	client  *tasks.Client // to send with: the first worker's
	workers []*tasks.Worker
	stops   []func() error
	use     []func(*tasks.Mux, *tasks.Client) // add middleware
}

// startFleet starts workers with a number of slots each, and returns when they take tasks.
func startFleet(ctx context.Context, l *lab, workers, slots int, use ...func(*tasks.Mux, *tasks.Client)) (*fleet, error) {
	f := &fleet{use: use}
	for range workers {
		if err := f.add(ctx, l, slots); err != nil {
			return nil, errors.Join(err, f.stop())
		}
	}
	return f, nil
}

func (f *fleet) add(ctx context.Context, l *lab, slots int) error {
	c, err := tasks.Connect(ctx, l.url())
	if err != nil {
		return err
	}
	mux := benchMux()
	for _, use := range f.use {
		use(mux, c)
	}
	w, stop, err := startWorker(ctx, c, mux, tasks.WorkerConfig{Name: fmt.Sprint("bench", len(f.workers)), Concurrency: slots})
	if err != nil {
		return errors.Join(err, c.Close())
	}
	if f.client == nil {
		f.client = c
	}
	f.workers = append(f.workers, w)
	f.stops = append(f.stops, func() error { return errors.Join(stop(), c.Close()) })
	return nil
}

// stop ends the workers. It may be called again.
func (f *fleet) stop() error {
	var err error
	for _, stop := range f.stops {
		err = errors.Join(err, stop())
	}
	f.stops = nil
	return err
}

// succeeded is how many tasks have run, with their results stored.
func (f *fleet) succeeded() int64 {
	var n int64
	for _, w := range f.workers {
		n += w.Stats().Succeeded
	}
	return n
}

// onFleet returns a round that calls take with a fleet. The fleet has run a task before.
func onFleet(workers, slots int, take func(context.Context, *lab, *fleet) (float64, error)) measureFunc {
	return func(ctx context.Context, l *lab) (float64, error) {
		f, err := startFleet(ctx, l, workers, slots)
		if err != nil {
			return 0, err
		}
		if err := sendSingles(ctx, f, 1); err != nil {
			return 0, errors.Join(err, f.stop())
		}
		v, err := take(ctx, l, f)
		return v, errors.Join(err, f.stop())
	}
}

// timed is how long work takes, in ms.
func timed(work func(context.Context, *fleet) error) func(context.Context, *lab, *fleet) (float64, error) {
	return func(ctx context.Context, _ *lab, f *fleet) (float64, error) {
		began := time.Now()
		err := work(ctx, f)
		return ms(time.Since(began)), err
	}
}

// rate turns the ms that n take into a number per second.
func rate(n int, took measureFunc) measureFunc {
	return func(ctx context.Context, l *lab) (float64, error) {
		v, err := took(ctx, l)
		return float64(n) / v * 1000, err
	}
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// seq returns the numbers from 0 to n-1.
func seq(n int) []int {
	is := make([]int, n)
	for i := range is {
		is[i] = i
	}
	return is
}

// bySenders calls send for 0 to n-1, in eight goroutines.
func bySenders(n int, send func(i int) error) error {
	const senders = 8
	var g errgroup.Group
	for first := range senders {
		g.Go(func() error {
			for i := first; i < n; i += senders {
				if err := send(i); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// sendWait sends a workflow and waits for its value.
func sendWait[O any](ctx context.Context, c *tasks.Client, s tasks.Signature[O], opts ...tasks.SendOption) (O, error) {
	run, err := s.Send(ctx, c, opts...)
	if err != nil {
		var zero O
		return zero, err
	}
	return run.Wait(ctx)
}
