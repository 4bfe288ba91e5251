package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"muster/tasks/internal/store"
	"muster/tasks/tasktype"
)

// errLost is the cause of the context of a handler whose worker has lost the lease of its node.
var errLost = errors.New("the worker has lost the task: another worker runs it, or it has ended")

// steps has the stored steps of the node of a run, once they were read.
type steps struct {
	lock   // held while they are read, and while one is stored
	loaded bool
	held   time.Time // when the worker had the lease, as far as it knows
	stored map[string]tasktype.Step
	saved  tasktype.Step
	last   int // number
	bytes  int // of all values
	used   map[string]bool
}

const (
	mostStepName = 100           // bytes
	leaseCheck   = deadAfter / 2 // then the lease is checked before a step runs: others may have taken over the node of a worker that was suspended
)

// permanently marks an error of a handler that another attempt would repeat.
func permanently(format string, args ...any) error {
	return &Verdict{Err: fmt.Errorf(format, args...), Permanent: true}
}

// Step returns the stored value of a step of the node, and a function that stores it if there is none yet.
func (r *Run) Step(name string) (value []byte, keep func(began time.Time, value []byte) error, err error) {
	if name == "" || len(name) > mostStepName || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) {
		return nil, nil, permanently("step %.100q: give a name of 1 to %d bytes of UTF-8 without control characters", name, mostStepName)
	}
	s := r.lockSteps()
	defer s.Unlock()
	if err := r.loadSteps(); err != nil {
		return nil, nil, fmt.Errorf("read step %s: %w", name, err)
	}
	if s.used[name] {
		return nil, nil, permanently("step %s: this attempt has used the name before; give each step of a task its own, such as %q", name, name+" 2")
	}
	s.used[name] = true
	if st, ok := s.stored[name]; ok {
		return st.Value, nil, nil
	}
	if len(s.used) > store.MaxSteps || len(s.stored) >= store.MaxSteps {
		return nil, nil, permanently("step %s: the task has more than %d steps; use Save for the position in a long loop, or several tasks", name, store.MaxSteps)
	}
	return nil, func(began time.Time, value []byte) error {
		st := tasktype.Step{Name: name, Started: began, Took: r.w.clock.Now().Sub(began), Value: value}
		s.Lock()
		defer s.Unlock()
		if err := r.storeStep(s.last+1, &st, 0); err != nil {
			return fmt.Errorf("step %s: %w", name, err)
		}
		s.last++
		s.stored[name] = st
		if stepped := r.w.handlers[r.spec.Task].Stepped; stepped != nil {
			return stepped(r.ctx, name)
		}
		return nil
	}, nil
}

// StepFailed lets the attempt use the name of a step again whose function has failed.
func (r *Run) StepFailed(name string) {
	defer r.lockSteps().Unlock()
	delete(r.steps.used, name)
}

// Save stores the saved value of the node.
func (r *Run) Save(value []byte) error {
	s := r.lockSteps()
	defer s.Unlock()
	err := r.loadSteps()
	if err == nil {
		st := tasktype.Step{Started: r.w.clock.Now(), Value: value}
		if err = r.storeStep(0, &st, len(s.saved.Value)); err == nil {
			s.saved = st
		}
	}
	return err
}

// Saved returns the saved value of the node; nil for none.
func (r *Run) Saved() ([]byte, error) {
	defer r.lockSteps().Unlock()
	err := r.loadSteps()
	return r.steps.saved.Value, err
}

// lockSteps locks the steps of the run.
func (r *Run) lockSteps() *steps {
	r.mu.Lock()
	if r.steps == nil {
		r.steps = &steps{lock: newLock()}
	}
	s := r.steps
	r.mu.Unlock()
	s.Lock()
	return s
}

// loadSteps reads the stored steps, unless they were read. The worker gets a lease before, so that no other one adds steps later.
func (r *Run) loadSteps() error {
	s := r.steps
	if s.loaded && r.w.clock.Now().Sub(s.held) < leaseCheck {
		return nil
	}
	last, lease := 0, r.w.leases.lend(r.it)
	err := r.leased(func(ctx context.Context) (ok bool, err error) {
		ok, last, err = r.w.store.Flows.HoldsLease(ctx, lease)
		return ok, err
	})
	if err != nil || s.loaded {
		return err
	}
	var byNumber map[int]tasktype.Step
	err = r.leased(func(ctx context.Context) (ok bool, err error) {
		byNumber, err = r.w.store.Flows.Steps(ctx, r.fl.Flow, r.Info.Node, last)
		return true, err
	})
	if err != nil {
		return err
	}
	s.loaded, s.last, s.saved, s.stored, s.used = true, max(0, last), byNumber[0], map[string]tasktype.Step{}, map[string]bool{}
	for n, st := range byNumber {
		s.bytes += len(st.Value)
		if n > 0 {
			s.stored[st.Name] = st
		}
	}
	return nil
}

// storeStep stores step n, or for 0 the saved value, in place of a value of so many bytes.
func (r *Run) storeStep(n int, st *tasktype.Step, before int) error {
	s := r.steps
	all := s.bytes - before + len(st.Value)
	if all > store.MaxStepBytes {
		return permanently("the value has %d bytes, and the values of the task %d together, more than %d; store large data elsewhere, and its key here",
			len(st.Value), all, store.MaxStepBytes)
	}
	lease := r.w.leases.lend(r.it)
	err := r.leased(func(ctx context.Context) (bool, error) {
		return r.w.store.Flows.StoreStep(ctx, lease, n, max(n, s.last), st)
	})
	if err == nil {
		s.bytes = all
	}
	return err
}

// leased repeats a call that the worker may make while it has the lease, until it succeeds or the context of the handler ends. The deadline
// of an attempt does not end it: what the handler has done must be stored. If the worker has lost the lease, the context of the handler ends.
func (r *Run) leased(call func(ctx context.Context) (held bool, err error)) error {
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		now := r.w.clock.Now()
		held, err := call(within(r.ctx))
		switch {
		case err == nil && held:
			r.steps.held = now
			return nil
		case err == nil:
			r.cancel(errLost)
			return errLost
		}
		select {
		case <-r.ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(r.ctx), r.w.store.Explain(context.WithoutCancel(r.ctx), err))
		case <-r.w.killed: // it must not wait for Redis
			return fmt.Errorf("the worker was stopped: %w", err)
		case <-r.w.clock.After(wait):
		}
	}
}
