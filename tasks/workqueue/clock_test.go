package workqueue_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/testutil"
	"muster/tasks/redistest"
	"muster/tasks/workqueue"
)

// NotBefore does not depend on the difference between the clocks of Redis and of this machine.
func TestItemsWaitWhateverTheClocks(t *testing.T) {
	t.Parallel()
	for _, ahead := range []time.Duration{-10 * time.Minute, -time.Second, time.Second, 10 * time.Minute} {
		rdb, jump := redistest.Clock(t)
		jump(ahead)
		k := newKit(t, rdb, workqueue.Config{})
		if _, err := k.Enqueue(t.Context(), workqueue.Item{ID: "a", NotBefore: time.Now().Add(time.Hour)}); err != nil {
			t.Fatal(err)
		}
		for _, wait := range []time.Duration{time.Hour, time.Minute} {
			got, err := k.LeaseWithin(t.Context(), "w", 1, workqueue.Budget{Default: -1})
			if err != nil || len(got.Items) > 0 || got.Next > wait || got.Next < wait/2 {
				t.Errorf("Redis ahead by %v: got %+v, %v, want none for %v", ahead, got, err, wait)
			}
			jump(time.Hour - time.Minute)
		}
		if got, err := k.Lease(t.Context(), "w", 1); err != nil || len(got) != 1 {
			t.Errorf("Redis ahead by %v: got %v, %v, want the item", ahead, got, err)
		}
	}
}

// After the clock of Redis was set back, delayed items and leases of dead workers wait no longer than when they began.
func TestClockOfRedisIsSetBack(t *testing.T) {
	t.Parallel()
	rdb, jump := redistest.Clock(t)
	k := newKit(t, rdb, workqueue.Config{LeaseTTL: 10 * time.Minute})
	k.enqueue("retried", "held")
	k.leaseOne("dead")
	k.retry(k.leaseOne("w"), time.Minute)
	lease := func(wait time.Duration, want int) {
		t.Helper()
		got, err := k.LeaseWithin(t.Context(), "w", 1, workqueue.Budget{Default: -1})
		if err != nil || len(got.Items) != want || got.Next > wait {
			t.Errorf("got %+v, %v, want %d items and the next within %v", got, err, want, wait)
		}
	}
	lease(time.Minute, 0)
	jump(-time.Hour)
	lease(time.Minute, 0)
	jump(time.Minute)
	lease(9*time.Minute+time.Second, 1)
	jump(9*time.Minute + time.Second)
	lease(10*time.Minute, 1)
}

// Many delayed items are corrected in parts.
func TestClockIsSetBackUnderManyItems(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		k := newKit(t, rdb, workqueue.Config{})
		items := make([]workqueue.Item, 1200)
		for i := range items {
			items[i] = workqueue.Item{ID: fmt.Sprint(i), NotBefore: time.Now().Add(time.Hour)}
		}
		if _, err := k.Enqueue(t.Context(), items...); err != nil {
			t.Fatal(err)
		}
		// As if they had been added when the clock was two hours ahead.
		var rec, meta, delayed string
		for _, key := range rdb.Keys(t.Context(), "*").Val() {
			switch {
			case strings.HasSuffix(key, ":rec"):
				rec = key
			case strings.HasSuffix(key, ":meta"):
				meta = key
			case strings.HasSuffix(key, ":delayed"):
				delayed = key
			}
		}
		const ahead = 2 * time.Hour
		pipe := rdb.Pipeline()
		for id, r := range rdb.HGetAll(t.Context(), rec).Val() {
			fields := strings.SplitN(r, " ", 9)
			var since int64
			if _, err := fmt.Sscan(fields[7], &since); err != nil {
				t.Fatal(err)
			}
			fields[7] = fmt.Sprint(since + ahead.Milliseconds())
			pipe.HSet(t.Context(), rec, id, strings.Join(fields, " "))
			pipe.ZIncrBy(t.Context(), delayed, float64(ahead.Milliseconds()), id)
		}
		pipe.HSet(t.Context(), meta, "clock", time.Now().Add(ahead).UnixMilli())
		if _, err := pipe.Exec(t.Context()); err != nil {
			t.Fatal(err)
		}
		testutil.Eventually(t, "all items are due in an hour", func() bool {
			_, err := k.Lease(t.Context(), "w", 1)
			last, rerr := rdb.ZRangeWithScores(t.Context(), delayed, -1, -1).Result()
			if errors.Join(err, rerr) != nil || len(last) != 1 {
				t.Fatalf("got %v, %v, %v", last, err, rerr)
			}
			return time.UnixMilli(int64(last[0].Score)).Before(time.Now().Add(90 * time.Minute))
		})
	})
}
