package tasks_test

import (
	"strings"
	"testing"

	"muster/tasks"
	"muster/tasks/redistest"
)

// The second part of After cannot rescue a node that After waits for.
func TestAfterRefusesToRescueWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	x := ID.S(1)
	_, err := tasks.After(x, x.Rescue(Instead)).Send(t.Context(), tasks.NewClient(redistest.Mini(t)))
	if err == nil || !strings.Contains(err.Error(), "t.instead") || !strings.Contains(err.Error(), "move Rescue into the first part") {
		t.Errorf("got %v, want an error that names t.instead and the remedy", err)
	}
}
