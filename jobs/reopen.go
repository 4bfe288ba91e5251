package jobs

import (
	"context"
	"errors"
	"fmt"

	"muster/jobs/pipeline"
	"muster/tasks/workqueue"
)

// Retry gives failed items of a job new attempts, the items with the given keys or all, and returns their number. It
// reopens a completed or failed job: its finished items are kept, and failed stages are retried, too. It returns
// ErrTerminal for a cancelled job; Again creates its next version.
func (s *Service) Retry(ctx context.Context, id string, keys ...string) (int, error) {
	r, err := s.read(ctx, id)
	if err != nil {
		return 0, err
	}
	options := workqueue.RequeueOptions{States: []workqueue.State{workqueue.StateError}, Unsealed: true}
	for _, key := range keys {
		options.IDs = append(options.IDs, itemID(key))
	}
	switch r.status() {
	case Cancelled:
		return 0, fmt.Errorf("%w: it is cancelled; create its next version", ErrTerminal)
	case Completed, Failed:
		return s.reopen(ctx, id, r, options)
	}
	ids, err := s.queue(id).Requeue(ctx, options)
	if errors.Is(err, workqueue.ErrSealed) {
		err = fmt.Errorf("%w just now; try again", ErrTerminal)
	}
	if err != nil {
		return len(ids), err
	}
	if err := s.announceAll(ctx, id); err != nil {
		return len(ids), err
	}
	if len(ids) > 0 {
		_, err = s.note(ctx, id, "", "job.retried", fmt.Sprintf(`{"retried":%d}`, len(ids)))
	}
	return len(ids), err
}

// reopen requeues failed work of a job that has ended, and then lets the job continue if there is any. A call that was cut
// short can be repeated: the queue stays sealed until the job is open.
func (s *Service) reopen(ctx context.Context, id string, r record, options workqueue.RequeueOptions) (int, error) {
	if err := s.finalize(ctx, id); err != nil { // else it could seal the queue later
		return 0, err
	}
	p, err := s.plan(ctx, id)
	if err != nil {
		return 0, err
	}
	q := s.queue(id)
	options.Unsealed = false
	if len(options.IDs) > 0 { // a stage that failed has no key
		for _, st := range p.Stages {
			options.IDs = append(options.IDs, stageID(st.Name))
		}
	}
	ids, err := q.Requeue(ctx, options)
	if err != nil {
		return 0, err
	}
	at, _, err := s.current(ctx, id, p.Stages)
	if err != nil {
		return 0, err
	}
	if at.stage == len(p.Stages) {
		return 0, nil
	}
	args := []any{id, statusPrefix, fmt.Sprintf(`{"retried":%d}`, len(ids)), s.limits.Load().CheckEvery.Milliseconds()}
	for i, st := range p.Stages[at.stage:] {
		if i == 0 || st.Takes == pipeline.TakesItem {
			args = append(args, "done:"+st.Name)
		}
	}
	keys := append([]string{recordKey(id)}, s.eventKeys(id)...)
	keys = append(keys, todoKey, endedKey(r.status()))
	reply, err := s.run(ctx, "reopen job "+id, "reopen", keys, args...)
	if err != nil {
		return 0, err
	}
	if toInt(reply[0]) == -1 {
		return 0, errors.Join(fmt.Errorf("%w: %s", ErrNotFound, id), q.Delete(ctx))
	}
	s.cfg.Logger.InfoContext(ctx, "a job was reopened", "job", id, "items", len(ids))
	if err := s.unseal(ctx, id); err != nil { // else a sweep does
		return len(ids), err
	}
	if err := s.announceAll(ctx, id); err != nil {
		return len(ids), err
	}
	return len(ids), s.advance(ctx, id)
}

// Pause stops a job: no agent gets its work, and it does not start, until Resume. Work that agents hold may end. Its timeout
// continues to run.
func (s *Service) Pause(ctx context.Context, id string) (Job, error) {
	return s.setPaused(ctx, id, true)
}

// Resume ends Pause.
func (s *Service) Resume(ctx context.Context, id string) (Job, error) {
	return s.setPaused(ctx, id, false)
}

func (s *Service) setPaused(ctx context.Context, id string, paused bool) (Job, error) {
	if _, err := s.planOf(ctx, id); err != nil {
		return Job{}, err
	}
	flag, event := "", "job.resumed"
	if paused {
		flag, event = "1", "job.paused"
	}
	keys := append([]string{recordKey(id)}, s.eventKeys(id)...)
	reply, err := s.run(ctx, "pause job "+id, "pause", keys, id, flag, event)
	if err != nil {
		return Job{}, err
	}
	if toInt(reply[0]) == 0 {
		return Job{}, ErrTerminal
	}
	if !paused {
		if err := s.announceAll(ctx, id); err != nil {
			return Job{}, err
		}
		if err := s.later(ctx, id, 0); err != nil {
			return Job{}, err
		}
	}
	return s.Get(ctx, id)
}
