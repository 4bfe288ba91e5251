package webui

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"
)

const (
	pulse     = 15 * time.Second // between comments that keep the connection open
	streaming = 5 * time.Minute  // maximum duration of a request, so that expired credentials stop the updates
	writeTime = 10 * time.Second // timeout of a write
)

// errRights stops the updates of a reader whose permissions have changed since the start of the request.
var errRights = errors.New("the permissions of a reader have changed")

// rights returns the part of the key of a page that depends on the permissions of the sender of a request. Readers share a rendering
// only if their permissions are equal.
func (s *Site) rights(r *http.Request) string {
	reads := ""
	if s.cfg.Reads != nil {
		reads = s.cfg.Reads(r)
	}
	return fmt.Sprintf("%q %t %t", reads, s.cfg.May(r, Operate), s.cfg.May(r, Administer))
}

// stream sends a page as server-sent events whenever it changes: "main" with the HTML of the element with this ID, and "trouble" with
// an error.
func (s *Site) stream(w http.ResponseWriter, r *http.Request, p page) {
	rights := s.rights(r)
	render := func(ctx context.Context, r *http.Request) ([]byte, bool, error) {
		html, fixed, err := s.fragment(ctx, r, p)
		if s.rights(r) != rights { // checked afterwards, because the rendering may have used either
			return nil, false, errRights
		}
		return html, fixed, err
	}
	updates, leave, err := s.live.join(rights+" "+r.URL.RequestURI(), s.caller(r), r, render)
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
		_ = out.SetWriteDeadline(time.Now().Add(writeTime)) // not supported by httptest.ResponseRecorder
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
			if s.rights(r) != rights {
				return // the browser sends a new request
			}
			text = event("main", u.html)
			if u.trouble != "" {
				text = event("trouble", []byte(u.trouble))
			}
		}
	}
}

// caller returns the name or address of the sender of a request.
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

// fragment renders the part of a page that changes. fixed means that it does not change any more. Errors below 500, such as 404, are rendered as pages.
func (s *Site) fragment(ctx context.Context, r *http.Request, p page) (html []byte, fixed bool, err error) {
	show := p.show
	v, err := p.ask(ctx, r.WithContext(ctx))
	if err != nil {
		status, content := s.explain(err)
		if status >= http.StatusInternalServerError {
			return nil, false, err
		}
		show, v = s.errors, View{Name: content.Title, Data: content}
	}
	v = s.framed(r, v)
	var out bytes.Buffer
	if err := show.ExecuteTemplate(&out, "main", v); err != nil {
		return nil, false, fmt.Errorf("render the page: %w", err)
	}
	return out.Bytes(), v.Fixed, nil
}

// lineEnds normalizes the line ends of server-sent events, including a bare CR.
var lineEnds = strings.NewReplacer("\r\n", "\n", "\r", "\n")

// event encodes a server-sent event.
func event(name string, data []byte) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "event: %s\n", name)
	for line := range strings.Lines(lineEnds.Replace(string(data))) {
		b.WriteString("data: ")
		b.WriteString(strings.TrimSuffix(line, "\n"))
		b.WriteByte('\n')
	}
	b.WriteByte('\n')
	return b.Bytes()
}
