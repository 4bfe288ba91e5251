package sites

import (
	"context"
	"log/slog"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
)

// Memory keeps the pages that are worked on at once from taking more memory
// than there is: before a page is begun room is set aside for it, as much as
// pages of its kind have needed, and more when it turns out to be larger.
// Where there is no room fewer pages are begun. It is shared by all jobs of a
// process, in the order in which they ask, so that none starves. A nil Memory
// has room without end.
type Memory struct {
	limit int64
	size  int64 // of all rooms
	sem   *semaphore.Weighted
	log   *slog.Logger
	used  func() int64 // bytes that the process has; a test has its own

	taken   atomic.Int64 // bytes set aside
	pages   atomic.Int64 // that have a room
	waiting atomic.Int64 // pages that wait for one
	mu      sync.Mutex   // guards said
	said    time.Time    // when it was last logged that memory is short
}

const (
	// pageFactor is how many bytes a page needs for each of its own while it
	// is taken apart: the body, the text in UTF-8, the tree, and garbage.
	pageFactor = 16
	// leastRoom is for what a page needs however small it is.
	leastRoom = 512 << 10
	// memoryShare is the part of the limit that is for pages.
	memoryShare = 0.75
)

// NewMemory returns the Memory of a process that should stay below limit
// bytes. Without a limit it returns nil. Logger may be nil.
func NewMemory(limit int64, logger *slog.Logger) *Memory {
	if limit <= 0 {
		return nil
	}
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	size := max(int64(float64(limit)*memoryShare), leastRoom)
	return &Memory{limit: limit, size: size, sem: semaphore.NewWeighted(size), log: logger, used: usedMemory}
}

// Room is what is set aside for a page.
type room struct {
	of *Memory
	n  int64
}

// enter waits for room for a page of so many bytes. Leave it.
func (m *Memory) enter(ctx context.Context, bytes int64) (*room, error) {
	if m == nil {
		return &room{}, nil
	}
	n := min(max(bytes*pageFactor, leastRoom), m.size)
	if !m.sem.TryAcquire(n) {
		m.short()
		m.waiting.Add(1)
		err := m.sem.Acquire(ctx, n)
		m.waiting.Add(-1)
		if err != nil {
			return nil, context.Cause(ctx)
		}
	}
	m.taken.Add(n)
	m.pages.Add(1)
	r := &room{m, n}
	// What is set aside is reckoned; this is what is. One page at a time goes
	// on whatever it is, or nothing ever would.
	for m.pages.Load() > 1 && m.used() > m.limit {
		m.short()
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			r.leave()
			return nil, err
		}
	}
	return r, nil
}

// grow makes the room one for a page of so many bytes, if there is so much.
// It does not wait.
func (r *room) grow(bytes int64) bool {
	if r.of == nil {
		return true
	}
	more := min(bytes*pageFactor, r.of.size) - r.n
	if more <= 0 {
		return true
	}
	if !r.of.sem.TryAcquire(more) {
		r.of.short()
		return false
	}
	r.of.taken.Add(more)
	r.n += more
	return true
}

func (r *room) leave() {
	if r.of == nil {
		return
	}
	r.of.pages.Add(-1)
	r.of.taken.Add(-r.n)
	r.of.sem.Release(r.n)
	r.n = 0
}

// MemoryUse is what a Memory is used for.
type MemoryUse struct {
	Limit    int64 // bytes; 0 for none
	Reserved int64 // bytes
	Pages    int64 // that are worked on
	Waiting  int64 // pages
}

// Use tells what the memory is used for now.
func (m *Memory) Use() MemoryUse {
	if m == nil {
		return MemoryUse{}
	}
	return MemoryUse{Limit: m.limit, Reserved: m.taken.Load(), Pages: m.pages.Load(), Waiting: m.waiting.Load()}
}

// short says, now and then, that memory is.
func (m *Memory) short() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if time.Since(m.said) < sayAgain {
		return
	}
	m.said = time.Now()
	m.log.Warn("memory is short: fewer pages are fetched at once", "limit_mb", m.limit>>20, "used_mb", m.used()>>20, "for_pages_mb", m.taken.Load()>>20)
}

// usedMemory is how much memory the process has from the system.
func usedMemory() int64 {
	s := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(s)
	return int64(s[0].Value.Uint64() - s[1].Value.Uint64())
}

// sizes remembers how large pages of a kind are. Its zero value is ready to
// use, by many goroutines.
type sizes struct {
	mu sync.Mutex // guards of
	of map[string]int64
}

// usual is how large a page of a kind is taken to be.
func (s *sizes) usual(kind string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.of[kind]
}

// saw notes how large one is: large ones count at once, small ones by and by.
func (s *sizes) saw(kind string, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == nil {
		s.of = map[string]int64{}
	}
	s.of[kind] = max(bytes, s.of[kind]-s.of[kind]/16)
}
