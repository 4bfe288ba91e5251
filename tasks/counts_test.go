package tasks_test

import (
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/tasktype"
)

// Workflows are counted by state, and nodes that wait for their time are in the outbox.
func TestWorkflowsAndOutboxAreCounted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, redistest.New(t))
	ctx := limited(t)
	if o, err := w.client.Inspect().Outbox(ctx); err != nil || o != (tasktype.Outbox{}) {
		t.Errorf("before all: got the outbox %+v, %v; want it empty", o, err)
	}
	later := sent(t, w, ID.S(1), tasks.In(time.Hour))
	testutil.Eventually(t, "the outbox has the delayed node, which is not due", func() bool {
		o, err := w.client.Inspect().Outbox(ctx)
		return err == nil && o == tasktype.Outbox{Entries: 1}
	})
	if _, err := send(t, w, ID.S(1)); err != nil {
		t.Fatal(err)
	}
	var failure *tasks.Failure
	if _, err := send(t, w, Fail.S(1)); !errors.As(err, &failure) {
		t.Fatalf("got %v, want a failure", err)
	}
	want := map[tasktype.WorkflowState]int64{tasktype.WorkflowRunning: 1, tasktype.WorkflowSucceeded: 1, tasktype.WorkflowFailed: 1}
	var got map[tasktype.WorkflowState]int64
	counted := func() bool {
		var err error
		got, err = w.client.Inspect().CountWorkflows(ctx)
		maps.DeleteFunc(got, func(_ tasktype.WorkflowState, n int64) bool { return n == 0 })
		return err == nil && maps.Equal(got, want)
	}
	if !testutil.Becomes(counted) {
		t.Errorf("got %v, want %v", got, want)
	}
	if err := later.Revoke(ctx); err != nil {
		t.Fatal(err)
	}
	want = map[tasktype.WorkflowState]int64{tasktype.WorkflowRevoked: 1, tasktype.WorkflowSucceeded: 1, tasktype.WorkflowFailed: 1}
	if !testutil.Becomes(counted) {
		t.Errorf("after the revocation: got %v, want %v", got, want)
	}
}

// The members of a group that expire need no record each.
func TestExpiringGroupNeedsNoRecords(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		client := tasks.NewClient(rdb)
		size := func(opts ...tasks.GroupOption) (n int) {
			run, err := tasks.Chord(tasks.Each(ints(1000), ID, opts...), Sum).Send(t.Context(), client, tasks.Queue("unserved"))
			if err != nil {
				t.Fatal(err)
			}
			for field, value := range rdb.HGetAll(t.Context(), shards(t, rdb)[0]+"w:"+run.ID()+"~").Val() {
				n += len(field) + len(value)
			}
			return n
		}
		if plain, expiring := size(), size(tasks.Expires(time.Hour)); plain == 0 || expiring > plain+200 {
			t.Errorf("got %d bytes, %d of a group that expires; want at most 200 more", plain, expiring)
		}
	})
}

// A group whose members wait for the same time is one entry of the outbox, which ends with the workflow.
func TestDelayedGroupIsOneEntry(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		w, ctx := newWorld(t, rdb), t.Context()
		run := sent(t, w, tasks.Chord(tasks.Each(ints(100), ID, tasks.In(time.Hour)), Sum))
		wantEntries := func(want int64) {
			t.Helper()
			if o, err := w.client.Inspect().Outbox(ctx); err != nil || o.Entries != want {
				t.Errorf("got %+v, %v, want %d entries", o, err, want)
			}
		}
		wantEntries(1)
		due, err := w.client.Inspect().Due(ctx, 10)
		if err != nil || len(due) != 10 || due[9].Node != "9" || time.Until(due[9].Due) < 50*time.Minute {
			t.Errorf("got %+v, %v, want ten nodes that are due in an hour", due, err)
		}
		counts, err := w.client.Inspect().CountDue(ctx, 1000)
		if err != nil || len(counts) != 1 || counts[0].Scheduled != 100 {
			t.Errorf("got %+v, %v, want 100 scheduled tasks", counts, err)
		}
		all := nodes(t, w, run.ID())
		one, err := run.Node(ctx, "99")
		if err != nil || !all[99].Due.Equal(due[9].Due) || !one.Due.Equal(due[9].Due) || string(one.Input) != "99" {
			t.Errorf("got %+v and %+v, %v, want both due at %s", all[99], one, err, due[9].Due)
		}
		if err := run.RevokeNode(ctx, "5"); err != nil {
			t.Fatal(err)
		}
		wantEntries(1)
		if err := run.Revoke(ctx); err != nil {
			t.Fatal(err)
		}
		wantEntries(0)
	})
}
