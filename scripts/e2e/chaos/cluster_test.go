//go:build e2e && unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/tasks"
)

// stream sends workflows until it is stopped.
type stream struct {
	stop    context.CancelFunc
	ended   sync.WaitGroup
	repeats atomic.Int64 // sends that failed and were repeated

	mu   sync.Mutex // guards sent
	sent []ackedSend
}

// startStream sends workflows one after the other. A send that fails is repeated with the same ID.
func startStream(t *testing.T, c *tasks.Client, r *rand.Rand) *stream {
	ctx, cancel := context.WithCancel(t.Context())
	s := &stream{stop: cancel}
	s.ended.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			one := randomFlow(r)
			id := fmt.Sprintf("stream-%04d", i)
			err := insist(t.Context(), func(ctx context.Context) error {
				began := time.Now()
				run, err := one.Send(ctx, c, tasks.ID(id), tasks.Unique(id, time.Hour), tasks.Retention(10*time.Minute))
				if errors.Is(err, tasks.ErrDuplicate) && run.ID() == id { // an earlier attempt succeeded, but its reply was lost
					err = nil
				}
				if err != nil {
					s.repeats.Add(1)
					return err
				}
				s.mu.Lock()
				s.sent = append(s.sent, ackedSend{sent: sent{one.Random, run}, began: began, at: time.Now()})
				s.mu.Unlock()
				return nil
			})
			if err != nil {
				t.Errorf("send workflow %s: %v", id, err)
			}
			pause(ctx, 20*time.Millisecond)
		}
	})
	t.Cleanup(s.end)
	return s
}

func (s *stream) end() {
	s.stop()
	s.ended.Wait()
}

// acked returns the workflows that were sent so far.
func (s *stream) acked() []ackedSend {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.sent)
}

// finish stops the stream and checks that each workflow has the expected result, and each task ran once per attempt. mayBeLost
// reports whether the workflow of the ith send may be unknown; nil for none. It returns how many are.
func (s *stream) finish(t *testing.T, c *tasks.Client, f *fleet, mayBeLost func(i int, one ackedSend) bool) (a *audit, unknown int) {
	t.Helper()
	s.end()
	limit, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	var runs []*tasks.Run[int]
	for i, one := range s.acked() {
		got, err := insistWait(limit, one.run)
		if errors.Is(err, tasks.ErrNotFound) && mayBeLost != nil && mayBeLost(i, one) {
			unknown++
			continue
		}
		one.check(t, got, err)
		runs = append(runs, one.run)
	}
	a = f.audit(limit, t, c)
	a.ended(runs)
	f.stop()
	a.runsOnce(runs)
	a.noLeftovers()
	if t.Failed() {
		t.Log(f.logs())
	}
	return a, unknown
}

// shardKeys matches the keys of a shard of the engine.
var shardKeys = regexp.MustCompile(`^muster:\{\d+\}:`)

// slotKeys returns one key of each slot that the engine uses, by the master that has it.
func slotKeys(t *testing.T, masters []*redistest.Instance) map[string]*redistest.Instance {
	t.Helper()
	out := map[string]*redistest.Instance{}
	for _, m := range masters {
		keys := m.Client().Keys(t.Context(), "*").Val()
		for _, key := range keys {
			switch tag := shardKeys.FindString(key); {
			case tag != "":
				out[tag] = m
			case strings.HasPrefix(key, "muster:worker"), key == "muster:store":
				out[key] = m
			}
		}
	}
	return out
}

// TestResharding moves the slots of all shards, and of the keys of all workers, to other nodes of a Cluster while workflows run.
// No workflow is lost, and no task runs twice.
func TestResharding(t *testing.T) {
	t.Parallel()
	r := seed(t)
	cluster := redistest.Replicated(t)
	c, f := connectWorkers(t, cluster.URL())
	s := startStream(t, c, r)
	pause(t.Context(), time.Second)
	moved, slots := 0, 0
	for range 2 {
		for key, from := range slotKeys(t, cluster.Masters) {
			to := cluster.Masters[(slices.Index(cluster.Masters, from)+1)%len(cluster.Masters)]
			keys, err := cluster.MoveSlot(t.Context(), key, from, to)
			if err != nil {
				t.Fatalf("%s: %v\n%s", key, err, f.logs())
			}
			moved, slots = moved+keys, slots+1
			pause(t.Context(), 100*time.Millisecond)
		}
	}
	a, _ := s.finish(t, c, f, nil)
	t.Logf("moved %d slots with %d keys; %d workflows, %d nodes, %d sends repeated", slots, moved, len(s.acked()), a.nodes, s.repeats.Load())
}

// TestPlannedClusterFailover makes each replica of a Cluster the master, and then each old master again, while workflows run. No
// workflow is lost, and no task runs twice.
func TestPlannedClusterFailover(t *testing.T) {
	t.Parallel()
	r := seed(t)
	cluster := redistest.Replicated(t)
	c, f := connectWorkers(t, cluster.URL())
	s := startStream(t, c, r)
	pause(t.Context(), time.Second)
	for _, to := range slices.Concat(cluster.Replicas, cluster.Masters) {
		cluster.Failover(t, to)
		pause(t.Context(), time.Second)
	}
	a, _ := s.finish(t, c, f, nil)
	t.Logf("%d workflows, %d nodes, %d sends repeated", len(s.acked()), a.nodes, s.repeats.Load())
}

// TestClusterFailover kills a master of a Cluster while workflows run. Writes that its replica does not have are lost: workflows that
// were sent just before the kill can be unknown, and their sender can send them again. All others finish as expected.
func TestClusterFailover(t *testing.T) {
	t.Parallel()
	r := seed(t)
	cluster := redistest.Replicated(t)
	c, f := connectWorkers(t, cluster.URL())
	for _, w := range f.running {
		f.doom(w) // results of its last tasks can be lost
	}
	s := startStream(t, c, r)
	pause(t.Context(), 3*time.Second)
	before := len(s.acked())
	for i, m := range cluster.Masters {
		waitCopied(t, m, cluster.Replicas[i])
	}
	cluster.Masters[0].Kill()
	killed := time.Now()
	testutil.Eventually(t, "the replica to be master", func() bool { return master(t, cluster.Replicas[0].Client()) })
	promoted := time.Now()
	after := len(s.acked())
	testutil.Eventually(t, "workflows were sent after the failover", func() bool { return len(s.acked()) > after+60 })
	a, unknown := s.finish(t, c, f, func(i int, one ackedSend) bool { return i >= before && one.began.Before(killed) })
	t.Logf("promoted after %s; %d workflows, %d of them before the kill, %d unknown; %d nodes, %d repeated runs, %d sends repeated",
		promoted.Sub(killed).Round(10*time.Millisecond), len(s.acked()), before, unknown, a.nodes, a.again, s.repeats.Load())
}

// waitCopied waits until a replica has all previous writes of its master.
func waitCopied(t *testing.T, m, replica *redistest.Instance) {
	t.Helper()
	offset := func(in *redistest.Instance, field string) (n int64) {
		_, text, _ := strings.Cut(in.Client().Info(t.Context(), "replication").Val(), field+":")
		fmt.Sscan(text, &n)
		return n
	}
	want := offset(m, "master_repl_offset")
	testutil.Eventually(t, "the replica to have every write", func() bool { return offset(replica, "slave_repl_offset") >= want })
}

// TestSlowClusterNode suspends each master of a Cluster while workflows run, for longer than workers wait for the heartbeat of others.
// Workflows in the shards of other masters finish meanwhile, no worker is taken for dead, and no task runs twice.
func TestSlowClusterNode(t *testing.T) {
	t.Parallel()
	r := seed(t)
	cluster := redistest.Replicated(t, "cluster-node-timeout", "60000")
	c, f := connectWorkers(t, cluster.URL())
	limit, cancel := context.WithTimeout(t.Context(), 2*waitLimit)
	defer cancel()
	var all []sent
	var runs []*tasks.Run[int]
	for round, m := range cluster.Masters {
		var ended atomic.Int64
		var waits sync.WaitGroup
		var some []sent
		for i := range 90 {
			one := randomFlow(r)
			run := testutil.Must(one.Send(t.Context(), c, tasks.ID(fmt.Sprintf("slow-%d-%03d", round, i)), tasks.Retention(10*time.Minute)))(t)
			one.run = run
			some, runs = append(some, one), append(runs, run)
		}
		m.Freeze()
		for _, one := range some {
			waits.Go(func() {
				got, err := insistWait(limit, one.run)
				one.check(t, got, err)
				ended.Add(1)
			})
		}
		pause(t.Context(), freezeFor)
		if n := ended.Load(); n < 45 { // a third of the shards are suspended
			t.Errorf("got %d workflows that finished while master %d was suspended, want at least 45 of 90", n, round)
		}
		m.Thaw()
		waits.Wait()
		all = append(all, some...)
	}
	a := f.audit(limit, t, c)
	a.ended(runs)
	f.stop()
	a.runsOnce(runs)
	a.noLeftovers()
	t.Logf("%d workflows, %d nodes", len(all), a.nodes)
	if t.Failed() {
		t.Log(f.logs())
	}
}
