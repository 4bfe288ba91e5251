package engine

import (
	"context"
	"time"

	"muster/tasks/internal/store"
)

// held is the lease of a task that runs without asynq, which would see to it.
type held struct {
	key   string
	since time.Time // that it has as long as asynq gives it
}

// ownBelow is how short tasks are, about, that run without asynq. Of longer ones asynq shows operators who runs
// them, and since when.
const ownBelow = 100 * time.Millisecond

// owns reports whether the next task that was taken ahead can start without asynq; s.mu is held. Where
// there are several queues, the last one of a batch goes to asynq, which then chooses the next queue.
func (s *seam) owns() bool {
	return s.ahead[0].Task != "" && s.mean.Load() < int64(ownBelow) && (s.queues == 1 || len(s.ahead) > 1)
}

// pop takes the next task that was taken ahead for a slot; s.mu is held.
func (s *seam) pop(own bool) fetched {
	next := fetched{s.ahead[0], s.from}
	s.ahead = s.ahead[1:]
	if own {
		delete(s.begun, next.ID)
		s.own[next.ID] = held{next.keys.Lease, time.Now()}
	}
	return next
}

// next starts the next task that was taken ahead, and reports whether asynq is not to get it.
func (s *seam) next() (next fetched, own, ok bool) {
	s.mu.Lock()
	if len(s.ahead) == 0 {
		s.mu.Unlock()
		return fetched{}, false, false
	}
	own = s.owns()
	next = s.pop(own)
	s.mu.Unlock()
	if !overdue(next.Deadline) {
		s.started(next.queue)
	}
	return next, own, true
}

// follow gives a slot back as done does, unless there is a task for it that it can go on with.
func (s *seam) follow(queue string, took time.Duration) (next fetched, ok bool) {
	s.mu.Lock()
	if len(s.ahead) > 0 && s.owns() && !s.stopped() && s.caps[queue] == 0 && s.caps[s.from.queue] == 0 && s.active.Load() <= s.limit.Load() {
		next, ok = s.pop(true), true
		if len(s.ahead) == 0 {
			ring(s.room) // there is room for the next ones
		}
	}
	s.mu.Unlock()
	if !ok {
		s.done(queue, took)
		return next, false
	}
	s.learn(took)
	return next, true
}

// finished has a task that ran without asynq forgotten.
func (s *seam) finished(t fetched) {
	s.letGo(t.ID)
	c := t.done.Call(t.ID)
	c.Failed = func(err error) { s.failed(t.ID, err) }
	s.store.Scripts().Post(c)
}

// letGo ends the care for a lease.
func (s *seam) letGo(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.own, id)
}

// asynqLease is how long asynq leases tasks, and leaseKept when it is asked to go on doing so.
const (
	asynqLease = 30 * time.Second
	leaseKept  = asynqLease / 3
)

// prolong keeps the leases of tasks that run without asynq, as asynq does of those it runs.
func (s *seam) prolong(ctx context.Context) error {
	now := time.Now()
	due := map[string][]string{}
	s.mu.Lock()
	for id, h := range s.own {
		if now.Sub(h.since) >= leaseKept {
			due[h.key] = append(due[h.key], id)
		}
	}
	s.mu.Unlock()
	for key, ids := range due {
		if err := s.store.Prolong(ctx, key, ids, now.Add(asynqLease)); err != nil {
			return err
		}
		s.mu.Lock()
		for _, id := range ids {
			if h, ok := s.own[id]; ok {
				h.since = now
				s.own[id] = h
			}
		}
		s.mu.Unlock()
	}
	return nil
}

// own runs a task that asynq does not get, in a slot of its own.
func (w *Worker) own(t fetched) {
	w.pool.run(func() { w.slot(carried{t.ID, t.Task, t.queue}, func(err error) { w.ended(t, err) }) })
}

// slot runs a task and says what came of it, and then those that were taken ahead, as long as there are any.
func (w *Worker) slot(tk carried, say func(error)) {
	for ok := true; ok; {
		began := time.Now()
		say(w.perform(context.Background(), tk))
		var next fetched
		if next, ok = w.seam.follow(tk.queue, time.Since(began)); ok {
			tk, say = carried{next.ID, next.Task, next.queue}, func(err error) { w.ended(next, err) }
		}
	}
}

// ended does for a task that ran without asynq what asynq does: it is forgotten, or tried again.
func (w *Worker) ended(t fetched, err error) {
	if err == nil {
		w.seam.finished(t)
		return
	}
	w.log.Warn("task is tried again", "id", t.ID, "error", err)
	select {
	case <-time.After(jitter(passPause)):
	case <-w.seam.closed:
	}
	w.seam.letGo(t.ID)
	w.giveBack(t.queue, t.keys, []store.Popped{t.Popped})
}
