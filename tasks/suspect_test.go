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

// A suspected node that runs for long before it kills its worker is found to be the cause, too.
func TestSuspectThatTakesLongIsBlamed(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		enter, ids := entering(rdb)
		enter.Release()
		w := newWorld(t, rdb, func(c *tasks.WorkerConfig) { c.Name = "suspicious" })
		resume := pause(t, w)
		run := sent(t, w, Hold.S("end"))
		setDeaths(t, rdb, 8)
		resume()
		id := <-ids
		testutil.Eventually(t, "the lease of its batch records that the node was entered", func() bool {
			lease := rdb.HGetAll(t.Context(), "muster:{0}:lease:suspicious").Val()
			if lease[id] == "" || len(lease) != 1 {
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
