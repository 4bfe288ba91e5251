package agent_test

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/jobs"
	"muster/jobs/agent"
	"muster/jobs/pipeline"
	"muster/tasks"
)

// redisCosts are counters of a Redis since its start.
type redisCosts struct{ scripts, commands, cpu float64 }

var commandCalls = regexp.MustCompile(`cmdstat_(\S+):calls=(\d+)`)

func costsOf(ctx context.Context, b *testing.B, rdb redis.UniversalClient) redisCosts {
	b.Helper()
	info := testutil.Must(rdb.Info(ctx, "cpu", "commandstats").Result())(b)
	var c redisCosts
	for _, m := range commandCalls.FindAllStringSubmatch(info, -1) {
		n, _ := strconv.ParseFloat(m[2], 64)
		switch {
		case strings.HasPrefix(m[1], "eval"):
			c.scripts += n
		case m[1] != "info":
			c.commands += n
		}
	}
	for _, m := range regexp.MustCompile(`used_cpu_(?:sys|user):([\d.]+)`).FindAllStringSubmatch(info, -1) {
		n, _ := strconv.ParseFloat(m[1], 64)
		c.cpu += n
	}
	return c
}

// BenchmarkSettledItem measures the cost of an item of a job from its lease to its completion by an agent that fetches one
// item at a time, with prompts of two sizes.
func BenchmarkSettledItem(b *testing.B) {
	for _, size := range []int{10, 900_000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			ctx, rdb := b.Context(), redistest.New(b)
			client := tasks.NewClient(rdb)
			defer client.Close()
			p := &pipeline.Pipeline{Name: "default", Stages: []pipeline.Stage{
				{Name: "create", Role: "creator", Takes: pipeline.TakesJob}, {Name: "validate", Role: "validator", Takes: pipeline.TakesItem},
			}}
			all, err := jobs.New(jobs.Config{Client: client, Pipelines: func(string) (*pipeline.Pipeline, error) { return p, nil },
				Limits: jobs.Limits{Dedupe: jobs.DedupeAllow}, Logger: slog.New(slog.DiscardHandler)})
			testutil.Ok(b, err)
			testutil.Background(b, all.Run)
			s := testutil.Must(agent.New(agent.Config{Client: client, Jobs: all, TaskRoles: func(context.Context) ([]string, error) { return nil, nil }}))(b)
			testutil.Background(b, s.Run)
			a, _, err := s.Register(ctx, agent.Registration{Name: "one", Roles: []string{"creator", "validator"}})
			testutil.Ok(b, err)
			if _, _, err := all.Create(ctx, jobs.Request{Prompt: strings.Repeat("p", size)}); err != nil {
				b.Fatal(err)
			}
			lease := func() agent.Assignment {
				got, err := s.Lease(ctx, a.ID, nil, 1, 30*time.Second)
				if err != nil || len(got) != 1 {
					b.Fatalf("got %d assignments, %v", len(got), err)
				}
				return got[0]
			}
			answer := func(w agent.Assignment, answer jobs.Answer) {
				testutil.Ok(b, s.Complete(ctx, w.ID, a.ID, w.Fence, answer))
			}
			work := lease()
			var n atomic.Int64
			for left := b.N; left > 0; left -= 1000 {
				items := make([]jobs.NewItem, min(left, 1000))
				for i := range items {
					items[i] = jobs.NewItem{Key: fmt.Sprint("k", n.Add(1)), Text: "text"}
				}
				testutil.Must(s.AddItems(ctx, work.ID, a.ID, work.Fence, items))(b)
			}
			answer(work, jobs.Answer{})
			before := costsOf(ctx, b, rdb)
			b.ResetTimer()
			for range b.N {
				answer(lease(), jobs.Answer{Usage: map[string]int64{"tokens": 5, "requests": 1}})
			}
			b.StopTimer()
			after := costsOf(ctx, b, rdb)
			b.ReportMetric((after.scripts-before.scripts)/float64(b.N), "scripts/item")
			b.ReportMetric((after.commands-before.commands)/float64(b.N), "commands/item")
			b.ReportMetric((after.cpu-before.cpu)/float64(b.N)*1e6, "redis-µs/item")
		})
	}
}
