package tasks_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/redistest"
)

func TestScriptsThatRedisForgotAreSentAgain(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		w := newWorld(t, rdb)
		testutil.Ok(t, rdb.ScriptFlush(t.Context()).Err())
		wantValue(t, sent(t, w, tasks.Chord(tasks.Each(ints(30), ID), Sum)), 435)
	})
}

// A Redis that restarts, with its log on disk, loses no workflow.
func TestRestartOfRedisLosesNoWorkflow(t *testing.T) {
	t.Parallel()
	srv := redistest.Server(t, "appendonly", "yes", "appendfsync", "always")
	c := connect(t, srv.URL())
	child(t, srv.URL(), "first")
	var runs []*tasks.AsyncResult[string]
	for i := range 20 {
		var members []tasks.Signature[string]
		for k := range 5 {
			members = append(members, tasks.Chain(stepTask.S(fmt.Sprint(i, ".", k)), stepTask))
		}
		run := started(t, c, tasks.Chord(tasks.Group(members...), joinTask))
		runs = append(runs, run)
		if i == 10 {
			srv.Restart()
		}
	}
	for i, run := range runs {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		got, err := run.Wait(ctx)
		cancel()
		if err != nil || len(strings.Fields(got)) != 5 || !strings.HasPrefix(got, fmt.Sprint(i, ".", 0)) {
			rdb := c.Redis()
			t.Fatalf("workflow %d: got %q, %v\nfields %v\nagenda %v\nwake %v\nkeys %v", i, got, err,
				rdb.HGetAll(t.Context(), "muster:{0}:w:"+run.ID()+"~").Val(),
				rdb.ZRangeWithScores(t.Context(), "muster:{0}:agenda", 0, 20).Val(),
				rdb.HGetAll(t.Context(), "muster:{0}:queue:default").Val(), rdb.Keys(t.Context(), "*").Val())
		}
		if n := c.Redis().Get(t.Context(), "runs:"+run.ID()+".11").Val(); n != "1" && n != "2" {
			t.Errorf("join of workflow %d ran %s times", i, n)
		}
	}
}
