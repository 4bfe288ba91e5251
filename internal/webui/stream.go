package webui

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

const (
	pulse     = 15 * time.Second // between signs of life, so that proxies do not close the connection
	streaming = 5 * time.Minute  // until the reader must ask again, so that a key that has ended shows nothing any more
	writeTime = 10 * time.Second // that a reader may take for an update
)

// stream sends what a page shows each time that it changes, as server-sent events: "main" with the HTML of the element
// of this id, and "trouble" with why it cannot be read now.
func (s *Site) stream(w http.ResponseWriter, r *http.Request, p page) {
	reads := ""
	if s.cfg.Reads != nil {
		reads = s.cfg.Reads(r)
	}
	key := fmt.Sprintf("%q %t %t %s", reads, s.cfg.May(r, Operate), s.cfg.May(r, Administer), r.URL.RequestURI())
	shared := r.WithContext(context.WithoutCancel(r.Context())) // others may look at the page after this reader has left
	updates, leave, err := s.live.join(key, s.caller(r), func(ctx context.Context) ([]byte, int, error) { return s.fragment(ctx, shared, p) })
	if err != nil {
		status := http.StatusServiceUnavailable
		if errors.Is(err, errCallerOpen) {
			status = http.StatusTooManyRequests
		}
		w.Header().Set("Retry-After", "30")
		http.Error(w, err.Error(), status)
		return
	}
	defer leave()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no")
	out := http.NewResponseController(w)
	tick := time.NewTicker(pulse)
	defer tick.Stop()
	over := time.NewTimer(streaming)
	defer over.Stop()
	text := []byte("retry: 2000\n\n")
	for {
		_ = out.SetWriteDeadline(time.Now().Add(writeTime)) // a recorder has none
		if _, err := w.Write(text); err != nil {
			return
		}
		if out.Flush() != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-s.cfg.Done:
			return
		case <-over.C:
			return
		case <-tick.C:
			text = []byte(": still here\n\n")
		case u := <-updates:
			text = event("main", u.html)
			if u.trouble != "" {
				text = event("trouble", []byte(u.trouble))
			}
		}
	}
}

// caller names the sender of a request.
func (s *Site) caller(r *http.Request) string {
	if s.cfg.Caller != nil {
		if name := s.cfg.Caller(r); name != "" {
			return name
		}
	}
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		return host
	}
	return r.RemoteAddr
}

// fragment renders the part of a page that changes, and returns what that cost. What is not there any more is a page, too.
func (s *Site) fragment(ctx context.Context, r *http.Request, p page) (html []byte, cost int, err error) {
	show := p.show
	v, err := p.ask(ctx, r.WithContext(ctx))
	if err != nil {
		status, says := s.explain(err)
		if status >= http.StatusInternalServerError {
			return nil, v.Cost, err
		}
		show, v = s.errors, View{Name: says.Title, Data: says}
	}
	v = s.framed(r, v)
	var out bytes.Buffer
	if err := show.ExecuteTemplate(&out, "main", v); err != nil {
		return nil, v.Cost, fmt.Errorf("make the page: %w", err)
	}
	if v.Fixed {
		return out.Bytes(), never, nil
	}
	return out.Bytes(), v.Cost, nil
}

// event is a server-sent event.
func event(name string, data []byte) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "event: %s\n", name)
	for line := range bytes.Lines(data) {
		b.WriteString("data: ")
		b.Write(bytes.TrimRight(line, "\r\n"))
		b.WriteByte('\n')
	}
	b.WriteByte('\n')
	return b.Bytes()
}
