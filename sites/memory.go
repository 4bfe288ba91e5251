package sites

import (
	"context"

	"golang.org/x/sync/semaphore"
)

const (
	// pageFactor is how many bytes are used for each byte of a page while it is
	// parsed: the body, the text in UTF-8, the tree, and garbage.
	pageFactor = 16
	// leastRoom is how many bytes are reserved for a small page.
	leastRoom = 512 << 10
	// memoryShare is the part of the limit that is for pages.
	memoryShare = 0.75
)

// memory bounds the pages that a process parses at once by their sizes. Pages
// wait first in, first out, so that a large one does not starve. Nil has no bound.
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

// enter waits until a page of a size in bytes can be parsed; call leave after
// that. A page that is larger than the memory is parsed alone.
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
