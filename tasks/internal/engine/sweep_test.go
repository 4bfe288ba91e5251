package engine

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/tasks/facttest"
	"muster/tasks/internal/graph"
	"muster/tasks/internal/store"
	"muster/tasks/redistest"
)

// trips counts round trips.
type trips struct{ n atomic.Int64 }

// DialHook implements redis.Hook.
func (c *trips) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (c *trips) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.n.Add(1)
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook implements redis.Hook.
func (c *trips) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.n.Add(1)
		return next(ctx, cmds)
	}
}

// Whatever many nodes need that the agenda has, a sweep does it in few round trips: those that wait in their
// queue are left alone, those that got lost on the way there or whose time has come are handed over, and
// what is gone is forgotten.
func TestSweepOfMany(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		sender := engineOn(t, rdb)
		waits, lost := group(t, sender, 60), group(t, sender, 40)
		soon := time.Millisecond
		timed := groupOf(t, sender, 30, &graph.Opts{}, &graph.Opts{In: &soon})
		const agenda = "muster:{s00}:agenda"
		for _, key := range rdb.Keys(t.Context(), keys+"t:"+lost+".*").Val() {
			rdb.Del(t.Context(), key)
			rdb.LRem(t.Context(), keys+"pending", 0, strings.TrimPrefix(key, keys+"t:"))
		}
		for _, n := range []string{"0", "1", "2.5", "0:1"} {
			rdb.ZAdd(t.Context(), agenda, redis.Z{Score: 1, Member: "unknown/" + n})
		}
		sender.store.Scripts().Flush(t.Context())
		for _, m := range rdb.ZRange(t.Context(), agenda, 0, -1).Val() {
			rdb.ZAdd(t.Context(), agenda, redis.Z{Score: 1, Member: m})
		}
		facttest.Eventually(t, "their time has come", func() bool {
			rec := store.ParseRecord([]byte(rdb.HGet(t.Context(), "muster:{s00}:w:"+timed, "0").Val()), 0)
			return rec.State == 'D' && rdb.Time(t.Context()).Val().UnixMilli() > rec.At
		})
		count := &trips{}
		rdb.AddHook(count)
		e := New(rdb, silent) // another process
		t.Cleanup(e.Close)
		if _, err := NewWorker(e, echo(), config("w", silent)).sweepOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
		e.store.Scripts().Flush(t.Context())
		if n := count.n.Load(); n > 30 {
			t.Errorf("%d round trips for 134 nodes of few kinds", n)
		}
		if n := rdb.LLen(t.Context(), keys+"pending").Val(); n != 130 {
			t.Errorf("%d tasks are in the queue, want 130", n)
		}
		now := time.Now()
		at := map[string][]time.Duration{}
		for _, z := range rdb.ZRangeWithScores(t.Context(), agenda, 0, -1).Val() {
			id, _, _ := strings.Cut(z.Member.(string), "/")
			at[id] = append(at[id], time.UnixMilli(int64(z.Score)).Sub(now))
		}
		for id, want := range map[string]struct {
			n     int
			after time.Duration
		}{waits: {60, holdThen - 30*time.Second}, lost: {40, 0}, timed: {30, 0}, "unknown": {}} {
			if len(at[id]) != want.n {
				t.Errorf("%d lines, want %d", len(at[id]), want.n)
			}
			for _, d := range at[id] {
				if d < want.after-10*time.Second {
					t.Errorf("the next look is in %v, want some %v", d, want.after)
				}
			}
		}
	})
}
