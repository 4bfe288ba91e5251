package engine

import (
	"sync"
)

// slots counts what runs in a worker, against how much may.
type slots struct {
	caps  map[string]int // most at once of a queue
	freed func()         // told when there is a slot and was none

	mu     sync.Mutex // guards the fields below
	room   *sync.Cond
	limit  int
	active int
	of     map[string]int // active ones of each queue
	closed bool
}

func newSlots(limit int, caps map[string]int, freed func()) *slots {
	s := &slots{caps: caps, freed: freed, limit: limit, of: map[string]int{}}
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

// acquire takes a slot for a queue, once there is one. It returns false when there will be none any more.
func (s *slots) acquire(queue string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.closed && s.fullLocked(queue) {
		s.room.Wait()
	}
	if s.closed {
		return false
	}
	s.active++
	s.of[queue]++
	return true
}

// release gives a slot of a queue back.
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

// crowded reports whether more slots are in use than there may be.
func (s *slots) crowded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.active > s.limit
}

func (s *slots) setLimit(n int) {
	s.mu.Lock()
	s.limit = n
	s.room.Broadcast()
	s.mu.Unlock()
	s.freed()
}

// close lets nobody have a slot from now on.
func (s *slots) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.room.Broadcast()
}

// use returns how many slots are in use, and how many may be.
func (s *slots) use() (active, limit int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.active, s.limit
}
