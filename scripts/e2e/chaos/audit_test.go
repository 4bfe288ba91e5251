//go:build e2e && unix

package chaos

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/tasktype"
)

// audit checks the nodes of workflows, the journals of workers and the keys in Redis.
type audit struct {
	t     *testing.T
	f     *fleet
	c     *tasks.Client
	ctx   context.Context
	nodes int
	runs  int
	again int // runs of what was in flight when something was killed
}

func (f *fleet) audit(ctx context.Context, t *testing.T, c *tasks.Client) *audit {
	return &audit{t: t, f: f, c: c, ctx: ctx}
}

// ended wants all nodes of all workflows to be terminal.
func (a *audit) ended(runs []*tasks.AsyncResult[int]) {
	a.t.Helper()
	for _, run := range runs {
		for {
			p, err := run.Progress(a.ctx)
			if err == nil && p.Ended {
				break
			}
			select {
			case <-a.ctx.Done():
				nodes, _ := a.c.Nodes(a.t.Context(), run.ID())
				a.t.Fatalf("workflow %s has not ended: %+v, %v, nodes %+v", run.ID(), p, err, nodes)
			case <-time.After(20 * time.Millisecond):
			}
		}
		nodes, err := a.c.Nodes(a.ctx, run.ID())
		if err != nil {
			a.t.Fatal(err)
		}
		for _, n := range nodes {
			if !n.Status.Terminal() {
				a.t.Errorf("node %s of workflow %s is %s", n.ID, run.ID(), n.Status)
			}
		}
	}
}

// inBatch bounds the runs of a batch whose results were not stored yet. A batch is made to take 8 ms, and tasks take
// 7.5 ms in the mean; some may be shorter for a while.
const inBatch = 8

// runsOnce wants that every node ran as often as it made attempts, each time on the same input; a run
// beyond that must be of a batch that a worker held when it was killed. A worker holds one for each slot.
func (a *audit) runsOnce(results []*tasks.AsyncResult[int]) {
	a.t.Helper()
	type attempt struct {
		key string
		n   int
	}
	type run struct {
		by string
		at int64
	}
	ran := map[attempt][]run{}
	input := map[string]string{}
	for _, name := range a.f.names {
		for _, e := range readJournal(a.t, a.f.dir, name) {
			a.runs++
			at := attempt{e.key, e.attempt}
			ran[at] = append(ran[at], run{name, e.at})
			if was, ok := input[e.key]; ok && was != e.input {
				a.t.Errorf("node %s ran on two inputs, %s and %s", e.key, was, e.input)
			}
			input[e.key] = e.input
		}
	}
	lost := map[string]int{} // runs without a stored result, by worker: all but the last of an attempt
	for at, runs := range ran {
		slices.SortFunc(runs, func(x, y run) int { return cmp.Compare(x.at, y.at) })
		for _, r := range runs[:len(runs)-1] {
			a.again++
			lost[r.by]++
			if !a.f.doomed[r.by] {
				a.t.Errorf("attempt %d of node %s: got runs %v, want one: %s was never killed", at.n, at.key, runs, r.by)
			}
		}
	}
	for name, n := range lost {
		if n > slots*inBatch {
			a.t.Errorf("got %d repeated runs of worker %s, want at most %d: more were not in its batches when it was killed", n, name, slots*inBatch)
		}
	}
	for _, run := range results {
		nodes, err := a.c.Nodes(a.ctx, run.ID())
		if err != nil {
			a.t.Fatal(err)
		}
		a.nodes += len(nodes)
		for _, n := range nodes {
			if strings.HasPrefix(n.Task, "(") || n.Status != tasktype.Success && n.Status != tasktype.Failed {
				continue
			}
			for i := 1; i <= n.Attempts; i++ {
				if len(ran[attempt{run.ID() + "." + n.ID, i}]) == 0 && n.Failure == nil {
					a.t.Errorf("node %s of workflow %s is %s after %d attempts, but attempt %d is in no journal", n.ID, run.ID(), n.Status, n.Attempts, i)
				}
			}
			if len(ran[attempt{run.ID() + "." + n.ID, n.Attempts + 1}]) > 0 {
				a.t.Errorf("node %s of workflow %s ran after it had ended", n.ID, run.ID())
			}
		}
	}
}

// fixed are the keys that a fleet always has, whatever it runs. They have no expiry.
var fixed = regexp.MustCompile(`^(muster:store|muster:workers|muster:\{\d\}:(clock|wake:default|done:[SFX])|` +
	`asynq:queues|asynq:servers|asynq:workers|asynq:\{default\}:processed|asynq:\{default\}:failed)$`)

// noLeftovers wants every key but the fixed ones to expire, and asynq to be empty. A wake-task that a killed worker took
// from asynq's queue keeps a lease of two minutes there, which noLeftovers ends at once.
func (a *audit) noLeftovers() {
	a.t.Helper()
	rdb := a.c.Redis()
	ctx := a.t.Context()
	leases := "asynq:{default}:lease"
	w, err := a.f.start("")
	if err != nil {
		a.t.Fatal(err)
	}
	w.stop()
	for _, id := range rdb.ZRange(ctx, leases, 0, -1).Val() {
		rdb.ZAddXX(ctx, leases, redis.Z{Score: 1, Member: id})
	}
	w, err = a.f.start("")
	if err != nil {
		a.t.Fatal(err)
	}
	var left []string
	testutil.Eventually(a.t, "asynq has nothing left", func() bool {
		left = unexpiring(ctx, a.t, rdb)
		return len(left) == 0
	})
	w.stop()
	if left = unexpiring(ctx, a.t, rdb); len(left) > 0 {
		a.t.Errorf("got keys without an expiry %v, want none", left)
	}
}

// unexpiring returns the keys without an expiry that are not fixed.
func unexpiring(ctx context.Context, t *testing.T, rdb redis.UniversalClient) []string {
	t.Helper()
	var left []string
	look := func(ctx context.Context, node *redis.Client) error {
		scan := node.Scan(ctx, 0, "*", 1000).Iterator()
		for scan.Next(ctx) {
			k := scan.Val()
			if ttl, err := node.PTTL(ctx, k).Result(); err == nil && ttl == -1 && !fixed.MatchString(k) {
				left = append(left, fmt.Sprint(k, " ", node.Type(ctx, k).Val()))
			}
		}
		return scan.Err()
	}
	var err error
	switch rdb := rdb.(type) {
	case *redis.Client:
		err = look(ctx, rdb)
	case *redis.ClusterClient:
		var mu sync.Mutex // one node after the other
		err = rdb.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			return look(ctx, node)
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return left
}
