//go:build e2e && unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"muster/tasks"
	"muster/tasks/facttest"
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
	facttest.Eventually(t, "the replica to know all workflows", func() bool { return replica.Exists(t.Context(), "sent").Val() == 1 })
	open := 0
	for _, run := range runs {
		if p, err := run.Progress(t.Context()); err == nil && !p.Ended {
			open++
		}
	}
	w.Master.Kill()
	killed := time.Now()
	facttest.Eventually(t, "the replica to be master", func() bool { return replica.Set(t.Context(), "sent", 2, time.Hour).Err() == nil })
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
