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
	sends := map[string]func(c *tasks.Client, opts []tasks.SendOption) (string, error){
		"Send": func(c *tasks.Client, opts []tasks.SendOption) (string, error) {
			run, err := ID.S(1).Send(t.Context(), c, opts...)
			if run == nil {
				return "", err
			}
			return run.ID(), err
		},
		"SendMany": func(c *tasks.Client, opts []tasks.SendOption) (string, error) {
			out, err := c.SendMany(t.Context(), []tasks.Sending{{Work: ID.S(1), Options: opts}})
			return out[0].ID, err
		},
	}
	for name, send := range sends {
		for _, policy := range []tasks.OverlapPolicy{tasks.OverlapSkip, tasks.OverlapQueue, tasks.OverlapCancel} {
			id := name + "-" + string(policy)
			t.Run(id, func(t *testing.T) {
				t.Parallel()
				opts := []tasks.SendOption{tasks.ID(id), tasks.Unique(id, time.Hour), tasks.Overlap(policy)}
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
				if _, err := send(c, opts); !errors.Is(err, redistest.ErrFault) {
					t.Fatalf("%s: got %v, want the fault", id, err)
				}
				if got, err := send(c, opts); err != nil || got != id {
					t.Fatalf("%s again: got %q, %v, want no error", id, got, err)
				}
				wantValue(t, tasks.Attach[int](c, id), 1)
				if got, err := send(c, opts); !errors.Is(err, tasks.ErrDuplicate) || got != id {
					t.Errorf("%s a third time: got %q, %v, want a duplicate", id, got, err)
				}
			})
		}
	}
}

// A reused ID refers to its latest workflow in every process.
func TestReusedIDRefersToTheLatestWorkflow(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		short := tasks.Retention(200 * time.Millisecond) // miniredis ages keys by 20 ms at once
		if got, err := tasks.Chain(ID.S(1), Inc).Send(t.Context(), w.client, tasks.ID("daily"), short); err != nil {
			t.Fatal(got, err)
		}
		testutil.Eventually(t, "its retention is over", func() bool {
			_, err := tasks.Attach[int](w.client, "daily").Status(t.Context())
			return errors.Is(err, tasks.ErrUnknown)
		})
		sender := tasks.NewClient(w.client.Redis())
		t.Cleanup(func() { _ = sender.Close() })
		run := started(t, sender, tasks.Chord(tasks.Each([]int{3, 4}, ID), Sum), tasks.ID("daily"))
		wantValue(t, run, 7)
	})
}
