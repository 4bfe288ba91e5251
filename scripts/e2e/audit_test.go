//go:build e2e && unix

package e2e

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/tasktype"
)

// nodesOf returns the nodes of ended workflows by workflow, and checks that all are terminal.
func nodesOf(ctx context.Context, t *testing.T, c *tasks.Client, runs []*tasks.Run[int]) map[string][]tasktype.Node {
	t.Helper()
	all := map[string][]tasktype.Node{}
	for _, run := range runs {
		nodes := testutil.Must(c.Workflow(run.ID()).Nodes(ctx))(t)
		for _, n := range nodes {
			if !n.Status.Terminal() {
				t.Errorf("node %s of workflow %s is %s", n.ID, run.ID(), n.Status)
			}
		}
		all[run.ID()] = nodes
	}
	return all
}

// inBatch is the maximum number of runs in a batch with unstored results. The target duration of a batch is 8 ms and the mean
// duration of a task 7.5 ms, but tasks may be shorter for some time.
const inBatch = 8

// audit stops the workers and checks the nodes of workflows, the journals, and the keys in Redis. Every node ran once per attempt;
// further runs must belong to a batch of a killed worker, which holds one batch per slot. It returns the counts of nodes, runs and
// repeated runs.
func (f *workers) audit(ctx context.Context, c *tasks.Client, workflows []*tasks.Run[int]) string {
	t := f.t
	t.Helper()
	f.stop()
	type attempt struct {
		key string
		n   int
	}
	type run struct {
		by *worker
		at int64
	}
	nodes, total, again := 0, 0, 0
	ran := map[attempt][]run{}
	for _, w := range f.all {
		for _, e := range readJournal(t, f.dir, w.name) {
			total++
			at := attempt{e.key, e.attempt}
			ran[at] = append(ran[at], run{w, e.at})
		}
	}
	lost := map[*worker]int{} // runs without a stored result by worker: all except the last of an attempt
	for at, runs := range ran {
		slices.SortFunc(runs, func(x, y run) int { return cmp.Compare(x.at, y.at) })
		for _, r := range runs[:len(runs)-1] {
			again++
			lost[r.by]++
			if !r.by.doomed {
				t.Errorf("attempt %d of node %s: got %d runs, want one, because %s was not killed", at.n, at.key, len(runs), r.by.name)
			}
		}
	}
	for w, n := range lost {
		if n > slots*inBatch {
			t.Errorf("got %d repeated runs of worker %s, want at most %d, the maximum in its batches", n, w.name, slots*inBatch)
		}
	}
	for id, list := range nodesOf(ctx, t, c, workflows) {
		nodes += len(list)
		for _, n := range list {
			if strings.HasPrefix(n.Task, "(") || n.Status != tasktype.Success && n.Status != tasktype.Failed {
				continue
			}
			for i := 1; i <= n.Attempts; i++ {
				if len(ran[attempt{id + "." + n.ID, i}]) == 0 && n.Failure == nil {
					t.Errorf("node %s of workflow %s is %s after %d attempts, but attempt %d is in no journal", n.ID, id, n.Status, n.Attempts, i)
				}
			}
			if len(ran[attempt{id + "." + n.ID, n.Attempts + 1}]) > 0 {
				t.Errorf("node %s of workflow %s ran after it had finished", n.ID, id)
			}
		}
	}
	f.noLeftovers(c.Redis())
	return fmt.Sprintf("%d nodes, %d runs, %d repeated", nodes, total, again)
}

// fixed matches the keys without expiry that every fleet has.
var fixed = regexp.MustCompile(`^(muster:store|muster:workers|muster:\{\d+\}:(queues|queue:default|takers|done:[SFX])|` +
	`asynq:queues|asynq:servers|asynq:workers|asynq:\{default\}:processed|asynq:\{default\}:failed)$`)

// noLeftovers checks that all keys except the fixed ones expire.
func (f *workers) noLeftovers(rdb redis.UniversalClient) {
	f.t.Helper()
	w := f.start("")
	var left []string
	none := func() bool {
		left = unexpiring(f.t, rdb)
		return len(left) == 0
	}
	if !testutil.Becomes(none) {
		f.t.Errorf("got keys without an expiry %v, want none", left)
	}
	w.end(syscall.SIGTERM)
	if !none() {
		f.t.Errorf("got keys without an expiry %v after the exit of the last worker, want none", left)
	}
}

// unexpiring returns the keys without expiry that are not fixed.
func unexpiring(t *testing.T, rdb redis.UniversalClient) []string {
	t.Helper()
	ctx := t.Context()
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
