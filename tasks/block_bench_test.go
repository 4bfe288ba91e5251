package tasks_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/testutil"
	"muster/tasks"
)

// BenchmarkLongestScript has the longest time in ms for which one command blocks Redis, for groups of 100,000.
func BenchmarkLongestScript(b *testing.B) {
	const size = 100_000
	list := tasks.New[int, []int]("bench.list")
	bad := tasks.New[int, int]("bench.bad")
	instead := tasks.New[tasks.Failure, int]("bench.instead")
	ask := tasks.New[int, int]("bench.ask", tasks.External())
	elements := ints(size)
	each := func(n int, member func(i int) tasks.Signature[int]) (out []tasks.Signature[int]) {
		for i := range n {
			out = append(out, member(i))
		}
		return out
	}
	for name, run := range map[string]func(*tasks.Client) error{
		"Plain": func(c *tasks.Client) error { return sendAndRevoke(b, c, tasks.Each(elements, benchStep)) },
		"In": func(c *tasks.Client) error {
			return sendAndRevoke(b, c, tasks.Each(elements, benchStep, tasks.In(time.Hour)))
		},
		"InDue": func(c *tasks.Client) error {
			_, err := tasks.Chord(tasks.Each(elements, benchStep, tasks.In(time.Second)), benchSum).Do(b.Context(), c)
			return err
		},
		"AtMost": func(c *tasks.Client) error {
			return sendAndRevoke(b, c, tasks.Each(elements, benchStep, tasks.AtMost(10)))
		},
		"Retry": func(c *tasks.Client) error {
			return waitFor(b, c, tasks.Settle(tasks.Each(elements, bad, tasks.MaxRetry(1), tasks.ConstantBackoff(time.Second))))
		},
		"LinkError": func(c *tasks.Client) error {
			return waitFor(b, c, tasks.Settle(tasks.Each(elements[:size/3], bad, tasks.LinkError(instead))))
		},
		"TwoQueues": func(c *tasks.Client) error {
			return sendAndRevoke(b, c, tasks.GroupOf(each(size, func(i int) tasks.Signature[int] { return benchStep.S(i, tasks.Queue([]string{"none", "void"}[i%2])) })))
		},
		"DifferentIn": func(c *tasks.Client) error {
			return sendAndRevoke(b, c, tasks.GroupOf(each(size, func(i int) tasks.Signature[int] {
				return benchStep.S(i, tasks.In(time.Hour+time.Duration(i)*time.Millisecond))
			})))
		},
		"After": func(c *tasks.Client) error {
			return waitFor(b, c, tasks.After(benchStep.S(1), tasks.Each(elements, benchStep)))
		},
		"MapFunc": func(c *tasks.Client) error {
			return waitFor(b, c, tasks.MapFunc(list.S(20000), func(s tasks.Signature[int]) tasks.Signature[int] { return tasks.Chain(s, benchStep) }))
		},
		"External": func(c *tasks.Client) error {
			run, err := tasks.Each(elements, ask).Send(b.Context(), c)
			if err != nil {
				return err
			}
			testutil.Eventually(b, "all tokens are open", func() bool {
				open, err := c.OpenTasks(b.Context())
				return err == nil && len(open) == 1 && open[0].Open == size
			})
			if _, _, err := c.OpenTokens(b.Context(), "bench.ask", ""); err != nil {
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
			if _, err := c.Nodes(b.Context(), run.ID()); err != nil {
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
			return run.Forget(b.Context())
		},
		"FailFast": func(c *tasks.Client) error {
			members := make([]tasks.Signature[int], 0, size)
			for i := range size - 1 {
				members = append(members, benchStep.S(i, tasks.Queue("none")))
			}
			run, err := tasks.Chord(tasks.GroupOf(append(members, bad.S(1)), tasks.FailFast()), benchSum).Send(b.Context(), c)
			if err != nil {
				return err
			}
			return run.WaitAll(b.Context())
		},
	} {
		b.Run(name, func(b *testing.B) {
			client := benchClient(b, func(mux *tasks.Mux) {
				tasks.Handle(mux, list, func(_ context.Context, n int) ([]int, error) { return ints(n), nil })
				tasks.Handle(mux, instead, func(context.Context, tasks.Failure) (int, error) { return 0, nil })
				tasks.Handle(mux, bad, func(context.Context, int) (int, error) { return 0, errors.New("bad") })
			})
			rdb := client.Redis()
			testutil.Ok(b, rdb.ConfigSet(b.Context(), "slowlog-log-slower-than", "10000").Err())
			for b.Loop() {
				testutil.Ok(b, run(client))
			}
			longest := redis.SlowLog{}
			logs, err := rdb.SlowLogGet(b.Context(), -1).Result()
			testutil.Ok(b, err)
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
