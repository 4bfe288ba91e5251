package render

import (
	"bytes"
	"cmp"
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"muster/internal/addressfilter"
)

// Request asks for a page.
type Request struct {
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers,omitempty"` // sent to the host of URL only; Cookie sets the first cookies of a session
	// Milliseconds is the maximum time for the page. Defaults to 30 s.
	Milliseconds int64  `json:"timeout_ms,omitempty"`
	Wait         string `json:"wait,omitempty"`      // selector of an element of the complete page. Defaults to none: until no request is in flight.
	Session      string `json:"session,omitempty"`   // pages with the same session share cookies and a cache. Defaults to a new one.
	Proxy        string `json:"proxy,omitempty"`     // URL, with a password if it needs one. Defaults to none.
	MaxBytes     int64  `json:"max_bytes,omitempty"` // limit of the page and of what it loads. Defaults to 16 MiB.

	// Filter allows non-public addresses without a proxy. Defaults to the filter of the Browser.
	Filter *addressfilter.Filter `json:"-"`
}

// A Renderer returns rendered pages. The response has the status of the site, the header X-Page-URL with the URL after redirects, and
// the cookies of the page. An error is an *Error, or an error of ctx.
type Renderer interface {
	Render(ctx context.Context, r Request) (*http.Response, error)
	// Check returns an error if no page can be rendered.
	Check() error
}

// Classes of errors.
const (
	Failed  = "renderer" // of the browser or the service
	Connect = "connect"
	Proxy   = "proxy"
	Timeout = "timeout"
	TooBig  = "too_big"
	BadType = "bad_type"
)

// Error is the reason why a page could not be rendered.
type Error struct {
	Class string
	Err   error
}

// Error returns the text of the cause.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Headers of the service's responses.
const (
	statusHeader = "X-Page-Status"
	urlHeader    = "X-Page-Url"
	errorHeader  = "X-Render-Error" // class of the error
)

func (r *Request) timeout() time.Duration {
	if r.Milliseconds <= 0 {
		return 30 * time.Second
	}
	return time.Duration(r.Milliseconds) * time.Millisecond
}

func (r *Request) maxBytes() int64 {
	if r.MaxBytes <= 0 {
		return 16 << 20
	}
	return r.MaxBytes
}

func (r *Request) check() (*url.URL, error) {
	u, err := url.Parse(r.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errors.New("url must be an http or https URL")
	}
	return u, nil
}

// A Handler serves a Renderer: it answers a POST of a Request as JSON with status 200, the HTML, and the page's status in
// X-Page-Status. Errors have the status 502, their class in X-Render-Error, and a text.
type Handler struct {
	Renderer Renderer
	Logger   *slog.Logger
	// Key is required in the header Authorization, as in Bearer KEY. Without one, only requests to a loopback address are served.
	Key atomic.Pointer[string]
}

// refuse returns the reason and the status for a request that is not served.
func (h *Handler) refuse(r *http.Request) (string, int) {
	host, _, _ := net.SplitHostPort(r.Host)
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	given, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	switch key := h.Key.Load(); {
	case key != nil && subtle.ConstantTimeCompare([]byte(given), []byte(*key)) != 1:
		return "wrong or missing key", http.StatusUnauthorized
	case key == nil && !addressfilter.IsLoopback(host): // of a web page whose name resolves to loopback
		return "without a key, the host must be a loopback address", http.StatusForbidden
	case r.Method != http.MethodPost:
		return "use POST", http.StatusMethodNotAllowed
	case kind != "application/json": // web pages may send other types
		return "the body must be application/json", http.StatusUnsupportedMediaType
	}
	return "", 0
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if why, status := h.refuse(r); why != "" {
		http.Error(w, why, status)
		return
	}
	var q Request
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&q); err != nil {
		http.Error(w, "invalid request: "+err.Error(), http.StatusBadRequest)
		return
	}
	at, err := q.check()
	if err != nil {
		http.Error(w, "invalid request: "+err.Error(), http.StatusBadRequest)
		return
	}
	res, err := h.Renderer.Render(r.Context(), q)
	if err != nil {
		h.Logger.WarnContext(r.Context(), "cannot render a page", "host", at.Host, "error", err)
		class := Failed
		if e, ok := errors.AsType[*Error](err); ok {
			class = e.Class
		}
		w.Header().Set(errorHeader, class)
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer res.Body.Close()
	for name, values := range res.Header {
		w.Header()[name] = values
	}
	w.Header().Set(statusHeader, strconv.Itoa(res.StatusCode))
	_, _ = io.Copy(w, res.Body) // the client may have disconnected
}

// A Client is a Renderer that uses a service at a URL.
type Client struct {
	URL, Key string
	HTTP     *http.Client
}

// Check implements Renderer. The pages report a service that does not respond.
func (c *Client) Check() error { return nil }

// Render implements Renderer.
func (c *Client) Render(ctx context.Context, r Request) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*r.timeout()+time.Second) // it may wait for a tab
	defer cancel()
	res, err := c.post(ctx, r)
	if err != nil && !errors.As(err, new(*Error)) {
		err = &Error{Failed, err}
	}
	return res, err
}

func (c *Client) post(ctx context.Context, r Request) (*http.Response, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if c.Key != "" {
		req.Header.Set("Authorization", "Bearer "+c.Key)
	}
	res, err := c.HTTP.Do(req)
	if err != nil {
		return nil, fmt.Errorf("request to render.url: %w", err)
	}
	defer res.Body.Close()
	body, err = io.ReadAll(io.LimitReader(res.Body, r.maxBytes()+1)) // the caller rejects a longer page
	if err != nil {
		return nil, fmt.Errorf("response of render.url: %w", err)
	}
	res.Body = io.NopCloser(bytes.NewReader(body))
	if res.StatusCode != http.StatusOK {
		err := fmt.Errorf("render.url: HTTP status %d: %.300s", res.StatusCode, bytes.TrimSpace(body))
		return nil, &Error{cmp.Or(res.Header.Get(errorHeader), Failed), err}
	}
	if s := res.Header.Get(statusHeader); s != "" {
		res.StatusCode, err = strconv.Atoi(s)
		if err != nil || res.StatusCode < 200 || res.StatusCode > 599 {
			return nil, fmt.Errorf("response of render.url: invalid %s %q", statusHeader, s)
		}
	}
	return res, nil
}

// An outlet is a proxy on loopback that connects only to the addresses that a filter allows: Chromium would connect to any.
type outlet struct {
	address string
	server  *http.Server
	carrier *http.Transport
	dial    func(ctx context.Context, network, address string) (net.Conn, error)

	mu     sync.Mutex
	failed map[string]error // last error by host
}

func openOutlet(filter *addressfilter.Filter) (*outlet, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the browser: %w", err)
	}
	o := &outlet{address: l.Addr().String(), carrier: filter.Transport(), failed: map[string]error{}}
	o.dial = o.carrier.DialContext
	o.carrier.DisableCompression = true // the browser decodes
	forward := &httputil.ReverseProxy{
		Rewrite: func(*httputil.ProxyRequest) {}, Transport: o.carrier, FlushInterval: -1, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
		ErrorHandler: func(_ http.ResponseWriter, r *http.Request, err error) {
			o.fail(r.URL.Host, err)
			panic(http.ErrAbortHandler) // closes the connection
		},
	}
	o.server = &http.Server{ReadHeaderTimeout: time.Minute, ErrorLog: forward.ErrorLog, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodConnect {
			o.tunnel(w, r)
		} else {
			forward.ServeHTTP(w, r)
		}
	})}
	go func() { _ = o.server.Serve(l) }() // returns after close
	return o, nil
}

// close closes the outlet, which may be nil. Tunnels end with the browser's connections.
func (o *outlet) close() {
	if o != nil {
		_ = o.server.Close()
		o.carrier.CloseIdleConnections()
	}
}

func (o *outlet) fail(host string, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.failed[host] = err
}

// failure returns the last error of a host, or nil. The outlet may be nil.
func (o *outlet) failure(host string) error {
	if o == nil {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.failed[host]; err != nil {
		return err
	}
	return o.failed[net.JoinHostPort(host, "443")]
}

// tunnel connects the browser with a host.
func (o *outlet) tunnel(w http.ResponseWriter, r *http.Request) {
	there, err := o.dial(r.Context(), "tcp", r.Host)
	if err != nil {
		o.fail(r.Host, err)
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	defer there.Close()
	here, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer here.Close()
	if _, err := io.WriteString(here, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
		return
	}
	go func() {
		defer there.Close()
		_, _ = io.Copy(there, buffered)
	}()
	_, _ = io.Copy(here, there)
}
