package webui

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"
	"sync"
	"time"
)

const (
	lookEvery  = time.Second     // the pause between two renderings of an open page
	maxLooks   = 10              // renderings of all pages together, in a second
	maxCost    = 40              // commands of Redis for all pages together, in a second
	idleShare  = 4               // the pause after a rendering, as a multiple of its duration
	maxOpen    = 1000            // pages open at once
	maxOfOne   = 100             // pages that one caller may have open at once
	queuedText = 1               // updates that wait for a slow reader; a newer one replaces them
	lookTime   = 3 * time.Second // the time limit of a rendering, so that a slow page does not delay the others
	maxWait    = 2 * time.Second // the longest pause after an expensive page
)

// never is the cost of a page that does not change.
const never = -1

var (
	errAllOpen    = fmt.Errorf("too many open pages: all readers together may have %d", maxOpen)
	errCallerOpen = fmt.Errorf("too many open pages: close some; you may have %d that update themselves", maxOfOne)
	// errPanic replaces the error of a page that has panicked. Its text is shown to readers.
	errPanic = errors.New("internal server error; see the server log")
)

// render returns the HTML of a page for a request, and the number of Redis commands that it took. ctx has the values of
// the request's context.
type render func(ctx context.Context, r *http.Request) (html []byte, cost int, err error)

// hub renders each open page repeatedly, once for all of its readers, and sends them updates. It renders one page after
// the other, at most maxLooks in a second, and less often if they are expensive: the load of Redis does not depend on the
// number of readers.
type hub struct {
	log    *slog.Logger
	mu     sync.Mutex // guards the fields below
	topics map[string]*topic
	open   int
	of     map[string]int // open pages by caller
	round  []*topic       // in the order in which they are rendered
	stop   context.CancelFunc
	ended  chan struct{} // closed when run returns
}

// topic is an open page.
type topic struct {
	key     string
	render  render
	readers []*reader // the page is rendered with the request of the first
	last    update
	looked  time.Time
	fixed   bool // not rendered any more
}

// reader is a request that has a page open.
type reader struct {
	request *http.Request
	updates chan update
}

// update is the content of a page, or the reason why it cannot be read.
type update struct {
	html    []byte
	trouble string
}

func (u update) equal(v update) bool { return u.trouble == v.trouble && bytes.Equal(u.html, v.html) }

func newHub(log *slog.Logger) *hub {
	return &hub{log: log, topics: map[string]*topic{}, of: map[string]int{}}
}

// join adds a request to the readers of the page with a key, and returns the channel of its updates. The caller must call
// leave before it finishes the request. The error is errAllOpen or errCallerOpen.
func (h *hub) join(key, caller string, r *http.Request, render render) (updates <-chan update, leave func(), err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.of[caller] == maxOfOne:
		return nil, nil, errCallerOpen
	case h.open == maxOpen:
		return nil, nil, errAllOpen
	}
	h.open++
	h.of[caller]++
	t := h.topics[key]
	if t == nil {
		t = &topic{key: key, render: render}
		h.topics[key] = t
		h.round = append(h.round, t)
	}
	own := &reader{r, make(chan update, queuedText)}
	if t.last.html != nil || t.fixed {
		own.updates <- t.last
	}
	t.readers = append(t.readers, own)
	if h.open == 1 {
		ctx, cancel := context.WithCancel(context.Background())
		h.stop, h.ended = cancel, make(chan struct{})
		go h.run(ctx, h.ended)
	}
	return own.updates, func() { h.leave(t, own, caller) }, nil
}

// leave removes a reader. After the last one it waits until run has returned.
func (h *hub) leave(t *topic, own *reader, caller string) {
	h.mu.Lock()
	h.open--
	if h.of[caller]--; h.of[caller] == 0 {
		delete(h.of, caller)
	}
	t.readers = slices.DeleteFunc(t.readers, func(r *reader) bool { return r == own })
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
		if ctx.Err() != nil { // another run may have started
			return
		}
		t, wait := h.next()
		if t != nil {
			began := time.Now()
			cost := h.look(ctx, t)
			took := time.Since(began)
			pause := max(time.Duration(cost)*time.Second/maxCost-took, idleShare*took)
			wait = min(max(pause, time.Second/maxLooks-took), maxWait)
		}
		timer.Reset(max(wait, 0))
	}
}

// next returns the page to render, or nil and the time until one is due.
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

// look renders a page and sends it to its readers if it has changed. It returns the cost.
func (h *hub) look(ctx context.Context, t *topic) (cost int) {
	h.mu.Lock()
	if len(t.readers) == 0 {
		h.mu.Unlock()
		return 0
	}
	r := t.readers[0].request
	h.mu.Unlock()
	html, cost, err := h.safely(ctx, t, r)
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
	for _, reader := range t.readers {
		select {
		case <-reader.updates: // not read yet
		default:
		}
		reader.updates <- now
	}
	return cost
}

// safely renders a page for one of its readers. The context has the values of the request, and ends with ctx: the reader
// may leave during the rendering. A page that panics is not rendered again.
func (h *hub) safely(ctx context.Context, t *topic, r *http.Request) (html []byte, cost int, err error) {
	looking, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), lookTime)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	defer func() {
		if p := recover(); p != nil {
			h.log.Error("page panicked", "page", t.key, "panic", p, "stack", string(debug.Stack()))
			html, cost, err = nil, never, errPanic
		}
	}()
	return t.render(looking, r)
}
