package engine

import (
	"sync"
)

// life is how far a worker is towards its end: first no more tasks begin, then nothing waits for handlers any more.
type life struct {
	stop     chan struct{} // closed when no more tasks may begin
	stopOnce sync.Once
	killed   chan struct{} // closed when Run must return without waiting
	killOnce sync.Once
}

func newLife() *life { return &life{stop: make(chan struct{}), killed: make(chan struct{})} }

// kill lets Run return without waiting for handlers.
func (l *life) kill() { l.killOnce.Do(func() { close(l.killed) }) }

// halt lets no more tasks begin.
func (l *life) halt() { l.stopOnce.Do(func() { close(l.stop) }) }

// stopping reports whether no more tasks may begin.
func (l *life) stopping() bool {
	select {
	case <-l.stop:
		return true
	case <-l.killed:
		return true
	default:
		return false
	}
}
