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
	lookEvery  = time.Second     // minimum interval between renderings of an open page
	maxLooks   = 10              // maximum renderings of all pages per second
	idleShare  = 4               // pause after a rendering as a multiple of its duration
	maxOpen    = 1000            // maximum number of open pages
	maxOfOne   = 100             // maximum number of open pages per caller
	queuedText = 1               // queued updates of a slow reader; a newer update replaces them
	lookTime   = 3 * time.Second // timeout of a rendering, so that a slow page does not delay others
	maxWait    = 2 * time.Second // maximum pause after an slow page
)

var (
	errAllOpen    = fmt.Errorf("too many open pages: all readers together may have %d", maxOpen)
	errCallerOpen = fmt.Errorf("too many open pages: close some; you may have %d that update themselves", maxOfOne)
	// errPanic replaces the error of a page that has panicked. Its text is shown to readers.
	errPanic = errors.New("internal server error; see the server log")
)

// render returns the HTML of a page for a request, and whether it will not change any more. ctx has the values of the context of
// the request.
type render func(ctx context.Context, r *http.Request) (html []byte, fixed bool, err error)

// hub repeatedly renders each open page, once for all of its readers, and sends updates to them. It renders pages sequentially, at most
// maxLooks per second, and less often if they are slow: the load of Redis does not depend on the number of readers.
type hub struct {
	log    *slog.Logger
	title  func(error) string // text for readers about a page that cannot be read
	mu     sync.Mutex         // guards the fields below
	topics map[string]*topic
	open   int
	of     map[string]int // open pages by caller
	round  []*topic       // in rendering order
	stop   context.CancelFunc
	ended  chan struct{} // closed when run returns
}

// topic is an open page.
type topic struct {
	key     string
	render  render
	readers []*reader // the page is rendered with the request of the first reader
	last    update
	looked  time.Time
	fixed   bool // no longer rendered
}

// reader is a request with an open page.
type reader struct {
	request *http.Request
	updates chan update
	current bool // it has got an update; until then its page may be newer or older than the last one
}

// update is the content of a page, or an error.
type update struct {
	html    []byte
	trouble string
}

func (u update) equal(v update) bool { return u.trouble == v.trouble && bytes.Equal(u.html, v.html) }

func newHub(log *slog.Logger, title func(error) string) *hub {
	return &hub{log: log, title: title, topics: map[string]*topic{}, of: map[string]int{}}
}

// join adds a request to the readers of the page with a key and returns the channel of its updates. The caller must call leave before
// the request ends. The error is errAllOpen or errCallerOpen.
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
	own := &reader{request: r, updates: make(chan update, queuedText)}
	if t.fixed {
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

// leave removes a reader. After the last one it waits until run returns.
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
			start := time.Now()
			h.look(ctx, t)
			took := time.Since(start)
			wait = min(max(idleShare*took, time.Second/maxLooks-took), maxWait)
		}
		timer.Reset(max(wait, 0))
	}
}

// next returns the page to render, or nil and the time until the next rendering.
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

// look renders a page and sends it to its readers if it has changed.
func (h *hub) look(ctx context.Context, t *topic) {
	h.mu.Lock()
	if len(t.readers) == 0 {
		h.mu.Unlock()
		return
	}
	readers := slices.Clone(t.readers) // one that joins later may have a newer page than this rendering
	r := readers[0].request
	h.mu.Unlock()
	html, fixed, err := h.safely(ctx, t, r)
	h.mu.Lock()
	defer h.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	now := update{html: html}
	if err != nil {
		h.log.Debug("page cannot be read", "page", t.key, "error", err)
		now = update{html: t.last.html, trouble: h.title(err)}
	}
	t.fixed = fixed
	changed := !now.equal(t.last)
	t.last = now
	for _, reader := range readers {
		if reader.current && !changed {
			continue
		}
		reader.current = true
		select {
		case <-reader.updates: // replaces an unread update
		default:
		}
		reader.updates <- now
	}
}

// safely renders a page for one of its readers. The context has the values of the request but is canceled by ctx, because the reader may
// disconnect during the rendering. A page that panics is not rendered again.
func (h *hub) safely(ctx context.Context, t *topic, r *http.Request) (html []byte, fixed bool, err error) {
	looking, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), lookTime)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	defer func() {
		if p := recover(); p != nil {
			h.log.Error("page panicked", "page", t.key, "panic", p, "stack", string(debug.Stack()))
			html, fixed, err = nil, true, errPanic
		}
	}()
	return t.render(looking, r)
}
