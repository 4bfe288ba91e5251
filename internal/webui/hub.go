package webui

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

const (
	lookEvery  = 500 * time.Millisecond // at a page that somebody has open
	mostLooks  = 10                     // at all pages together, in a second
	mostCost   = 40                     // commands of Redis for all pages together, in a second
	mostOpen   = 1000                   // pages open at once
	mostOfOne  = 100                    // of them, of one caller
	queuedText = 1                      // a reader that is slow gets the newest only
	lookTime   = 3 * time.Second        // a page that takes longer says so, and others are not held up
	mostWait   = 2 * time.Second        // after a page that costs much, before the next one
)

// never is the cost of a page that does not change.
const never = -1

var (
	errAllOpen    = fmt.Errorf("too many open pages: all readers together may have %d", mostOpen)
	errCallerOpen = fmt.Errorf("too many open pages: close some; you may have %d that update themselves", mostOfOne)
)

// hub renders each page that is open again and again, once for all who have it open, and sends them what is new. It
// renders one page after the other, at most mostLooks in a second, and less often if they cost more, so that Redis has the
// same to do with ten open pages as with a thousand.
type hub struct {
	log    *slog.Logger
	mu     sync.Mutex // guards the fields below
	topics map[string]*topic
	open   int
	of     map[string]int // how many of them each caller has
	round  []*topic       // in the order in which they are rendered
	stop   context.CancelFunc
	ended  chan struct{} // closed once nothing is rendered any more
}

// topic is an open page.
type topic struct {
	key     string
	render  func(context.Context) (html []byte, cost int, err error)
	readers map[chan update]bool
	last    update
	looked  time.Time
	fixed   bool // it does not change any more
}

// update is what a page shows now: HTML, or why it cannot be read.
type update struct {
	html    []byte
	trouble string
}

func (u update) equal(v update) bool { return u.trouble == v.trouble && bytes.Equal(u.html, v.html) }

func newHub(log *slog.Logger) *hub {
	return &hub{log: log, topics: map[string]*topic{}, of: map[string]int{}}
}

// join returns a channel of what the page with a key shows, and a function to call at the end. It returns an error if too
// many pages are open, of all or of the caller.
func (h *hub) join(key, caller string, render func(context.Context) (html []byte, cost int, err error)) (updates <-chan update, leave func(), err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.of[caller] == mostOfOne:
		return nil, nil, errCallerOpen
	case h.open == mostOpen:
		return nil, nil, errAllOpen
	}
	h.open++
	h.of[caller]++
	t := h.topics[key]
	if t == nil {
		t = &topic{key: key, render: render, readers: map[chan update]bool{}}
		h.topics[key] = t
		h.round = append(h.round, t)
	}
	c := make(chan update, queuedText)
	if t.last.html != nil {
		c <- t.last
	}
	t.readers[c] = true
	if h.open == 1 {
		ctx, cancel := context.WithCancel(context.Background())
		h.stop, h.ended = cancel, make(chan struct{})
		go h.run(ctx, h.ended)
	}
	return c, func() { h.leave(t, c, caller) }, nil
}

// leave ends a reader. The last one waits until nothing is rendered any more.
func (h *hub) leave(t *topic, c chan update, caller string) {
	h.mu.Lock()
	h.open--
	if h.of[caller]--; h.of[caller] == 0 {
		delete(h.of, caller)
	}
	delete(t.readers, c)
	if len(t.readers) == 0 {
		delete(h.topics, t.key)
	}
	if h.open > 0 {
		h.mu.Unlock()
		return
	}
	h.stop()
	h.round = nil
	ended := h.ended
	h.mu.Unlock()
	<-ended
}

// run renders the open pages until ctx is done.
func (h *hub) run(ctx context.Context, ended chan<- struct{}) {
	defer close(ended)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		if ctx.Err() != nil { // another run may have begun
			return
		}
		t, wait := h.next()
		if t != nil {
			began := time.Now()
			cost := h.look(ctx, t)
			wait = max(time.Second/mostLooks, min(time.Duration(cost)*time.Second/mostCost, mostWait)) - time.Since(began)
		}
		timer.Reset(max(wait, 0))
	}
}

// next returns the page to render, or nil and how long to wait before one is due.
func (h *hub) next() (t *topic, wait time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for len(h.round) > 0 {
		t = h.round[0]
		if len(t.readers) == 0 || t.fixed {
			h.round = h.round[1:]
			continue
		}
		if wait := lookEvery - time.Since(t.looked); wait > 0 {
			return nil, wait
		}
		t.looked = time.Now()
		h.round = append(h.round[1:], t)
		return t, 0
	}
	return nil, lookEvery
}

// look renders a page and sends it to its readers if it has changed. It returns what that cost.
func (h *hub) look(ctx context.Context, t *topic) (cost int) {
	looking, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	html, cost, err := t.render(looking)
	h.mu.Lock()
	defer h.mu.Unlock()
	if ctx.Err() != nil {
		return 0
	}
	now := update{html: html}
	if err != nil {
		h.log.Debug("page cannot be read", "page", t.key, "error", err)
		now = update{html: t.last.html, trouble: err.Error()}
	}
	t.fixed = cost == never
	if now.equal(t.last) {
		return cost
	}
	t.last = now
	for c := range t.readers {
		select {
		case <-c: // it has not read the one before
		default:
		}
		c <- now
	}
	return cost
}
