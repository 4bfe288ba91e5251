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
	again int // repeated runs of tasks that were in flight at a kill
}

func (f *fleet) audit(ctx context.Context, t *testing.T, c *tasks.Client) *audit {
	return &audit{t: t, f: f, c: c, ctx: ctx}
}

// ended checks that all nodes of all workflows are terminal.
func (a *audit) ended(runs []*tasks.Run[int]) {
	a.t.Helper()
	for _, run := range runs {
		for {
			p, err := run.Progress(a.ctx)
			if err == nil && p.Ended {
				break
			}
			select {
			case <-a.ctx.Done():
				nodes, _ := a.c.Workflow(run.ID()).Nodes(a.t.Context())
				a.t.Fatalf("workflow %s has not finished: %+v, %v, nodes %+v", run.ID(), p, err, nodes)
			case <-time.After(20 * time.Millisecond):
			}
		}
		nodes := testutil.Must(a.c.Workflow(run.ID()).Nodes(a.ctx))(a.t)
		for _, n := range nodes {
			if !n.Status.Terminal() {
				a.t.Errorf("node %s of workflow %s is %s", n.ID, run.ID(), n.Status)
			}
		}
	}
}

// inBatch is the maximum number of runs in a batch with unstored results. The target duration of a batch is 8 ms and the mean
// duration of a task 7.5 ms, but tasks may be shorter for some time.
const inBatch = 8

// runsOnce checks that every node ran once per attempt. Further runs must belong to a batch of a killed worker,
// which holds one batch per slot.
func (a *audit) runsOnce(results []*tasks.Run[int]) {
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
	for _, name := range a.f.names {
		for _, e := range readJournal(a.t, a.f.dir, name) {
			a.runs++
			at := attempt{e.key, e.attempt}
			ran[at] = append(ran[at], run{name, e.at})
		}
	}
	lost := map[string]int{} // runs without a stored result by worker: all except the last of an attempt
	for at, runs := range ran {
		slices.SortFunc(runs, func(x, y run) int { return cmp.Compare(x.at, y.at) })
		for _, r := range runs[:len(runs)-1] {
			a.again++
			lost[r.by]++
			if !a.f.doomed[r.by] {
				a.t.Errorf("attempt %d of node %s: got runs %v, want one, because %s was not killed", at.n, at.key, runs, r.by)
			}
		}
	}
	for name, n := range lost {
		if n > slots*inBatch {
			a.t.Errorf("got %d repeated runs of worker %s, want at most %d, the maximum in its batches", n, name, slots*inBatch)
		}
	}
	for _, run := range results {
		nodes := testutil.Must(a.c.Workflow(run.ID()).Nodes(a.ctx))(a.t)
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
				a.t.Errorf("node %s of workflow %s ran after it had finished", n.ID, run.ID())
			}
		}
	}
}

// fixed matches the keys without expiry that every fleet has.
var fixed = regexp.MustCompile(`^(muster:store|muster:workers|muster:\{\d+\}:(queues|queue:default|takers|done:[SFX])|` +
	`asynq:queues|asynq:servers|asynq:workers|asynq:\{default\}:processed|asynq:\{default\}:failed)$`)

// noLeftovers checks that all keys except the fixed ones expire.
func (a *audit) noLeftovers() {
	a.t.Helper()
	rdb := a.c.Redis()
	ctx := a.t.Context()
	w := testutil.Must(a.f.start(""))(a.t)
	var left []string
	if !testutil.Becomes(func() bool {
		left = unexpiring(ctx, a.t, rdb)
		return len(left) == 0
	}) {
		a.t.Errorf("got keys without an expiry %v, want none", left)
	}
	w.stop()
	if left = unexpiring(ctx, a.t, rdb); len(left) > 0 {
		a.t.Errorf("got keys without an expiry %v, want none", left)
	}
}

// unexpiring returns the keys without expiry that are not fixed.
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
		var mu sync.Mutex // serializes the nodes
		err = rdb.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			return look(ctx, node)
		})
	}
	testutil.Ok(t, err)
	return left
}
