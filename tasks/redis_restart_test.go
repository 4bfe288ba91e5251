package tasks_test

import (
	"testing"

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
