package artifact

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"muster/internal/addressfilter"
	"muster/internal/retryafter"
	"muster/sites/polite"
	"muster/tasks/limit"
	"muster/tasks/workqueue"
)

// FetcherConfig sets up a Fetcher.
type FetcherConfig struct {
	Dir       string                // where contents are kept; required
	Filter    *addressfilter.Filter // which addresses that are not public may be connected to. Defaults to none.
	Transport http.RoundTripper     // how they are fetched. Defaults to one without a proxy, with Filter, that gives up on hosts that do not answer.
	Robots    bool                  // obeys robots.txt. Defaults to false.
	Pacer     *limit.Pacer          // keeps the requests to a host apart and obeys Retry-After. Defaults to none.
	// Breaker stops the requests to a host that keeps failing: its items fail without a request until it is tried again.
	// Defaults to none.
	Breaker *limit.Breaker
	// Slots bound the requests to a host at a time. They are taken here for hosts that a redirect leads to; the item holds
	// the slot of its own host already. Defaults to none.
	Slots     *limit.KeyedLimiter
	MaxBytes  int64         // of a content. Defaults to 1 GiB.
	Stall     time.Duration // how long a download may receive nothing before it fails. Defaults to 30 s.
	UserAgent string        // Defaults to "muster/1.0".
	Logger    *slog.Logger  // Defaults to slog.Default().
}

// Fetcher downloads artifacts into a folder of contents: each is a file named
// by its SHA-256, as in ab/abcdef…, that is complete or does not exist. An item
// that has to wait for its host returns to the queue, so that no worker waits.
type Fetcher struct {
	cfg    FetcherConfig
	clock  polite.Clock // nil: none
	client *http.Client
}

// NewFetcher returns a Fetcher. It removes the parts that killed processes left
// in cfg.Dir.
func NewFetcher(cfg FetcherConfig) (*Fetcher, error) {
	if cfg.Dir == "" {
		return nil, errors.New("fetch artifacts: no folder to keep them in")
	}
	if !httpguts.ValidHeaderFieldValue(cfg.UserAgent) {
		return nil, fmt.Errorf("fetch artifacts: user agent %q cannot be sent", cfg.UserAgent)
	}
	if cfg.MaxBytes <= 0 {
		cfg.MaxBytes = 1 << 30
	}
	if cfg.Stall <= 0 {
		cfg.Stall = 30 * time.Second
	}
	if cfg.UserAgent == "" {
		cfg.UserAgent = "muster/1.0"
	}
	if cfg.Transport == nil {
		cfg.Transport = &http.Transport{
			DialContext:           cfg.Filter.Dial(&net.Dialer{Timeout: 5 * time.Second}),
			TLSHandshakeTimeout:   10 * time.Second,
			ResponseHeaderTimeout: 30 * time.Second,
			IdleConnTimeout:       30 * time.Second,
			MaxIdleConnsPerHost:   64,
			ForceAttemptHTTP2:     true,
		}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if err := removeStale(cfg.Dir); err != nil {
		return nil, fmt.Errorf("fetch artifacts: %w", err)
	}
	f := &Fetcher{cfg: cfg}
	if cfg.Pacer != nil {
		f.clock = &polite.SharedClock{Pacer: cfg.Pacer}
	}
	f.client = &http.Client{Transport: f.stack(), CheckRedirect: checkRedirect}
	return f, nil
}

const (
	robotsTimeout = 30 * time.Second // of fetching a robots.txt
	maxCrawlDelay = time.Minute      // the longest crawl delay that is obeyed
)

// stack returns the RoundTrippers that each request passes through.
func (f *Fetcher) stack() http.RoundTripper {
	cfg := polite.Config{Key: hostKey, Breaker: f.cfg.Breaker, Slots: f.cfg.Slots, Clock: f.clock, CrawlDelayMax: maxCrawlDelay, Logger: f.cfg.Logger}
	if f.cfg.Robots {
		cfg.Robots = &polite.Robots{Agent: f.cfg.UserAgent, Timeout: robotsTimeout}
	}
	return polite.New(f.cfg.Transport, cfg)
}

// hostKey returns the resource key of a URL's host. The request itself fails if
// the URL is wrong.
func hostKey(u *url.URL) string {
	key, _ := limit.ParseHostKey(u.String())
	return HostKey + key
}

func checkRedirect(r *http.Request, via []*http.Request) error {
	if len(via) >= 10 {
		return errors.New("more than 10 redirects")
	}
	return checkURL(r.URL)
}

func checkURL(u *url.URL) error {
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("%q is no http or https URL", u.Redacted())
	}
	return nil
}

// expected is what an artifact says of its content. A field that is not given is
// not checked.
type expected struct {
	Type   string `json:"type"`   // media type, like application/pdf
	Size   *int64 `json:"size"`   // bytes
	SHA256 string `json:"sha256"` // in hex
}

// Fetched is the result of a fetched artifact.
type Fetched struct {
	Path   string `json:"path"` // in the folder of contents
	SHA256 string `json:"sha256"`
	Size   int64  `json:"size"`
	Type   string `json:"type,omitempty"`
}

// Handle downloads the artifact of an item. It is a workqueue.Handler.
func (f *Fetcher) Handle(ctx context.Context, it workqueue.Leased) (workqueue.Outcome, error) {
	fields, err := object(it.Payload)
	if err != nil {
		return workqueue.Outcome{}, workqueue.Invalid(err)
	}
	var want expected
	if err := json.Unmarshal(it.Payload, &want); err != nil {
		return workqueue.Outcome{}, workqueue.Invalid(err)
	}
	u, err := url.Parse(urlOf(fields))
	if err != nil {
		return workqueue.Outcome{}, workqueue.Invalid(errors.New("its URL cannot be parsed"))
	}
	if err := checkURL(u); err != nil {
		return workqueue.Outcome{}, workqueue.Invalid(err)
	}
	got, err := f.fetch(polite.WithSlots(ctx, it.ResourceKeys), u, want)
	if errors.Is(err, polite.ErrDisallowed) {
		return workqueue.Skipped(polite.ErrDisallowed.Error()), nil
	}
	if err != nil {
		return workqueue.Outcome{}, err
	}
	result, err := json.Marshal(got)
	if err != nil {
		return workqueue.Outcome{}, err
	}
	return workqueue.Done().With(result), nil
}

func (f *Fetcher) fetch(ctx context.Context, u *url.URL, want expected) (Fetched, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return Fetched{}, workqueue.Permanent(err)
	}
	req.Header.Set("User-Agent", f.cfg.UserAgent)
	res, err := f.client.Do(req)
	if err != nil {
		return Fetched{}, f.requestError(ctx, err)
	}
	defer func() { _ = res.Body.Close() }()
	if err := f.statusError(ctx, res); err != nil {
		return Fetched{}, err
	}
	got := Fetched{}
	got.Type, _, _ = mime.ParseMediaType(res.Header.Get("Content-Type"))
	if want.Type != "" && !strings.EqualFold(got.Type, strings.TrimSpace(want.Type)) {
		return Fetched{}, workqueue.Permanent(fmt.Errorf("it is %q, not %q", got.Type, want.Type))
	}
	if res.ContentLength > f.cfg.MaxBytes {
		return Fetched{}, workqueue.Permanent(fmt.Errorf("it has %d bytes; %d are allowed", res.ContentLength, f.cfg.MaxBytes))
	}
	body := &stallReader{r: res.Body, after: f.cfg.Stall}
	body.timer = time.AfterFunc(body.after, func() { cancel(errStall) })
	defer body.timer.Stop()
	part, err := f.save(body, &got)
	if errors.Is(context.Cause(ctx), errStall) && err != nil {
		err = fmt.Errorf("download: %w %v", errStall, body.after)
	}
	if err != nil {
		return Fetched{}, err
	}
	// A wrong size or checksum is tried again: the transfer may be at fault.
	if want.Size != nil && got.Size != *want.Size {
		return Fetched{}, discard(part, fmt.Errorf("it has %d bytes, not %d", got.Size, *want.Size))
	}
	if want.SHA256 != "" && !strings.EqualFold(got.SHA256, strings.TrimSpace(want.SHA256)) {
		return Fetched{}, discard(part, fmt.Errorf("its SHA-256 is %s, not %.64s", got.SHA256, want.SHA256))
	}
	return got, f.keep(part, got)
}

// requestError returns the error of a request with when to try again.
func (f *Fetcher) requestError(ctx context.Context, err error) error {
	// A url.Error repeats the URL, which may hold secrets.
	if ue, ok := errors.AsType[*url.Error](err); ok {
		err = ue.Err
	}
	if wait, ok := errors.AsType[*polite.WaitError](err); ok {
		if wait.Key == "" {
			return workqueue.Postpone(wait.After, err)
		}
		return workqueue.NotNow(wait.Key, wait.After, err)
	}
	if open, ok := errors.AsType[*polite.OpenError](err); ok {
		// It is an attempt, as the request would be: an item of a dead host must end at some time.
		return workqueue.RetryAfter(open.After, err)
	}
	if refused, ok := errors.AsType[*addressfilter.Error](err); ok {
		return workqueue.Permanent(fmt.Errorf("not connected: %w", refused)) // in few words, as notes are short
	}
	if robots, ok := errors.AsType[*polite.RobotsError](err); ok && robots.Response != nil {
		d, ok := retryafter.Parse(robots.Response.Header.Get("Retry-After"), time.Now(), maxRetryAfter)
		if !ok && robots.Response.StatusCode == http.StatusTooManyRequests {
			d, ok = time.Minute, true // or each item of the host would fetch it again
		}
		if ok {
			return f.holdBack(ctx, robots.Request.URL, d, err)
		}
	}
	return err
}

// holdBack stops requests to the host of u until d has passed. It returns err as
// the error after which the item is tried again then.
func (f *Fetcher) holdBack(ctx context.Context, u *url.URL, d time.Duration, err error) error {
	key := hostKey(u)
	err = workqueue.RetryAfter(d, err)
	if f.clock != nil {
		if held := f.clock.Hold(ctx, key, d); held != nil {
			return errors.Join(err, held)
		}
	}
	return workqueue.HoldBack(key, d, err)
}

// statusError returns the error of an answer without a content, with when to try
// again.
func (f *Fetcher) statusError(ctx context.Context, res *http.Response) error {
	if res.StatusCode >= 200 && res.StatusCode < 300 {
		return nil
	}
	err := fmt.Errorf("the server answers %d %s", res.StatusCode, http.StatusText(res.StatusCode))
	switch res.StatusCode {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		if d, ok := retryafter.Parse(res.Header.Get("Retry-After"), time.Now(), maxRetryAfter); ok {
			return f.holdBack(ctx, res.Request.URL, d, err)
		}
		return err
	case http.StatusRequestTimeout, http.StatusTooEarly:
		return err
	}
	if res.StatusCode >= 500 {
		return err
	}
	return workqueue.Permanent(err)
}

// maxRetryAfter bounds the Retry-After of a server.
const maxRetryAfter = 15 * time.Minute
