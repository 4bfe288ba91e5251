package tasks_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/redistest"
)

// fixedKeys matches the keys of the fleet, its queues and its counts, whose number does not grow with the workflows.
// live and done list workflows, ct and rest count them.
var fixedKeys = regexp.MustCompile(`^(muster:store|muster:workers|muster:\{\d+\}:(queue:.+|queues|holders|takers|live|done:[SFX]|c[mh]:\d+)|` +
	`asynq:(queues|servers|workers)|asynq:\{.+\}:(processed|failed))$`)

// left returns the other keys that never expire, and the keys of workflows.
func left(t *testing.T, rdb redis.UniversalClient) (out []string) {
	t.Helper()
	for _, key := range rdb.Keys(t.Context(), "*").Val() {
		if fixedKeys.MatchString(key) {
			continue
		}
		if rdb.PTTL(t.Context(), key).Val() == -1 || strings.Contains(key, "}:w:") { // -2: it has expired meanwhile
			out = append(out, key)
		}
	}
	slices.Sort(out)
	return out
}

// onlyFixedLeft waits until nothing but fixed keys is left.
func onlyFixedLeft(t *testing.T, rdb redis.UniversalClient) {
	t.Helper()
	if !testutil.Becomes(func() bool { return len(left(t, rdb)) == 0 }) {
		t.Fatalf("left are the keys %q", left(t, rdb))
	}
}

// Revoking workflows before any worker starts leaves no ready nodes.
func TestRevokedWorkflowsWithoutWorkerLeaveNoKeys(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		c := tasks.NewClient(rdb)
		t.Cleanup(func() { _ = c.Close() })
		keep := tasks.Retention(50 * time.Millisecond)
		canvases := []tasks.Signature[int]{
			ID.S(1),
			tasks.Chord(tasks.Each(ints(1000), ID), Sum),
			tasks.Chord(tasks.Each(ints(20), ID, tasks.AtMost(2)), Sum),
			tasks.Chord(tasks.Group(ID.S(1), ID.S(2, tasks.In(time.Hour)), ID.S(3, tasks.Queue("unserved"), tasks.Priority(1))), Sum),
			tasks.Chain(ID.S(1, tasks.At(time.Now().Add(time.Hour))), Inc),
		}
		var runs []*tasks.AsyncResult[int]
		for i, s := range slices.Concat(canvases, canvases) {
			opts := []tasks.SendOption{keep}
			if i >= len(canvases) {
				opts = append(opts, tasks.Unique(fmt.Sprint("key", i), 50*time.Millisecond))
			}
			run := started(t, c, s, opts...)
			runs = append(runs, run)
		}
		for _, run := range runs {
			testutil.Ok(t, run.Revoke(t.Context()))
		}
		onlyFixedLeft(t, rdb)
		for _, queue := range []string{"default", "unserved"} {
			h := rdb.HGetAll(t.Context(), shards(t, rdb)[0]+"queue:"+queue).Val()
			if h["ready:k"] != "0" && h["ready:k"] != "" || h["ready:n"] != "0" && h["ready:n"] != "" || h["ready:h"] != "0" && h["ready:h"] != "" {
				t.Errorf("queue %s: got %v, want no depth", queue, h)
			}
		}
		// The queue still works.
		if got, err := send(t, newWorld(t, rdb), ID.S(1)); err != nil || got != 1 {
			t.Errorf("afterwards: got %v, %v, want 1", got, err)
		}
	})
}

// Workers leave nothing of a worker and its queue when they stop.
func TestNothingIsLeftOfAWorker(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		t.Run("work", func(t *testing.T) {
			w := newWorld(t, rdb)
			run := sent(t, w, tasks.Chord(tasks.Each(ints(500), ID), Sum), tasks.Retention(time.Second), tasks.FailureRetention(time.Second))
			wantValue(t, run, 124750)
		})
		onlyFixedLeft(t, rdb)
		for _, key := range []string{"muster:workers", shards(t, rdb)[0] + "holders"} {
			if rdb.Exists(t.Context(), key).Val() != 0 {
				t.Errorf("key %s is left", key)
			}
		}
	})
}
