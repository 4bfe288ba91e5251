package taskstest

import (
	"errors"

	"muster/tasks"
	"muster/tasks/internal/canvas"
)

// A Random is a workflow of random tasks and combinators, with the result that it must have. It is for tests of installations: send
// many to workers with the handlers of [HandleRandom], disturb workers and Redis, and compare.
type Random struct {
	tasks.Signature[int]
	want  canvas.Result
	loose bool // which member of a group fails first decides the result
}

// NewRandom returns a workflow of about ten tasks, always the same for a seed.
func NewRandom(seed uint64) Random {
	s := canvas.Draw(canvas.Seeded(seed), 2)
	inTime(s)
	runs := canvas.NewRuns()
	return Random{s.Signature(), canvas.Evaluate(s, runs), *runs.Fast}
}

// HandleRandom binds the tasks of all random workflows to their handlers.
func HandleRandom(m *tasks.Mux) { canvas.Handle(m, nil, nil) }

// Differs returns how a result, as Wait returned it, differs from the one that the workflow must have, or "". Where a group ends with its
// first failure, any value or failure is right.
func (r Random) Differs(n int, err error) string {
	failure, failed := errors.AsType[*tasks.Failure](err)
	switch {
	case r.loose && (failed || err == nil):
		return ""
	case failed:
		return r.want.Differs(n, true, failure.Message)
	case err != nil:
		return err.Error()
	}
	return r.want.Differs(n, false, "")
}

// inTime makes no task expire: an outage would change what has expired.
func inTime(s *canvas.Scope) {
	for i := range s.Defs {
		s.Defs[i].Late = false
		if s.Defs[i].Plan != nil {
			inTime(s.Defs[i].Plan)
		}
	}
}
