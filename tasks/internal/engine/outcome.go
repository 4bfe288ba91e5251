package engine

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"muster/internal/clip"
	"muster/tasks/internal/graph"
	"muster/tasks/internal/store"
	"muster/tasks/tasktype"
)

// resultOf returns the result to store for the end of a call.
func (r *Run) resultOf(a callResult) (result, bool) {
	e := a.err
	switch {
	case errors.Is(a.ended, errRevoked):
		r.outcome, r.code = tasktype.OutcomeRevoked, tasktype.CodeRevoked
		r.w.tell(r)
		return result{}, false // the node is terminal already
	case errors.Is(a.ended, ErrShutdown):
		r.outcome = tasktype.OutcomeReturned
		return r.again(0, ""), true
	case errors.Is(a.ended, errHard):
		return r.failed(tasktype.CodeHardTimeout, "still running after its hard time limit"), true
	case a.leased != nil:
		res := r.open()
		if res.leased = a.leased; res.delay == 0 || res.delay > a.leased.length {
			res.delay = a.leased.length
		}
		return res, true
	case a.pending:
		return r.open(), true
	case e == nil:
		return r.succeeded(a.answer), true
	case e.again != nil:
		r.outcome = tasktype.OutcomeAgain
		return r.again(*e.again, ""), true
	case e.permanent, r.Info.Attempt > r.spec.MaxRetry:
		res := r.failed(e.code, e.message)
		if e.passed != nil {
			f := *e.passed
			f.Code, f.Message, f.Input = e.code, shorten(f.Message), nil
			res.body = encodeFailure(&f)
		}
		return res, true
	}
	d := retryPause(r.spec, r.Info.Attempt, r.w.cfg.Manual)
	if e.delay != nil {
		d = *e.delay
	}
	if !r.expires.IsZero() && r.w.clock.Now().Add(d).After(r.expires) {
		return r.failed(e.code, e.message+" (it expires before another attempt)"), true
	}
	r.outcome, r.code = tasktype.OutcomeRetry, e.code
	res := r.again(d, e.message)
	res.attempts++
	res.state, res.code = store.AgainRetry, e.code
	return res, true
}

// succeeded returns the value or the plan that a handler returned.
func (r *Run) succeeded(a HandlerResult) result {
	if a.Planned {
		r.outcome = tasktype.OutcomePlanned
		return r.plan(a.Plan)
	}
	if len(a.Value) > r.w.cfg.MaxResult {
		return r.failed(tasktype.CodeResult, fmt.Sprintf("result has %d bytes, more than the %d allowed: store it and return a key",
			len(a.Value), r.w.cfg.MaxResult))
	}
	r.outcome = tasktype.OutcomeSuccess
	return result{kind: store.ChangeSucceed, body: a.Value}
}

// failed returns the failure of a run.
func (r *Run) failed(code, message string) result {
	r.outcome, r.code = tasktype.OutcomeFailure, code
	return result{kind: store.ChangeFail, message: code, body: encodeFailure(&tasktype.Failure{Task: r.Info.Task, Node: r.Info.Node,
		Attempts: r.Info.Attempt, Code: code, Message: shorten(message)})}
}

// again returns the result of a node that is to run again in d. It uses up no attempt.
func (r *Run) again(d time.Duration, message string) result {
	return result{kind: store.ChangeAgain, attempts: r.it.rec.Attempts, lost: r.it.lost, delay: max(0, d), state: store.AgainDelayed, message: message}
}

// waits is again for a node that waits in a state until something else makes it ready, or d has passed.
func (r *Run) waits(state string, d time.Duration) result {
	res := r.again(d, "")
	res.state = state
	return res
}

// maxDepth bounds how deep plans are nested: the ids of nodes grow with it.
const maxDepth = 1000

// plan returns the result that puts the signature of a planner in the place of its node.
func (r *Run) plan(s *graph.Sig) result {
	if strings.Count(r.Info.Node, ":") >= maxDepth {
		return r.failed(tasktype.CodePlan, fmt.Sprintf("plans are nested %d deep; a planner may return itself", maxDepth))
	}
	if r.fl.g.Every != nil {
		s = s.ForSend(&graph.Opts{Every: *r.fl.g.Every})
	}
	g, err := graph.Compile(s)
	if err != nil {
		return r.failed(tasktype.CodePlan, err.Error())
	}
	return r.planned(g)
}

// planned returns the result that puts a graph in the place of a node.
func (r *Run) planned(g *graph.Graph) result {
	g.Created = r.it.clock.redis(r.w.clock.Now()).UnixMilli()
	grow, err := grown(g, r.Info.Node)
	if err != nil {
		return r.failed(tasktype.CodePlan, err.Error())
	}
	return result{kind: store.ChangePlan, plan: &grow}
}

// maxMessage is the limit of the message of a failure, in bytes.
const maxMessage = 4096

func shorten(message string) string { return clip.Ellipsis(message, maxMessage) }

// backoff returns how long to wait after the given attempt, at most.
func backoff(sp *graph.Spec, attempt int) time.Duration {
	base, limit := sp.Base, sp.Cap
	if sp.Fixed {
		return time.Duration(max(0, base)) * time.Millisecond
	}
	if base == 0 && limit == 0 {
		base, limit = 1000, 600_000
	}
	if limit == 0 {
		limit = 600_000
	}
	top := limit
	if shift := attempt - 1; shift < 40 && base<<shift > 0 {
		top = min(limit, base<<shift)
	}
	return time.Duration(max(0, top)) * time.Millisecond // a sender can set any values
}

// retryPause returns how long to wait after the given attempt; with longest as long as it can be.
func retryPause(sp *graph.Spec, attempt int, longest bool) time.Duration {
	d := backoff(sp, attempt)
	if longest || sp.Fixed {
		return d
	}
	// Full jitter, as in https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/.
	return time.Duration(rand.Int64N(int64(d)+1)) / time.Millisecond * time.Millisecond
}

// open makes a node wait for an external result. It is open once Redis has stored that.
func (r *Run) open() result {
	r.outcome = tasktype.OutcomePending
	soft, _ := limits(r.spec)
	return result{kind: store.ChangeOpen, attempts: r.Info.Attempt, delay: soft}
}
