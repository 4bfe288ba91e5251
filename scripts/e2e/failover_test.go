//go:build e2e && unix

package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/tasks"
)

// TestFailover kills the master of a Sentinel group while a hundred workflows run. Work without a record on the replica runs again;
// no workflow is lost or stuck.
func TestFailover(t *testing.T) {
	t.Parallel()
	r := seed(t)
	w := redistest.Sentinel(t)
	c, _ := connectWorkers(t, w.URL())
	const most = 100
	var all []sent
	var runs []*tasks.Run[int]
	for i := range most {
		one := randomFlow(r)
		one.run = testutil.Must(one.Send(t.Context(), c, tasks.ID(fmt.Sprintf("failover-%03d", i)), tasks.In(time.Duration(i)*20*time.Millisecond)))(t)
		all, runs = append(all, one), append(runs, one.run)
	}
	// A write that was acknowledged before its replication is lost with the master. This is a property of Redis.
	replica := w.Replica.Client()
	waitReplicated(t, c, replica)
	open := 0
	for _, run := range runs {
		if p, err := run.Progress(t.Context()); err == nil && !p.Ended {
			open++
		}
	}
	w.Master.Kill()
	killed := time.Now()
	testutil.Eventually(t, "the replica to be master", func() bool { return replica.Set(t.Context(), "sent", 2, time.Hour).Err() == nil })
	promoted := time.Since(killed)

	limit, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	for _, one := range all {
		if err := one.wait(limit); err != nil {
			t.Error(err)
		}
	}
	nodesOf(limit, t, c, runs)
	if open < most/4 {
		t.Errorf("got %d running workflows when the master was killed, want at least %d", open, most/4)
	}
	t.Logf("promoted after %s, all of %d running workflows finished %s after the kill", promoted.Round(10*time.Millisecond), open, time.Since(killed).Round(10*time.Millisecond))
}

// TestPlannedFailover makes Sentinel promote the replica while the master still accepts writes. With min-replicas-to-write, the
// master does not acknowledge writes that the new master does not receive: each acknowledged workflow finishes as expected.
func TestPlannedFailover(t *testing.T) {
	t.Parallel()
	r := seed(t)
	w := redistest.Sentinel(t, "min-replicas-to-write", "1", "min-replicas-max-lag", "10")
	c, _ := connectWorkers(t, w.URL())
	replica := w.Replica.Client()
	waitReplicated(t, c, replica) // a master counts a replica before it has synchronized
	limit, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	p := sendDuringFailover(limit, t, r, c, w)

	lost, inFlight := 0, 0
	var runs []*tasks.Run[int]
	for _, a := range p.acked {
		err := a.wait(limit)
		switch {
		case err == nil:
			runs = append(runs, a.run)
		case !errors.Is(err, tasks.ErrNotFound):
			t.Error(err)
		// Replication is asynchronous: the new master may miss the last writes before the old one received the
		// end of the replica's connection. Later writes must not be acknowledged.
		case !a.alone && p.promoted.Sub(a.at) < 100*time.Millisecond && inFlight < 3:
			inFlight++
		default:
			lost++
			t.Errorf("workflow %s was acknowledged %s after the replica was promoted, and is lost; the master had no replica before the send: %v",
				a.run.ID(), a.at.Sub(p.promoted), a.alone)
		}
	}
	nodesOf(limit, t, c, runs)
	t.Logf("promoted after %s; %d sends acknowledged, %d of them afterwards, %d refused, %d lost, %d in flight",
		p.promoted.Sub(p.began).Round(time.Millisecond), len(p.acked), p.after, p.refused, lost, inFlight)
}

// plannedFailover records the sends during a failover.
type plannedFailover struct {
	began, promoted time.Time
	acked           []ackedSend
	after           int // acknowledged after the promotion
	refused         int
}

type ackedSend struct {
	sent
	alone bool // the old master had no replica before the send
}

// sendDuringFailover sends workflows sequentially, starts a failover after 40, and returns when the new master has acknowledged 40 more.
func sendDuringFailover(ctx context.Context, t *testing.T, r *rand.Rand, c *tasks.Client, w *redistest.Watched) plannedFailover {
	t.Helper()
	var p plannedFailover
	old, replica := w.Master.Client(), w.Replica.Client()
	alone := false
	for i := 0; p.after < 40; i++ {
		if ctx.Err() != nil {
			t.Fatalf("got %d acknowledged sends, %d after the failover, %d refused; want 40 after it", len(p.acked), p.after, p.refused)
		}
		if i == 40 {
			testutil.Ok(t, w.Failover(ctx))
			p.began = time.Now()
		}
		if p.promoted.IsZero() && !p.began.IsZero() && master(t, replica) {
			p.promoted = time.Now()
		}
		alone = alone || !p.promoted.IsZero() && !strings.Contains(replication(t, old), "min_slaves_good_slaves:1")
		one := randomFlow(r)
		var err error
		if one.run, err = one.Send(ctx, c, tasks.ID(fmt.Sprintf("planned-%03d", i))); err != nil {
			p.refused++
			continue
		}
		one.at = time.Now()
		p.acked = append(p.acked, ackedSend{one, alone})
		if !p.promoted.IsZero() {
			p.after++
		}
	}
	return p
}

// waitReplicated waits until the replica has all previous writes.
func waitReplicated(t *testing.T, c *tasks.Client, replica redis.UniversalClient) {
	t.Helper()
	testutil.Ok(t, c.Redis().Set(t.Context(), "sent", 1, time.Hour).Err())
	testutil.Eventually(t, "the replica to have every write", func() bool { return replica.Exists(t.Context(), "sent").Val() == 1 })
}

// master reports whether a server is a master.
func master(t *testing.T, rdb redis.UniversalClient) bool {
	t.Helper()
	return strings.Contains(replication(t, rdb), "role:master")
}

func replication(t *testing.T, rdb redis.UniversalClient) string {
	t.Helper()
	return rdb.Info(t.Context(), "replication").Val()
}
