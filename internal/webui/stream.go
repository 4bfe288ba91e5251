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
	streaming = 5 * time.Minute  // until the reader must send a new request, so that expired credentials end the updates
	writeTime = 10 * time.Second // the time limit of a write
)

// errRights ends the updates of a reader whose rights have changed since the request began.
var errRights = errors.New("the rights of a reader have changed")

// rights returns the part of the key of a page that depends on the sender of a request. Readers share a rendering only if
// their rights are equal.
func (s *Site) rights(r *http.Request) string {
	reads := ""
	if s.cfg.Reads != nil {
		reads = s.cfg.Reads(r)
	}
	return fmt.Sprintf("%q %t %t", reads, s.cfg.May(r, Operate), s.cfg.May(r, Administer))
}

// stream sends a page each time that it changes, as server-sent events: "main" with the HTML of the element of this id,
// and "trouble" with the reason why it cannot be read.
func (s *Site) stream(w http.ResponseWriter, r *http.Request, p page) {
	rights := s.rights(r)
	render := func(ctx context.Context, r *http.Request) ([]byte, int, error) {
		html, cost, err := s.fragment(ctx, r, p)
		if s.rights(r) != rights { // checked after the rendering: it may have used either
			return nil, 0, errRights
		}
		return html, cost, err
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

// fragment renders the part of a page that changes, and returns its cost. An error below 500, such as 404, is a page, too.
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

// lineEnds are the line ends of server-sent events. A bare CR is one, too.
var lineEnds = strings.NewReplacer("\r\n", "\n", "\r", "\n")

// event returns a server-sent event.
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
