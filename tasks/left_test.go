package tasks_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"muster/tasks"
	"muster/tasks/facttest"
	"muster/tasks/internal/canvas"
	"muster/tasks/redistest"
)

// Once workflows of all kinds have ended and their retention is over, nothing is left of them in Redis,
// though some failed, some were revoked on the way, and workers were killed.
func TestNothingIsLeft(t *testing.T) {
	t.Parallel()
	url := redistest.URL(t)
	c := connect(t, url)
	rdb := c.Redis()
	canvases := rapid.Custom(func(t *rapid.T) *canvas.Scope { return canvas.Draw(choices{t}, 2) })
	var runs []*tasks.AsyncResult[int]
	for round := range 3 {
		for i := range 40 {
			s := canvases.Example(100*round + i)
			run, err := s.Signature().Send(t.Context(), c, tasks.Retention(50*time.Millisecond))
			if err != nil {
				t.Fatal(err)
			}
			runs = append(runs, run)
		}
		name := fmt.Sprint("victim", round)
		doomed(t, url, name, []string{"popped", "begun", "failed"}[round])
		for i, run := range runs {
			if i%5 != round {
				continue
			}
			// Those of the rounds before can have ended long enough ago.
			if err := run.Revoke(t.Context()); err != nil && !errors.Is(err, tasks.ErrUnknown) {
				t.Fatal(err)
			}
		}
		if err := tasks.ExpireLeases(t.Context(), c, name); err != nil {
			t.Fatal(err)
		}
	}
	// What the dead had in hand is asynq's again after a minute; here, when the next worker starts.
	for _, id := range rdb.ZRange(t.Context(), "asynq:{default}:lease", 0, -1).Val() {
		rdb.ZAddXX(t.Context(), "asynq:{default}:lease", redis.Z{Score: 1, Member: id})
	}
	child(t, url, "heir")
	// These stand for the fleet and its queues, however many workflows there were.
	fixed := []string{"muster:shards", "muster:{workers}", "asynq:queues", "asynq:servers", "asynq:workers",
		"asynq:{default}:processed", "asynq:{default}:failed"}
	var left []string
	if !facttest.Comes(func() bool {
		left = left[:0]
		keys := rdb.Keys(t.Context(), "*").Val()
		pipe := rdb.Pipeline()
		ttls := make([]*redis.DurationCmd, len(keys))
		for i, key := range keys {
			ttls[i] = pipe.PTTL(t.Context(), key)
		}
		if _, err := pipe.Exec(t.Context()); err != nil {
			return false
		}
		for i, key := range keys {
			if (ttls[i].Val() == -1 || strings.Contains(key, "}:w:")) && !slices.Contains(fixed, key) {
				left = append(left, key)
			}
		}
		return len(keys) > 0 && len(left) == 0
	}) {
		t.Fatalf("left are %d keys: %v", len(left), left)
	}
}
