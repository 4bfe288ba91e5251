//go:build e2e && unix

package chaos

import (
	"math/rand/v2"
	"testing"

	"muster/tasks"
	"muster/tasks/taskstest"
)

// sent is a random workflow that was sent.
type sent struct {
	taskstest.Random
	run *tasks.Run[int]
}

func randomFlow(r *rand.Rand) sent { return sent{Random: taskstest.NewRandom(r.Uint64())} }

// check checks the value or the failure of a workflow.
func (s sent) check(t *testing.T, got int, err error) {
	t.Helper()
	if problem := s.Differs(got, err); problem != "" {
		t.Errorf("workflow %s: %s", s.run.ID(), problem)
	}
}
