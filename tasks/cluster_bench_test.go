package tasks_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"muster/tasks"
	"muster/tasks/redistest"
)

// BenchmarkCluster has the Redis CPU time per workflow on one server, and on the busiest of three servers of a Cluster. x-servers
// is the first divided by the second: the number of single servers with the capacity of the Cluster. Four workers with
// eight slots run 64 or 512 workflows at a time.
func BenchmarkCluster(b *testing.B) {
	chain := benchStep.S(1)
	for range 9 {
		chain = tasks.Chain(chain, benchStep)
	}
	for name, do := range map[string]func(context.Context, *tasks.Client) error{
		"single":      func(ctx context.Context, c *tasks.Client) error { _, err := benchStep.S(1).Do(ctx, c); return err },
		"chain-of-10": func(ctx context.Context, c *tasks.Client) error { _, err := chain.Do(ctx, c); return err },
		"chord-of-100": func(ctx context.Context, c *tasks.Client) error {
			_, err := tasks.Chord(tasks.Each(make([]int, 100), benchStep), benchSum).Do(ctx, c)
			return err
		},
	} {
		for _, atOnce := range []int{64, 512} {
			b.Run(fmt.Sprint(name, "/", atOnce), func(b *testing.B) {
				one := busiest(b, redistest.Server(b).Client(), atOnce, do)
				three := busiest(b, redistest.Cluster(b), atOnce, do)
				b.ReportMetric(one, "server-µs/op")
				b.ReportMetric(three, "busiest-µs/op")
				b.ReportMetric(one/three, "x-servers")
			})
		}
	}
}

// busiest runs b.N workflows and returns the µs of CPU time per workflow of the Redis with the most.
func busiest(b *testing.B, rdb redis.UniversalClient, atOnce int, do func(context.Context, *tasks.Client) error) float64 {
	b.Helper()
	client := tasks.NewClient(rdb)
	mux := tasks.NewMux()
	tasks.Handle(mux, benchStep, func(_ context.Context, i int) (int, error) { return i, nil })
	tasks.Handle(mux, benchSum, func(_ context.Context, is []int) (int, error) { return len(is), nil })
	for range 4 {
		worker, err := tasks.StartWorker(b.Context(), client, mux, tasks.WorkerConfig{Concurrency: 8})
		if err != nil {
			b.Fatal(err)
		}
		defer func() { _ = worker.Stop() }()
	}
	before := redistest.CPU(b, rdb)
	var g errgroup.Group
	g.SetLimit(atOnce)
	for range b.N {
		g.Go(func() error { return do(b.Context(), client) })
	}
	if err := g.Wait(); err != nil {
		b.Fatal(err)
	}
	most := 0.0
	for addr, us := range redistest.CPU(b, rdb) {
		most = max(most, us-before[addr])
	}
	return most / float64(b.N)
}
