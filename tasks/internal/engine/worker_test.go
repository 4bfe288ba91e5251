package engine

import (
	"testing"
	"time"
)

func TestPhasesOfAGrace(t *testing.T) {
	t.Parallel()
	for grace, unwind := range map[time.Duration]time.Duration{0: 0, time.Second: 250 * time.Millisecond, 30 * time.Second: 2 * time.Second} {
		if finish, got := phases(grace); finish+got != grace || got != unwind {
			t.Errorf("%s: got %s to finish and %s to return, want %s to return", grace, finish, got, unwind)
		}
	}
}
