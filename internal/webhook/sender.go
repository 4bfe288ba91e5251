package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"syscall"
	"time"

	"muster/internal/addressfilter"
	"muster/internal/clip"
	"muster/internal/retryafter"
)

// Outcome is the classification of a response.
type Outcome string

// The outcomes of a request.
const (
	Delivered   Outcome = "delivered"   // 2xx
	Gone        Outcome = "gone"        // 410: the receiver has unsubscribed
	Refused     Outcome = "refused"     // a retry would fail the same way: a redirect, most 4xx, a forbidden address
	Failed      Outcome = "failed"      // 408, 425, 429 or 5xx: retry
	Unreachable Outcome = "unreachable" // no response: retry
)

// Outcomes lists all outcomes.
var Outcomes = []Outcome{Delivered, Gone, Refused, Failed, Unreachable}

const (
	maxHeader   = 64 << 10
	maxBody     = 16 << 10    // maximum number of bytes to read of a response body
	bodyTimeout = time.Second // timeout for reading the body
	maxShown    = 200         // maximum length of a body in an error
	maxRest     = 24 * time.Hour
)

// Request is a webhook to send.
type Request struct {
	URL     string
	ID      string // identical for all attempts
	Body    []byte // JSON, unless Text is set
	Text    bool   // Body is plain text
	Secrets []string
}

// Result is the result of a request.
type Result struct {
	Outcome    Outcome
	Status     int           // 0 without a response
	RetryAfter time.Duration // Retry-After of the response, at most a day; 0 if absent
	TimedOut   bool          // the request timed out
	Err        error         // error without the URL; nil if delivered
}

// Sender sends webhooks. It is safe for concurrent use. The caller must close it.
type Sender struct {
	client  *http.Client
	timeout time.Duration
}

// NewSender returns a Sender with an address filter and a response timeout. It uses no proxy and follows no redirects, which would
// send the body to another server.
func NewSender(filter *addressfilter.Filter, timeout time.Duration) *Sender {
	t := filter.Transport()
	t.MaxIdleConnsPerHost = 16
	t.MaxResponseHeaderBytes = maxHeader
	t.DisableCompression = true
	return &Sender{timeout: timeout, client: &http.Client{
		Transport:     t,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Close closes idle connections.
func (s *Sender) Close() { s.client.CloseIdleConnections() }

// Send posts a request once and waits for the response, for at most the timeout of the Sender. The status decides the outcome; at
// most a few kilobytes of the body are read, for at most a second.
func (s *Sender) Send(ctx context.Context, r Request) Result {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.URL, bytes.NewReader(r.Body))
	if err != nil {
		return Result{Outcome: Refused, Err: errors.New("the URL is invalid")}
	}
	req.Header.Set("Content-Type", "application/json")
	if r.Text {
		req.Header.Set("Content-Type", "text/plain; charset=utf-8")
	}
	req.Header.Set("User-Agent", "muster")
	if err := Sign(req.Header, r.ID, time.Now(), r.Body, r.Secrets...); err != nil {
		return Result{Outcome: Refused, Err: err}
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return failure(err)
	}
	slow := time.AfterFunc(bodyTimeout, cancel)
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxBody)) // allows reuse of the connection
	slow.Stop()
	_ = resp.Body.Close()
	return classify(resp, text)
}

// classify returns the result for a response.
func classify(resp *http.Response, text []byte) Result {
	a := Result{Status: resp.StatusCode}
	a.RetryAfter, _ = retryafter.Parse(resp.Header.Get("Retry-After"), time.Now(), maxRest)
	switch s := resp.StatusCode; {
	case s >= 200 && s < 300:
		return Result{Outcome: Delivered, Status: s}
	case s == http.StatusGone:
		a.Outcome = Gone
	case s == http.StatusRequestTimeout, s == http.StatusTooEarly, s == http.StatusTooManyRequests, s >= 500:
		a.Outcome = Failed
	default:
		a.Outcome = Refused
	}
	a.Err = fmt.Errorf("unexpected status %d %s", a.Status, http.StatusText(a.Status))
	switch shown := clip.Clean(string(text[:min(len(text), 4*maxShown)]), maxShown); {
	case a.Status >= 300 && a.Status < 400:
		a.Err = fmt.Errorf("%w; redirects are not followed", a.Err)
	case shown != "":
		a.Err = fmt.Errorf("%w: %s", a.Err, shown)
	}
	return a
}

// failure returns the result for a request error.
func failure(err error) Result {
	var outer *url.Error
	if errors.As(err, &outer) {
		err = outer.Err // the URL may contain a token
	}
	if addressfilter.Is(err) {
		return Result{Outcome: Refused, Err: err}
	}
	var timeout interface{ Timeout() bool }
	a := Result{Outcome: Unreachable}
	switch {
	case errors.Is(err, context.Canceled):
	case errors.Is(err, syscall.ECONNREFUSED):
		err = errors.New("connection refused")
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		a.TimedOut, err = true, errors.New("timeout waiting for a response")
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET):
		err = errors.New("connection closed without a response")
	}
	a.Err = err
	return a
}
