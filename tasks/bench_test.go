package tasks_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/tasks"
)

var (
	benchStep = tasks.New[int, int]("bench.step") // returns its input
	benchSum  = tasks.New[[]int, int]("bench.sum")
)

// benchClient starts a Redis for b and a worker with eight slots.
func benchClient(b *testing.B, more ...func(*tasks.Mux)) *tasks.Client {
	b.Helper()
	client := tasks.NewClient(redistest.Server(b).Client())
	mux := tasks.NewMux()
	tasks.Handle(mux, benchStep, func(_ context.Context, i int) (int, error) { return i, nil })
	tasks.Handle(mux, benchSum, func(_ context.Context, is []int) (sum int, _ error) {
		for _, i := range is {
			sum += i
		}
		return sum, nil
	})
	for _, handle := range more {
		handle(mux)
	}
	worker := testutil.Must(tasks.StartWorker(b.Context(), client, mux, tasks.WorkerConfig{Concurrency: 8}))(b)
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
	out := testutil.Must(s.Do(b.Context(), client))(b)
	return out
}

// Single tasks, sent by eight goroutines, until all have their results.
func BenchmarkSingle(b *testing.B) {
	client := benchClient(b)
	runs := make([]*tasks.Run[int], b.N)
	redistest.Measured(b, client.Redis(), func() {
		var g errgroup.Group
		g.SetLimit(8)
		for i := range runs {
			g.Go(func() (err error) {
				runs[i], err = benchStep.S(i).Send(b.Context(), client)
				return err
			})
		}
		testutil.Ok(b, g.Wait())
		for _, run := range runs {
			testutil.Must(run.Wait(b.Context()))(b)
		}
	})
}

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
}

func BenchmarkChord1000(b *testing.B) {
	client := benchClient(b)
	redistest.Measured(b, client.Redis(), func() {
		for range b.N {
			do(b, client, tasks.Chord(tasks.Each(make([]int, 1000), benchStep), benchSum))
		}
	})
}

// BenchmarkLargeGroups has the cost of a task in groups, many of them at once: cpu-µs/op divided by tasks/op. This process
// has the sender and the worker.
func BenchmarkLargeGroups(b *testing.B) {
	for _, c := range []struct{ groups, size int }{{100, 1000}, {1, 100_000}} {
		b.Run(fmt.Sprint(c.groups, "x", c.size), func(b *testing.B) {
			client := benchClient(b)
			redistest.Measured(b, client.Redis(), func() {
				for range b.N {
					runs := make([]*tasks.Run[[]int], c.groups)
					for i := range runs {
						run := testutil.Must(tasks.Each(make([]int, c.size), benchStep).Send(b.Context(), client))(b)
						runs[i] = run
					}
					for _, run := range runs {
						testutil.Ok(b, run.WaitAll(b.Context()))
					}
				}
			})
			b.ReportMetric(float64(c.groups*c.size), "tasks/op")
		})
	}
}

// BenchmarkSend sends tasks that no worker runs: one by one, and many at once.
func BenchmarkSend(b *testing.B) {
	client := tasks.NewClient(redistest.Server(b).Client())
	b.Run("one", func(b *testing.B) {
		for b.Loop() {
			testutil.Must(benchStep.S(1).Send(b.Context(), client))(b)
		}
	})
	b.Run("many", func(b *testing.B) {
		sends := make([]tasks.Sending, 1000)
		for i := range sends {
			sends[i].Work = benchStep.S(i)
		}
		for left := b.N; left > 0; left -= len(sends) {
			testutil.Must(client.SendMany(b.Context(), sends[:min(left, len(sends))]))(b)
		}
	})
}

// BenchmarkLongestScript has the longest time in ms for which one command blocks Redis, for groups of 100,000.
func BenchmarkLongestScript(b *testing.B) {
	const size = 100_000
	bad := tasks.New[int, int]("bench.bad")
	ask := tasks.New[int, int]("bench.ask", tasks.External())
	elements := ints(size)
	for name, run := range map[string]func(*tasks.Client) error{
		"Plain": func(c *tasks.Client) error { return sendAndRevoke(b, c, tasks.Each(elements, benchStep)) },
		"In": func(c *tasks.Client) error {
			return sendAndRevoke(b, c, tasks.Each(elements, benchStep, tasks.In(time.Hour)))
		},
		"InDue": func(c *tasks.Client) error {
			_, err := tasks.Chord(tasks.Each(elements, benchStep, tasks.In(time.Second)), benchSum).Do(b.Context(), c)
			return err
		},
		"Retry": func(c *tasks.Client) error {
			return waitFor(b, c, tasks.Settle(tasks.Each(elements, bad, tasks.MaxRetry(1), tasks.ConstantBackoff(time.Second))))
		},
		"After": func(c *tasks.Client) error {
			return waitFor(b, c, tasks.After(benchStep.S(1), tasks.Each(elements, benchStep)))
		},
		"External": func(c *tasks.Client) error {
			run, err := tasks.Each(elements, ask).Send(b.Context(), c)
			if err != nil {
				return err
			}
			testutil.Eventually(b, "all tokens are open", func() bool {
				open, err := c.Inspect().OpenTasks(b.Context())
				return err == nil && len(open) == 1 && open[0].Open == size
			})
			if _, _, err := c.Inspect().OpenTokens(b.Context(), "bench.ask", ""); err != nil {
				return err
			}
			return run.Revoke(b.Context())
		},
		"Read": func(c *tasks.Client) error {
			run, err := tasks.Chord(tasks.Each(elements, benchStep, tasks.Queue("none")), benchSum).Send(b.Context(), c)
			if err != nil {
				return err
			}
			if _, err := run.Detail(b.Context()); err != nil {
				return err
			}
			if _, err := c.Workflow(run.ID()).Nodes(b.Context()); err != nil {
				return err
			}
			return run.Revoke(b.Context())
		},
		"Forget": func(c *tasks.Client) error {
			run, err := tasks.Chord(tasks.Each(elements, benchStep), benchSum).Send(b.Context(), c)
			if err != nil {
				return err
			}
			if err := run.WaitAll(b.Context()); err != nil {
				return err
			}
			return run.Delete(b.Context())
		},
	} {
		b.Run(name, func(b *testing.B) {
			client := benchClient(b, func(mux *tasks.Mux) {
				tasks.Handle(mux, bad, func(context.Context, int) (int, error) { return 0, errors.New("bad") })
			})
			rdb := client.Redis()
			testutil.Ok(b, rdb.ConfigSet(b.Context(), "slowlog-log-slower-than", "10000").Err())
			for b.Loop() {
				testutil.Ok(b, run(client))
			}
			longest := redis.SlowLog{}
			logs := testutil.Must(rdb.SlowLogGet(b.Context(), -1).Result())(b)
			for _, l := range logs {
				if l.Duration > longest.Duration {
					longest = l
				}
			}
			args := strings.Join(longest.Args, " ")
			b.Log(args[:min(len(args), 200)])
			b.ReportMetric(float64(longest.Duration.Microseconds())/1000, "blocked-ms")
		})
	}
}

func waitFor[O any](b *testing.B, c *tasks.Client, s tasks.Signature[O]) error {
	run, err := s.Send(b.Context(), c)
	if err != nil {
		return err
	}
	return run.WaitAll(b.Context())
}

func sendAndRevoke(b *testing.B, c *tasks.Client, s tasks.Signature[[]int]) error {
	run, err := tasks.Chord(s, benchSum).Send(b.Context(), c)
	if err != nil {
		return err
	}
	return run.Revoke(b.Context())
}
