package tasks_test

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/redistest"
)

// enterWatch is a connection that notes the batch with which the first suspected node is entered.
type enterWatch struct {
	before func(next redis.ProcessHook, id string) // called before that node is entered; may be nil

	mu sync.Mutex // guards id
	id string
}

// DialHook implements redis.Hook.
func (e *enterWatch) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

// ProcessHook implements redis.Hook.
func (e *enterWatch) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if kindOf(cmd) == "enter" {
			id, _ := cmd.Args()[5].(string)
			if e.note(id) && e.before != nil {
				e.before(next, id)
			}
		}
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook implements redis.Hook.
func (e *enterWatch) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// note keeps an id, and reports whether it is the first one.
func (e *enterWatch) note(id string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.id != "" {
		return false
	}
	e.id = id
	return true
}

// entered returns the batch with which the first suspected node was entered; "" for none.
func (e *enterWatch) entered() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.id
}

// A batch that takes long gets another id, also in the moment in which its suspected node is entered. The node runs
// anyway.
func TestSuspectRunsWhenItsBatchIsRenamed(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		watch := &enterWatch{}
		watch.before = func(next redis.ProcessHook, id string) {
			if !testutil.Becomes(func() bool {
				cmd := redis.NewStringSliceCmd(t.Context(), "hkeys", "muster:{0}:lease:suspicious")
				return next(t.Context(), cmd) == nil && len(cmd.Val()) == 1 && cmd.Val()[0] != id
			}) {
				t.Error("the batch keeps its id, want another one")
			}
		}
		rdb.AddHook(watch)
		w := newWorld(t, rdb, func(c *tasks.WorkerConfig) { c.Name = "suspicious" })
		resume := pause(t, w)
		run := sent(t, w, tasks.Chain(ID.S(1), Inc))
		setDeaths(t, rdb, 8)
		resume()
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
		watch := &enterWatch{}
		rdb.AddHook(watch)
		w := newWorld(t, rdb, func(c *tasks.WorkerConfig) { c.Name = "suspicious" })
		resume := pause(t, w)
		run := sent(t, w, Hold.S("end"))
		setDeaths(t, rdb, 8)
		resume()
		testutil.Eventually(t, "its batch has another id, and says that the node was entered", func() bool {
			lease := rdb.HGetAll(t.Context(), "muster:{0}:lease:suspicious").Val()
			first := watch.entered()
			if _, same := lease[first]; first == "" || same || len(lease) != 1 {
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
