package engine

import (
	"sync"
)

// slots counts the slots of a worker that are in use, and limits them.
type slots struct {
	caps  map[string]int // most at once of a queue
	freed func()         // called when a slot is free and none was before, or when the limit changes
	most  int            // the highest limit
	waits sync.WaitGroup // of waiters, until an entry for which they have no slot is put back; none enters once the slots are closed

	mu     sync.Mutex // guards the fields below
	room   *sync.Cond
	limit  int
	active int
	of     map[string]int // active ones of each queue
	closed bool
}

func newSlots(limit, most int, caps map[string]int, freed func()) *slots {
	s := &slots{caps: caps, freed: freed, limit: limit, most: most, of: map[string]int{}}
	s.room = sync.NewCond(&s.mu)
	return s
}

func (s *slots) fullLocked(queue string) bool {
	return s.active >= s.limit || s.caps[queue] > 0 && s.of[queue] >= s.caps[queue]
}

// full reports whether nothing of a queue can start now.
func (s *slots) full(queue string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed || s.fullLocked(queue)
}

// enter waits until a slot is free for one more waiter at a ring. It returns false when the slots are closed.
func (s *slots) enter(w *waitingRoom) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.closed && (s.fullLocked(w.queue) || s.active+w.waits >= s.limit) {
		s.room.Wait()
	}
	if s.closed {
		return false
	}
	w.waits++
	s.waits.Add(1)
	return true
}

// leave is called by a waiter that waits no more, and takes a slot if it needs one and one is free. waits.Done must follow.
func (s *slots) leave(w *waitingRoom, needs bool) (taken bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.waits--
	s.room.Broadcast()
	return needs && !s.closed && !s.fullLocked(w.queue) && s.takeLocked(w.queue)
}

// waitsAt returns how many waiters wait at a ring.
func (s *slots) waitsAt(w *waitingRoom) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return w.waits
}

// move counts a slot of a queue for another one, if the limit of that one allows it.
func (s *slots) move(from, to string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if from == to {
		return true
	}
	if s.caps[to] > 0 && s.of[to] >= s.caps[to] {
		return false
	}
	s.of[from]--
	s.of[to]++
	s.room.Broadcast()
	return true
}

// free returns how many nodes of a queue with a limit can run, some of them in slots that are in use.
func (s *slots) free(queue string, used []*slot) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.caps[queue] - s.of[queue]
	for _, sl := range used {
		if sl.queue == queue {
			n++
		}
	}
	return max(0, n)
}

// tryAcquire takes a slot for a queue if there is one.
func (s *slots) tryAcquire(queue string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.closed && !s.fullLocked(queue) && s.takeLocked(queue)
}

// acquire waits for a slot for a queue, and takes it. It returns false when the slots are closed.
func (s *slots) acquire(queue string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.closed && s.fullLocked(queue) {
		s.room.Wait()
	}
	return !s.closed && s.takeLocked(queue)
}

func (s *slots) takeLocked(queue string) bool {
	s.active++
	s.of[queue]++
	return true
}

// release frees a slot of a queue.
func (s *slots) release(queue string) {
	s.mu.Lock()
	full := s.fullLocked(queue)
	s.active--
	s.of[queue]--
	s.room.Broadcast()
	s.mu.Unlock()
	if full {
		s.freed()
	}
}

// crowded reports whether more slots are in use than the limit, which was lowered then.
func (s *slots) crowded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.active > s.limit
}

// setLimit changes the limit, as far as there may be so many slots.
func (s *slots) setLimit(n int) {
	s.mu.Lock()
	s.limit = min(n, s.most)
	s.room.Broadcast()
	s.mu.Unlock()
	s.freed()
}

// close makes acquire return false from now on.
func (s *slots) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.room.Broadcast()
}

// use returns how many slots are in use, and the limit.
func (s *slots) use() (active, limit int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.active, s.limit
}
