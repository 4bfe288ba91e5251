package artifact

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	"muster/internal/retryafter"
	"muster/tasks/workqueue"
)

// FetcherConfig sets up a Fetcher.
type FetcherConfig struct {
	Dir       string                // where contents are kept; required
	Filter    *addressfilter.Filter // which addresses that are not public may be connected to. Defaults to none.
	Transport http.RoundTripper     // how they are fetched. Defaults to one without a proxy, with Filter, that gives up on hosts that do not answer.
	Manners   Manners               // towards the hosts. Defaults to none.
	MaxBytes  int64                 // of a content. Defaults to 1 GiB.
	Stall     time.Duration         // gives up a content of which nothing more came for so long. Defaults to 30 s.
	UserAgent string                // Defaults to "muster/1.0".
	Logger    *slog.Logger          // Defaults to slog.Default().
}

// Fetcher downloads artifacts into a folder of contents: each is a file named
// by its SHA-256, as in ab/abcdef…, that is there whole or not at all.
type Fetcher struct {
	cfg    FetcherConfig
	client *http.Client
}

// stalePart is the age at which a part of a content is nobody's any more:
// whoever wrote it was killed.
const stalePart = time.Hour

// NewFetcher returns a Fetcher. It removes what killed ones left behind in
// cfg.Dir.
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
	parts, err := filepath.Glob(filepath.Join(cfg.Dir, "incoming", "*.part"))
	if err != nil {
		return nil, fmt.Errorf("fetch artifacts: %w", err)
	}
	for _, part := range parts {
		if info, err := os.Stat(part); err == nil && time.Since(info.ModTime()) > stalePart {
			_ = os.Remove(part) // somebody else may have done so
		}
	}
	return &Fetcher{cfg: cfg, client: &http.Client{
		Transport: &polite{next: cfg.Transport, m: cfg.Manners, log: cfg.Logger}, CheckRedirect: checkRedirect,
	}}, nil
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
	got, err := f.fetch(withHost(ctx, it), u, want)
	if errors.Is(err, errRobots) {
		return workqueue.Skipped(errRobots.Error()), nil
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
		// A url.Error repeats the URL, with what secrets it may hold.
		if ue := (*url.Error)(nil); errors.As(err, &ue) {
			err = ue.Err
		}
		if refused := (*addressfilter.Error)(nil); errors.As(err, &refused) {
			err = workqueue.Permanent(fmt.Errorf("not connected: %w", refused)) // in few words, as notes are short
		}
		return Fetched{}, err
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

// errStall says that a host stopped in the middle of a content.
var errStall = errors.New("nothing more came for")

// stallReader puts a timer off with each read that brings something.
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

// statusError says what an answer that is no content means for another try.
func (f *Fetcher) statusError(ctx context.Context, res *http.Response) error {
	if res.StatusCode >= 200 && res.StatusCode < 300 {
		return nil
	}
	err := fmt.Errorf("the server answers %d %s", res.StatusCode, http.StatusText(res.StatusCode))
	switch res.StatusCode {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		if d, ok := retryafter.Parse(res.Header.Get("Retry-After"), time.Now(), maxRetryAfter); ok {
			return f.cfg.Manners.heed(ctx, res.Request.URL, d, workqueue.RetryAfter(d, err))
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
