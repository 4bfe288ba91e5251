package agent_test

import (
	"strings"
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/jobs"
	"muster/tasks/redistest"
)

// An assignment whose work cannot be decoded takes no room of its agent, and another agent gets the work.
func TestAssignmentThatCannotBeDecodedTakesNoRoom(t *testing.T) {
	t.Parallel()
	fake := newFakeJobs()
	fake.lease = 2 * time.Second
	r := newRigOn(t, redistest.New(t), fake, nil)
	id := r.register("one", 1, "validator")
	fake.put("validator", 1)
	a := r.leaseOne(id)
	if err := r.rdb.HSet(t.Context(), "muster:{agents}:assignment:"+a.ID, "work", "{").Err(); err != nil {
		t.Fatal(err)
	}
	if err := r.Complete(t.Context(), a.ID, id, a.Fence, jobs.Answer{}); err == nil || !strings.Contains(err.Error(), a.ID) {
		t.Errorf("complete: got %v, want an error that names the assignment", err)
	}
	testutil.Eventually(t, "the agent has room", func() bool { return r.get(id).Held == 0 })
	if again := r.leaseOne(r.register("two", 1, "validator")); again.Key != a.Key {
		t.Errorf("got %s, want %s", again.Key, a.Key)
	}
}
