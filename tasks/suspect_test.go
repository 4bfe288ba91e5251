package tasks_test

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/redistest"
)

// entering returns a fault that holds the entering of the first suspected node until Release, and a channel with the id of
// its batch.
func entering(rdb redis.UniversalClient) (*redistest.Fault, <-chan string) {
	f, ids := redistest.NewFault(redistest.Slow, 1), make(chan string, 100)
	f.Match = func(cmd redis.Cmder) bool {
		if kindOf(cmd) != "enter" {
			return false
		}
		id, _ := cmd.Args()[6].(string)
		ids <- id
		return true
	}
	f.Arm()
	rdb.AddHook(f)
	return f, ids
}

// A batch that takes long gets another id, also in the moment in which its suspected node is entered. The node runs
// anyway.
func TestSuspectRunsWhenItsBatchIsRenamed(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		enter, ids := entering(rdb)
		w := newWorld(t, rdb, func(c *tasks.WorkerConfig) { c.Name = "suspicious" })
		resume := pause(t, w)
		run := sent(t, w, tasks.Chain(ID.S(1), Inc))
		setDeaths(t, rdb, 8)
		resume()
		id := <-ids
		testutil.Eventually(t, "the batch has another id", func() bool {
			now := rdb.HKeys(t.Context(), "muster:{0}:lease:suspicious").Val()
			return len(now) == 1 && now[0] != id
		})
		enter.Release()
		if got, err := run.Wait(limited(t)); err != nil || got != 2 {
			t.Fatalf("got %v, %v, want 2", got, err)
		}
		ended(t, w, run.ID())
	})
}

// A suspected node that runs for long before it kills its worker is found to be the cause, too.
func TestSuspectThatTakesLongIsBlamed(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		enter, ids := entering(rdb)
		enter.Release()
		w := newWorld(t, rdb, func(c *tasks.WorkerConfig) { c.Name = "suspicious" })
		resume := pause(t, w)
		run := sent(t, w, tasks.Chain(Hold.S("end"), Inc))
		setDeaths(t, rdb, 8)
		resume()
		first := <-ids
		testutil.Eventually(t, "its batch has another id, and records that the node was entered", func() bool {
			lease := rdb.HGetAll(t.Context(), "muster:{0}:lease:suspicious").Val()
			if _, same := lease[first]; same || len(lease) != 1 {
				return false
			}
			for _, value := range lease {
				taken, _, _ := strings.Cut(value, " ")
				return strings.HasSuffix(taken, "!")
			}
			return false
		})
		w.open("end")
		if _, err := run.Wait(limited(t)); err != nil {
			t.Fatal(err)
		}
	})
}
