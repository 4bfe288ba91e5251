package tasks_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/internal/store"
	"muster/tasks/redistest"
)

// A unique key and an id of choice go together, wherever on a cluster they lie.
func TestUniqueWithID(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		w := newWorld(t, rdb)
		for i := range 8 {
			key := tasks.Unique(fmt.Sprint("key", i), time.Hour)
			id := func(name string) tasks.SendOption { return tasks.ID(fmt.Sprintf("%s-%d", name, i)) }
			first := sent(t, w, ID.S(1, tasks.In(time.Hour)), id("first"), key)
			for _, name := range []string{"second", "first"} {
				got, err := ID.S(2).Send(t.Context(), w.client, id(name), key)
				if !errors.Is(err, tasks.ErrDuplicate) || got.ID() != first.ID() {
					t.Fatalf("sent as %s: got %v, %v", name, got, err)
				}
			}
			testutil.Ok(t, first.Revoke(t.Context()))
			third, err := ID.S(3).Send(t.Context(), w.client, id("third"), key)
			if err != nil {
				t.Fatalf("after the first has ended: %v", err)
			}
			wantValue(t, third, 3)
		}
	})
}

// A sender that dies between its claim and its workflow holds a unique key for seconds only.
func TestUniqueClaimedInVain(t *testing.T) {
	t.Parallel()
	rdb := redistest.Cluster(t)
	w := newWorld(t, rdb)
	key := tasks.Unique("k", time.Hour)
	sent(t, w, ID.S(1), key)
	var at string
	for _, shard := range shards(t, rdb) {
		if rdb.Exists(t.Context(), shard+"u:k").Val() == 1 {
			at = shard + "u:k"
		}
	}
	for age, free := range map[time.Duration]bool{0: false, time.Minute: true} {
		claim := fmt.Sprint("dead-sender ", time.Now().Add(-age).UnixMilli())
		testutil.Ok(t, rdb.Set(t.Context(), at, claim, time.Hour).Err())
		if _, err := ID.S(1).Send(t.Context(), w.client, key); (err == nil) != free || !free && !errors.Is(err, tasks.ErrDuplicate) {
			t.Fatalf("claimed %s ago: got %v, want no error", age, err)
		}
	}
}

// A send whose storage failed after its claim of the unique key can be repeated with the same ID. It waits until the first call
// cannot store a workflow any more.
func TestRepeatedSendHasItsClaimOfAUniqueKey(t *testing.T) {
	t.Parallel()
	rdb := redistest.Cluster(t)
	newWorld(t, rdb)
	opts := []tasks.SendOption{tasks.ID("again"), tasks.Unique("again", time.Hour), tasks.Overlap(tasks.OverlapQueue)}
	lost := redistest.NewFault(redistest.Refused, 1)
	lost.Match = func(cmd redis.Cmder) bool {
		return len(cmd.Args()) > 1 && store.ScriptName(fmt.Sprint(cmd.Args()[1])) == "submit"
	}
	lost.Arm()
	faulty := redis.NewClusterClient(rdb.(*redis.ClusterClient).Options())
	t.Cleanup(func() { _ = faulty.Close() })
	faulty.AddHook(lost)
	c := tasks.NewClient(faulty)
	t.Cleanup(func() { _ = c.Close() })
	for i, want := range []error{redistest.ErrFault, nil, tasks.ErrDuplicate} {
		out, err := c.SendMany(t.Context(), []tasks.Sending{{Work: ID.S(1), Options: opts}})
		if !errors.Is(err, want) || (err == nil) != (want == nil) || i > 0 && out[0].ID != "again" {
			t.Fatalf("call %d: got %+v, %v, want %v", i+1, out, err, want)
		}
		if i == 1 {
			wantValue(t, tasks.Attach[int](c, "again"), 1)
		}
	}
}
