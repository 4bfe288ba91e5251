package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"
	"unicode"

	"muster/internal/addressfilter"
	"muster/internal/retryafter"
)

// Outcome is what an answer means.
type Outcome string

// The outcomes of a request.
const (
	Delivered   Outcome = "delivered"   // 2xx
	Gone        Outcome = "gone"        // 410: the receiver wants no more webhooks
	Refused     Outcome = "refused"     // the same request would be answered the same: a redirect, most 4xx, a forbidden address
	Failed      Outcome = "failed"      // 408, 425, 429 or 5xx: try again
	Unreachable Outcome = "unreachable" // no answer: try again
)

// Outcomes are all outcomes.
var Outcomes = []Outcome{Delivered, Gone, Refused, Failed, Unreachable}

const (
	maxHeader  = 64 << 10
	maxAnswer  = 16 << 10    // bytes of an answer that are read
	answerTime = time.Second // for reading them
	maxShown   = 200         // characters of an answer in an error
	maxRest    = 24 * time.Hour
)

// Request is a webhook to send.
type Request struct {
	URL     string
	ID      string // the same each time it is sent
	Body    []byte // JSON
	Secrets []string
}

// Answer is what became of a request.
type Answer struct {
	Outcome    Outcome
	Status     int           // 0 without an answer
	RetryAfter time.Duration // what the receiver asked for, at most a day; 0 if it did not
	TimedOut   bool          // there was no answer in time
	Err        error         // why it is not delivered; nil if it is. It does not have the URL.
}

// Sender sends webhooks. It may be used by many goroutines at once. Close it.
type Sender struct {
	client  *http.Client
	timeout time.Duration
}

// NewSender returns a Sender that connects to the addresses that a filter allows, and gives a receiver a time for its
// answer. It uses no proxy and follows no redirect: that would send the body elsewhere.
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

// Send posts a request once. It blocks until there is an answer, or the time of the Sender or ctx has ended. The head of an
// answer decides; of its body no more than a few kilobytes are read, for no more than a second.
func (s *Sender) Send(ctx context.Context, r Request) Answer {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.URL, bytes.NewReader(r.Body))
	if err != nil {
		return Answer{Outcome: Refused, Err: errors.New("the URL is invalid")}
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "muster")
	if err := Sign(req.Header, r.ID, time.Now(), r.Body, r.Secrets...); err != nil {
		return Answer{Outcome: Refused, Err: err}
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return unanswered(err)
	}
	slow := time.AfterFunc(answerTime, cancel)
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer)) // so that the connection can be used again
	slow.Stop()
	_ = resp.Body.Close()
	return classify(resp, text)
}

// classify returns what an answer means.
func classify(resp *http.Response, text []byte) Answer {
	a := Answer{Status: resp.StatusCode}
	a.RetryAfter, _ = retryafter.Parse(resp.Header.Get("Retry-After"), time.Now(), maxRest)
	switch s := resp.StatusCode; {
	case s >= 200 && s < 300:
		return Answer{Outcome: Delivered, Status: s}
	case s == http.StatusGone:
		a.Outcome = Gone
	case s == http.StatusRequestTimeout, s == http.StatusTooEarly, s == http.StatusTooManyRequests, s >= 500:
		a.Outcome = Failed
	default:
		a.Outcome = Refused
	}
	a.Err = fmt.Errorf("it answers %d %s", a.Status, http.StatusText(a.Status))
	switch shown := beginning(text); {
	case a.Status >= 300 && a.Status < 400:
		a.Err = fmt.Errorf("%w; redirects are not followed", a.Err)
	case shown != "":
		a.Err = fmt.Errorf("%w: %s", a.Err, shown)
	}
	return a
}

// beginning returns the beginning of an answer in one line, if it is text.
func beginning(answer []byte) string {
	text := strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return ' '
		}
		if !unicode.IsPrint(r) || r == unicode.ReplacementChar {
			return -1
		}
		return r
	}, string(answer[:min(len(answer), 4*maxShown)]))
	text = strings.Join(strings.Fields(text), " ")
	if runes := []rune(text); len(runes) > maxShown {
		text = string(runes[:maxShown]) + "…"
	}
	return text
}

// unanswered returns what an error of a request means.
func unanswered(err error) Answer {
	var outer *url.Error
	if errors.As(err, &outer) {
		err = outer.Err // the URL may hold a token
	}
	if addressfilter.Is(err) {
		return Answer{Outcome: Refused, Err: err}
	}
	var timeout interface{ Timeout() bool }
	a := Answer{Outcome: Unreachable}
	switch {
	case errors.Is(err, context.Canceled):
	case errors.Is(err, syscall.ECONNREFUSED):
		err = errors.New("connection refused")
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		a.TimedOut, err = true, errors.New("no answer in time")
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET):
		err = errors.New("connection closed without an answer")
	}
	a.Err = err
	return a
}
