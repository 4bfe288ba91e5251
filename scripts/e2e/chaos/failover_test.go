//go:build e2e && unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/redistest"
)

// TestFailover kills the master of a Redis that a Sentinel watches, in the middle of a hundred workflows.
// What the replica had not heard of when it took over is done again; no workflow is lost or stuck.
func TestFailover(t *testing.T) {
	t.Parallel()
	r := seed(t)
	w := redistest.Sentinel(t)
	c := connect(t, w.URL())
	f := newFleet(t, w.URL())
	for range 2 {
		if _, err := f.start(""); err != nil {
			t.Fatal(err)
		}
	}
	const most = 100
	all := make([]wanted, most)
	runs := make([]*tasks.AsyncResult[int], most)
	for i := range all {
		all[i] = growRoot(r)
		run, err := all[i].sig.Send(t.Context(), c, tasks.ID(fmt.Sprintf("failover-%03d", i)))
		if err != nil {
			t.Fatal(err)
		}
		runs[i] = run
	}
	// What was answered before it was copied dies with the master: that is Redis' promise, not ours.
	if err := c.Redis().Set(t.Context(), "sent", 1, time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	replica := w.Replica.Client()
	testutil.Eventually(t, "the replica to know all workflows", func() bool { return replica.Exists(t.Context(), "sent").Val() == 1 })
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
	for i, run := range runs {
		var got int
		err := insist(limit, func(ctx context.Context) error {
			var err error
			got, err = run.Wait(ctx)
			if failure := (*tasks.Failure)(nil); errors.As(err, &failure) {
				got, err = 0, nil
				if !all[i].fails || failure.Message != errWanted.Error() {
					t.Errorf("workflow %d failed: %v", i, failure)
				}
			}
			return err
		})
		if err != nil || !all[i].fails && got != all[i].value {
			t.Errorf("workflow %d yielded %d, %v, want %d", i, got, err, all[i].value)
		}
	}
	f.audit(limit, t, c).ended(runs)
	if open < most/4 {
		t.Errorf("only %d workflows were at work when the master was killed", open)
	}
	t.Logf("promoted after %s, all of %d workflows at work ended %s after the kill", promoted.Round(10*time.Millisecond), open, time.Since(killed).Round(10*time.Millisecond))
	if t.Failed() {
		t.Log(f.logs())
	}
}

// TestPlannedFailover has the Sentinel give the replica the place of a master that lives and still takes
// writes. min-replicas-to-write keeps it from acknowledging what the new master will never hear of: each
// workflow whose send was acknowledged comes to what it should.
func TestPlannedFailover(t *testing.T) {
	t.Parallel()
	r := seed(t)
	w := redistest.Sentinel(t, "min-replicas-to-write", "1", "min-replicas-max-lag", "10")
	c := connect(t, w.URL())
	f := newFleet(t, w.URL())
	for range 2 {
		if _, err := f.start(""); err != nil {
			t.Fatal(err)
		}
	}
	type acked struct {
		wanted
		run *tasks.AsyncResult[int]
		at  time.Time
	}
	var all []acked
	refused, after := 0, 0
	replica := w.Replica.Client()
	// A master counts a replica in before it sends it anything.
	if err := c.Redis().Set(t.Context(), "sent", 1, time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, "the replica to follow", func() bool { return replica.Exists(t.Context(), "sent").Val() == 1 })
	var began, over time.Time
	limit, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	for i := 0; after < 40; i++ {
		if limit.Err() != nil {
			t.Fatalf("%d sends were acknowledged, %d after the failover, %d refused", len(all), after, refused)
		}
		if i == 40 {
			if err := w.Failover(t.Context()); err != nil {
				t.Fatal(err)
			}
			began = time.Now()
		}
		if over.IsZero() && !began.IsZero() && master(t, replica) {
			over = time.Now()
		}
		one := growRoot(r)
		run, err := one.sig.Send(limit, c, tasks.ID(fmt.Sprintf("planned-%03d", i)))
		if err != nil {
			refused++
			continue
		}
		all = append(all, acked{one, run, time.Now()})
		if !over.IsZero() {
			after++
		}
	}
	lost, inFlight := 0, 0
	var runs []*tasks.AsyncResult[int]
	for i, a := range all {
		var got int
		gone := false
		err := insist(limit, func(ctx context.Context) error {
			var err error
			got, err = a.run.Wait(ctx)
			if gone = errors.Is(err, tasks.ErrUnknown); gone {
				return nil
			}
			if failure := (*tasks.Failure)(nil); errors.As(err, &failure) {
				got, err = 0, nil
				if !a.fails || failure.Message != errWanted.Error() {
					t.Errorf("workflow %d failed: %v", i, failure)
				}
			}
			return err
		})
		if gone {
			// Replication is asynchronous: what was under way to the replica in its last moment as one is not
			// there. What the old master is told later must not be acknowledged.
			if over.Sub(a.at) > 0 && over.Sub(a.at) < 100*time.Millisecond && inFlight < 3 {
				inFlight++
				continue
			}
			lost++
			t.Errorf("workflow %s was acknowledged %s after the replica was promoted, and is lost", a.run.ID(), a.at.Sub(over))
			continue
		}
		if err != nil || !a.fails && got != a.value {
			t.Errorf("workflow %d yielded %d, %v, want %d", i, got, err, a.value)
		}
		runs = append(runs, a.run)
	}
	f.audit(limit, t, c).ended(runs)
	t.Logf("promoted after %s; %d sends acknowledged, %d of them afterwards, %d refused, %d lost, %d in flight", over.Sub(began).Round(time.Millisecond), len(all), after, refused, lost, inFlight)
	if t.Failed() {
		t.Log(f.logs())
	}
}

func master(t *testing.T, rdb redis.UniversalClient) bool {
	t.Helper()
	return strings.Contains(rdb.Info(t.Context(), "replication").Val(), "role:master")
}
