package tasks_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/tasks"
)

// BenchmarkLongestScript has the longest time in ms for which one command blocks Redis, for groups of 100,000.
func BenchmarkLongestScript(b *testing.B) {
	const size = 100_000
	list := tasks.New[int, []int]("bench.list")
	bad := tasks.New[int, int]("bench.bad")
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
		"AtMost": func(c *tasks.Client) error {
			return sendAndRevoke(b, c, tasks.Each(elements, benchStep, tasks.AtMost(10)))
		},
		"Expires": func(c *tasks.Client) error {
			return sendAndRevoke(b, c, tasks.Each(elements, benchStep, tasks.Queue("none"), tasks.Expires(time.Hour)))
		},
		"MapIn": func(c *tasks.Client) error {
			_, err := tasks.Chord(tasks.Map(list.S(size), benchStep.With(tasks.In(time.Second))), benchSum).Do(b.Context(), c)
			return err
		},
		"MapAtMost": func(c *tasks.Client) error {
			_, err := tasks.Chord(tasks.Map(list.S(size), benchStep, tasks.AtMost(10)), benchSum).Do(b.Context(), c)
			return err
		},
		"FailFastEach": func(c *tasks.Client) error {
			run, err := tasks.Chord(tasks.Each(elements, bad, tasks.FailFast()), benchSum).Send(b.Context(), c)
			if err != nil {
				return err
			}
			return run.WaitAll(b.Context())
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
				tasks.Handle(mux, bad, func(context.Context, int) (int, error) { return 0, errors.New("bad") })
			})
			rdb := client.Redis()
			if err := rdb.ConfigSet(b.Context(), "slowlog-log-slower-than", "10000").Err(); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if err := run(client); err != nil {
					b.Fatal(err)
				}
			}
			longest := redis.SlowLog{}
			logs, err := rdb.SlowLogGet(b.Context(), -1).Result()
			if err != nil {
				b.Fatal(err)
			}
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

func sendAndRevoke(b *testing.B, c *tasks.Client, s tasks.Signature[[]int]) error {
	run, err := tasks.Chord(s, benchSum).Send(b.Context(), c)
	if err != nil {
		return err
	}
	return run.Revoke(b.Context())
}
