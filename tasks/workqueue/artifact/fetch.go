package artifact

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"muster/tasks/workqueue"
)

// FetcherConfig sets up a Fetcher.
type FetcherConfig struct {
	Dir       string            // where contents are kept; required
	Transport http.RoundTripper // how they are fetched. Defaults to http.DefaultTransport.
	MaxBytes  int64             // of a content. Defaults to 1 GiB.
	UserAgent string            // Defaults to "muster".
}

// Fetcher downloads artifacts into a folder of contents: each is a file named
// by its SHA-256, as in ab/abcdef…, that is there whole or not at all.
type Fetcher struct {
	cfg    FetcherConfig
	client *http.Client
}

// NewFetcher returns a Fetcher.
func NewFetcher(cfg FetcherConfig) (*Fetcher, error) {
	if cfg.Dir == "" {
		return nil, errors.New("fetch artifacts: no folder to keep them in")
	}
	if cfg.MaxBytes <= 0 {
		cfg.MaxBytes = 1 << 30
	}
	if cfg.UserAgent == "" {
		cfg.UserAgent = "muster"
	}
	if cfg.Transport == nil {
		cfg.Transport = http.DefaultTransport
	}
	return &Fetcher{cfg: cfg, client: &http.Client{Transport: cfg.Transport, CheckRedirect: checkRedirect}}, nil
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

// expected is what an artifact says of its content. What it does not say is
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
	got, err := f.fetch(ctx, u, want)
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
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return Fetched{}, workqueue.Permanent(err)
	}
	req.Header.Set("User-Agent", f.cfg.UserAgent)
	res, err := f.client.Do(req)
	if err != nil {
		return Fetched{}, err
	}
	defer func() { _ = res.Body.Close() }()
	if err := statusError(res); err != nil {
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
	part, err := f.save(res.Body, &got)
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

// statusError says what an answer that is no content means for another try.
func statusError(res *http.Response) error {
	if res.StatusCode >= 200 && res.StatusCode < 300 {
		return nil
	}
	err := fmt.Errorf("the server answers %d %s", res.StatusCode, http.StatusText(res.StatusCode))
	switch res.StatusCode {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		if d, ok := retryAfter(res.Header.Get("Retry-After"), time.Now()); ok {
			return workqueue.RetryAfter(d, err)
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

// maxRetryAfter bounds what a server may ask for.
const maxRetryAfter = 15 * time.Minute

func retryAfter(value string, now time.Time) (time.Duration, bool) {
	if s, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64); err == nil && s >= 0 {
		return min(time.Duration(min(s, 86400))*time.Second, maxRetryAfter), true
	}
	if t, err := http.ParseTime(value); err == nil {
		return min(max(t.Sub(now), 0), maxRetryAfter), true
	}
	return 0, false
}

// save writes a body to a file beside the contents: keep names it, discard
// removes it.
func (f *Fetcher) save(body io.Reader, got *Fetched) (part string, err error) {
	dir := filepath.Join(f.cfg.Dir, "incoming")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("keep contents: %w", err)
	}
	file, err := os.CreateTemp(dir, "*.part")
	if err != nil {
		return "", fmt.Errorf("keep contents: %w", err)
	}
	defer func() {
		if closed := file.Close(); err == nil && closed != nil {
			err = fmt.Errorf("keep contents: %w", closed)
		}
		if err != nil {
			_ = os.Remove(file.Name()) // the error that matters is the first
		}
	}()
	sum := sha256.New()
	got.Size, err = io.Copy(io.MultiWriter(file, sum), io.LimitReader(body, f.cfg.MaxBytes+1))
	if err != nil {
		return "", fmt.Errorf("download: %w", err)
	}
	if got.Size > f.cfg.MaxBytes {
		return "", workqueue.Permanent(fmt.Errorf("it has more than the %d bytes that are allowed", f.cfg.MaxBytes))
	}
	if err := file.Sync(); err != nil {
		return "", fmt.Errorf("keep contents: %w", err)
	}
	got.SHA256 = hex.EncodeToString(sum.Sum(nil))
	got.Path = filepath.Join(got.SHA256[:2], got.SHA256)
	return file.Name(), nil
}

// keep gives a saved content its place, in one step.
func (f *Fetcher) keep(part string, got Fetched) error {
	place := filepath.Join(f.cfg.Dir, got.Path)
	if err := os.MkdirAll(filepath.Dir(place), 0o755); err != nil {
		return discard(part, fmt.Errorf("keep contents: %w", err))
	}
	if err := os.Rename(part, place); err != nil {
		return discard(part, fmt.Errorf("keep contents: %w", err))
	}
	return nil
}

func discard(part string, err error) error { return errors.Join(err, os.Remove(part)) }
