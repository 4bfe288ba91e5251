package tasks_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/tasks"
)

// The clock of Redis jumps by a day, forward and back: workflows end, and no live worker is treated as dead.
func TestJumpOfTheClockOfRedisDoesNoHarm(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	rdb, jump := redistest.Clock(t)
	worlds := make([]*world, 3)
	runs := make([]*tasks.Run[int], len(worlds))
	for i := range worlds {
		queue := fmt.Sprint("q", i)
		worlds[i] = newWorld(t, rdb, func(c *tasks.WorkerConfig) { c.Name = queue; c.Queues = map[string]int{queue: 1, "default": 1} })
		runs[i] = sent(t, worlds[i], tasks.Chain(Hold.S("jump", tasks.Queue(queue)), Inc))
		testutil.Eventually(t, "it runs", func() bool { return len(worlds[i].noted("at jump")) == 1 })
	}
	beats := func() (out [3]float64) {
		for i, w := range worlds {
			out[i] = rdb.ZScore(t.Context(), "muster:workers", w.worker.Name()).Val()
		}
		return out
	}
	beaten := func(times int) {
		for range times {
			before := beats()
			testutil.Eventually(t, "all beat", func() bool {
				now := beats()
				return now[0] != before[0] && now[1] != before[1] && now[2] != before[2]
			})
		}
	}
	for _, d := range []time.Duration{day, -day, -day, day} {
		jump(d)
		beaten(3)
		if got, err := send(t, worlds[0], tasks.Chord(tasks.Each(ints(50), ID), Sum)); err != nil || got != 1225 {
			t.Errorf("after a jump of %v: got %v, %v, want 1225", d, got, err)
		}
		if got, err := send(t, worlds[1], tasks.Chain(Range.S(2, tasks.In(50*time.Millisecond)), Sum)); err != nil || got != 1 {
			t.Errorf("after a jump of %v: a delayed task came to %v, %v, want 1", d, got, err)
		}
	}
	for i, w := range worlds {
		if n := w.ran(runs[i].ID() + ".0"); n != 1 {
			t.Errorf("the task of worker %d ran %d times, want once", i, n)
		}
		if n := w.worker.Stats().Recovered; n != 0 {
			t.Errorf("worker %d took over %d nodes, want none", i, n)
		}
		w.open("jump")
		if got, err := runs[i].Wait(limited(t)); err != nil || got != 2 {
			t.Errorf("got %v, %v, want 2", got, err)
		}
	}
}

// Times that were stored before the clock of Redis was set back are in the future: a worker that died then is found
// dead anyway.
func TestClockOfRedisMayBeSetBack(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		w := newWorld(t, rdb)
		if _, err := send(t, w, ID.S(1)); err != nil {
			t.Fatal(err)
		}
		tomorrow := time.Now().Add(24 * time.Hour).UnixMilli()
		rdb.ZAdd(t.Context(), "muster:workers", redis.Z{Score: float64(tomorrow), Member: "ghost"})

		testutil.Eventually(t, "the dead worker is gone", func() bool {
			return rdb.ZScore(t.Context(), "muster:workers", "ghost").Err() != nil
		})
	})
}
