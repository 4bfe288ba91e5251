package artifact

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"muster/internal/addressfilter"
	"muster/internal/atomicfile"
	"muster/internal/contentencoding"
	"muster/internal/limit"
	"muster/internal/retryafter"
	"muster/sites/polite"
	"muster/tasks/workqueue"
)

// FetcherConfig configures a Fetcher.
type FetcherConfig struct {
	Dir       string                // content directory; required
	Filter    *addressfilter.Filter // exceptions for addresses that are not public. Default: none.
	Transport http.RoundTripper     // Default: a transport with Filter and timeouts, without a proxy.
	Robots    bool                  // respect robots.txt
	Pacer     *limit.Pacer          // enforces the interval between requests to a host and Retry-After. Optional.
	// Breaker stops the requests to a failing host: its items fail without a request until the breaker is half-open.
	// Optional.
	Breaker *limit.Breaker
	// Slots limits the concurrent requests to a host, also to hosts of redirects, and Resolvers the concurrent downloads by a
	// resolver. Optional.
	Slots, Resolvers *limit.KeyedLimiter

	MaxBytes  int64         // maximum size of a file. Default: 1 GiB.
	Stall     time.Duration // timeout for a download without data. Default: 30 s.
	UserAgent string        // Default: "muster/1.0".
	Logger    *slog.Logger  // Default: slog.Default().
}

// Fetcher downloads artifacts to a content directory. Each file is named after its SHA-256, such as ab/abcdef…, and is complete
// or does not exist. An item that must wait for its host returns to the queue and occupies no worker.
type Fetcher struct {
	cfg    FetcherConfig
	clock  polite.Clock // nil without a Pacer
	client *http.Client
}

// NewFetcher returns a Fetcher. It removes abandoned partial files from cfg.Dir.
func NewFetcher(cfg FetcherConfig) (*Fetcher, error) {
	if cfg.Dir == "" {
		return nil, errors.New("fetch artifacts: no content directory")
	}
	if !httpguts.ValidHeaderFieldValue(cfg.UserAgent) {
		return nil, fmt.Errorf("fetch artifacts: invalid user agent %q", cfg.UserAgent)
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
	robotsTimeout = 30 * time.Second // timeout of a robots.txt request
	maxCrawlDelay = time.Minute      // maximum crawl delay
)

// stack returns the chain of RoundTrippers for requests.
func (f *Fetcher) stack() http.RoundTripper {
	cfg := polite.Config{Key: hostKey, Breaker: f.cfg.Breaker, Slots: f.cfg.Slots, Clock: f.clock, CrawlDelayMax: maxCrawlDelay, Logger: f.cfg.Logger}
	if f.cfg.Robots {
		cfg.Robots = &polite.Robots{Agent: f.cfg.UserAgent, Timeout: robotsTimeout}
	}
	return polite.New(contentencoding.Transport(f.cfg.Transport), cfg)
}

// hostKey returns the resource key of the host of a URL. The request of an invalid URL fails.
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
		return fmt.Errorf("%q is not an http or https URL", u.Redacted())
	}
	return nil
}

// expected is the expected content of an artifact. Missing fields are not checked.
type expected struct {
	Type   string `json:"type"`   // media type, like application/pdf
	Size   *int64 `json:"size"`   // bytes
	SHA256 string `json:"sha256"` // hex
}

// Fetched is the result of a fetched artifact.
type Fetched struct {
	Path   string `json:"path"` // relative to the content directory
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
		return workqueue.Outcome{}, workqueue.Invalid(errors.New("invalid URL"))
	}
	if err := checkURL(u); err != nil {
		return workqueue.Outcome{}, workqueue.Invalid(err)
	}
	release, err := f.acquire(ctx, it.ResourceKeys)
	if err != nil {
		return workqueue.Outcome{}, err
	}
	defer release()
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

// busyFor is how long no item of a resource is fetched whose slots are all in use.
const busyFor = 50 * time.Millisecond

// acquire takes a slot of each resource of an item. If one has none, the error returns the item to the queue.
func (f *Fetcher) acquire(ctx context.Context, keys []string) (release func(), err error) {
	var held []*limit.Slot
	release = func() {
		for _, slot := range held {
			if err := slot.Release(ctx); err != nil {
				f.cfg.Logger.WarnContext(ctx, "cannot release a slot; it will expire", "key", slot.Key(), "err", err)
			}
		}
	}
	for _, key := range keys {
		slots := f.cfg.Slots
		if strings.HasPrefix(key, ResolverKey) {
			slots = f.cfg.Resolvers
		}
		if slots == nil {
			continue
		}
		slot, err := slots.TryAcquire(ctx, key)
		if err == nil && slot == nil {
			err = workqueue.NotNow(key, busyFor, fmt.Errorf("all slots of %s are in use", key))
		}
		if err != nil {
			release()
			return nil, err
		}
		held = append(held, slot)
	}
	return release, nil
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
		return Fetched{}, workqueue.Permanent(fmt.Errorf("the content type is %q, not %q", got.Type, want.Type))
	}
	if res.ContentLength > f.cfg.MaxBytes {
		return Fetched{}, workqueue.Permanent(fmt.Errorf("the content has %d bytes; the limit is %d", res.ContentLength, f.cfg.MaxBytes))
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
	// A wrong size or checksum is retried, because the transfer may have failed.
	if want.Size != nil && got.Size != *want.Size {
		return Fetched{}, discard(part, fmt.Errorf("the content has %d bytes, not %d", got.Size, *want.Size))
	}
	if want.SHA256 != "" && !strings.EqualFold(got.SHA256, strings.TrimSpace(want.SHA256)) {
		return Fetched{}, discard(part, fmt.Errorf("the SHA-256 is %s, not %.64s", got.SHA256, want.SHA256))
	}
	return got, f.keep(part, got)
}

// requestError converts the error of a request to an error with a retry time.
func (f *Fetcher) requestError(ctx context.Context, err error) error {
	// A url.Error repeats the URL, which may contain secrets.
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
		// This counts as an attempt, so that items of a dead host fail eventually.
		return workqueue.RetryAfter(open.After, err)
	}
	if refused, ok := errors.AsType[*addressfilter.Error](err); ok {
		return workqueue.Permanent(fmt.Errorf("not connected: %w", refused)) // short, because notes are limited
	}
	if robots, ok := errors.AsType[*polite.RobotsError](err); ok && robots.Response != nil {
		d, ok := retryafter.Parse(robots.Response.Header.Get("Retry-After"), time.Now(), maxRetryAfter)
		if !ok && robots.Response.StatusCode == http.StatusTooManyRequests {
			d, ok = time.Minute, true // otherwise each item of the host would request it again
		}
		if ok {
			return f.holdBack(ctx, robots.Request.URL, d, err)
		}
	}
	return err
}

// holdBack stops requests to the host of u for the duration d. It returns err as an error after which the item is retried then.
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

// statusError returns an error with a retry time for an unsuccessful response.
func (f *Fetcher) statusError(ctx context.Context, res *http.Response) error {
	if res.StatusCode >= 200 && res.StatusCode < 300 {
		return nil
	}
	err := fmt.Errorf("unexpected status %d %s", res.StatusCode, http.StatusText(res.StatusCode))
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

// maxRetryAfter is the maximum respected Retry-After.
const maxRetryAfter = 15 * time.Minute

// stalePart is the age after which a partial file is abandoned, because its process was killed.
const stalePart = time.Hour

// removeStale removes abandoned partial files from dir.
func removeStale(dir string) error {
	parts, err := filepath.Glob(filepath.Join(dir, "incoming", "*.part"))
	if err != nil {
		return err
	}
	for _, part := range parts {
		if info, err := os.Stat(part); err == nil && time.Since(info.ModTime()) > stalePart {
			_ = os.Remove(part) // another process may have removed it
		}
	}
	return nil
}

// errStall is the error of a download whose host stopped sending data.
var errStall = errors.New("no data received for")

// stallReader resets a timer with each read that returns data.
type stallReader struct {
	r     io.Reader
	timer *time.Timer
	after time.Duration
}

func (s *stallReader) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if n > 0 {
		s.timer.Reset(s.after)
	}
	return n, err
}

// save writes a body to a partial file, which keep or discard then moves or removes.
func (f *Fetcher) save(body io.Reader, got *Fetched) (part string, err error) {
	dir := filepath.Join(f.cfg.Dir, "incoming")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("store content: %w", err)
	}
	file, err := os.CreateTemp(dir, "*.part")
	if err != nil {
		return "", fmt.Errorf("store content: %w", err)
	}
	defer func() {
		if closed := file.Close(); err == nil && closed != nil {
			err = fmt.Errorf("store content: %w", closed)
		}
		if err != nil {
			_ = os.Remove(file.Name()) // err is the relevant error
		}
	}()
	sum := sha256.New()
	got.Size, err = io.Copy(io.MultiWriter(file, sum), io.LimitReader(body, f.cfg.MaxBytes+1))
	if _, ours := errors.AsType[*fs.PathError](err); ours { // an error of the file; the host returns no PathError
		return "", fmt.Errorf("store content: %w", err)
	}
	if err != nil {
		return "", fmt.Errorf("download: %w", err)
	}
	if got.Size > f.cfg.MaxBytes {
		return "", workqueue.Permanent(fmt.Errorf("the content is larger than the limit of %d bytes", f.cfg.MaxBytes))
	}
	if err := file.Sync(); err != nil {
		return "", fmt.Errorf("store content: %w", err)
	}
	got.SHA256 = hex.EncodeToString(sum.Sum(nil))
	got.Path = filepath.Join(got.SHA256[:2], got.SHA256)
	return file.Name(), nil
}

// keep atomically moves a partial file to its final path.
func (f *Fetcher) keep(part string, got Fetched) error {
	place := filepath.Join(f.cfg.Dir, got.Path)
	if err := os.MkdirAll(filepath.Dir(place), 0o755); err != nil {
		return discard(part, fmt.Errorf("store content: %w", err))
	}
	if err := os.Rename(part, place); err != nil {
		return discard(part, fmt.Errorf("store content: %w", err))
	}
	// The directory may be new.
	if err := errors.Join(atomicfile.SyncDir(filepath.Dir(place)), atomicfile.SyncDir(f.cfg.Dir)); err != nil {
		return fmt.Errorf("store content: %w", err)
	}
	return nil
}

func discard(part string, err error) error { return errors.Join(err, os.Remove(part)) }
