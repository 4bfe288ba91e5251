package sites

import (
	"context"

	"golang.org/x/sync/semaphore"
)

const (
	// pageFactor is how many bytes a page needs for each of its own while it
	// is parsed: the body, the text in UTF-8, the tree, and garbage.
	pageFactor = 16
	// leastRoom is for what a page needs however small it is.
	leastRoom = 512 << 10
	// memoryShare is the part of the limit that is for pages.
	memoryShare = 0.75
)

// memory bounds the pages that a process parses at once by their sizes. Pages
// wait in the order in which they come, so that a large one does not starve.
// Nil has no bound.
type memory struct {
	size int64
	room *semaphore.Weighted
}

// newMemory returns the memory of a process that should stay below limit
// bytes, or nil when limit is 0.
func newMemory(limit int64) *memory {
	if limit <= 0 {
		return nil
	}
	size := max(int64(float64(limit)*memoryShare), leastRoom)
	return &memory{size: size, room: semaphore.NewWeighted(size)}
}

// enter waits until a page of so many bytes can be parsed; call leave after
// that. A page that is larger than all the memory is parsed alone.
func (m *memory) enter(ctx context.Context, bytes int) (leave func(), err error) {
	if m == nil {
		return func() {}, nil
	}
	n := min(max(int64(bytes)*pageFactor, leastRoom), m.size)
	if err := m.room.Acquire(ctx, n); err != nil {
		return nil, context.Cause(ctx)
	}
	return func() { m.room.Release(n) }, nil
}
