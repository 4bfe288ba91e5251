package sink

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"muster/internal/addressfilter"
	"muster/internal/retryafter"
)

const (
	hookAtOnce  = 100              // records in one request
	hookTries   = 4                // of one request, before Put fails
	hookTimeout = 30 * time.Second // of one try
)

// webhook is a sink that posts batches of records to a URL. The body is
// {"site", "job", "records": [{"type", "key", "url", "change", "diff",
// "record"}]}. A batch that is not acknowledged with 2xx is posted again with the same Idempotency-Key. With a secret,
// Muster-Signature is t=UNIX,v1=HEX, the HMAC-SHA256 of "UNIX.body".
type webhook struct {
	url, name string
	secret    []byte
	client    *http.Client
	base      time.Duration // of the backoff between tries
}

func newWebhook(address string, o Options) *webhook {
	name := "webhook"
	if u, err := url.Parse(address); err == nil {
		name = u.Scheme + "://" + u.Host + u.Path // a query may contain a token
	}
	return &webhook{url: address, name: name, secret: []byte(o.Secret), base: 500 * time.Millisecond, client: &http.Client{
		Transport: o.Filter.WithURLs(address).Transport(),
		Timeout:   hookTimeout,
		// A redirect would send the records to another server.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// hookBody is what is posted.
type hookBody struct {
	Site    string       `json:"site"`
	Job     string       `json:"job"`
	Records []hookRecord `json:"records"`
}

type hookRecord struct {
	Type   string          `json:"type"`
	Key    string          `json:"key"`
	URL    string          `json:"url"`
	Change string          `json:"change"`
	Diff   json.RawMessage `json:"diff,omitempty"`
	Record json.RawMessage `json:"record"`
}

// Put implements Sink.
func (h *webhook) Put(ctx context.Context, records []Record) (took int, err error) {
	for len(records) > 0 {
		n := 1
		for n < min(len(records), hookAtOnce) && records[n].Site == records[0].Site && records[n].Job == records[0].Job {
			n++
		}
		body := hookBody{Site: records[0].Site, Job: records[0].Job}
		for _, r := range latest(records[:n]) {
			body.Records = append(body.Records, hookRecord{r.Type, r.Key, r.URL, r.Change, r.Diff, r.Data})
		}
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(body); err != nil {
			return took, fmt.Errorf("encode records for %s: %w", h.name, err)
		}
		if err := h.post(ctx, b.Bytes()); err != nil {
			return took, fmt.Errorf("post records to %s: %w", h.name, err)
		}
		took += n
		records = records[n:]
	}
	return took, nil
}

// Notify posts v as JSON to the URL of a webhook, signed if o has a secret.
// It blocks until it is delivered, or a few tries have failed.
func Notify(ctx context.Context, address string, o Options, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode a notification: %w", err)
	}
	h := newWebhook(address, o)
	defer h.Close()
	if err := h.post(ctx, body); err != nil {
		return fmt.Errorf("post to %s: %w", h.name, err)
	}
	return nil
}

// post tries to deliver the body, at most hookTries times.
func (h *webhook) post(ctx context.Context, body []byte) error {
	sum := sha256.Sum256(body)
	id := hex.EncodeToString(sum[:16])
	wait := h.base
	for try := 1; ; try++ {
		after, err := h.try(ctx, id, body)
		if err == nil {
			return nil
		}
		// A timeout has taken enough time already.
		hangs := errors.Is(err, context.DeadlineExceeded)
		if try == hookTries || hangs || errors.As(err, new(refused)) || addressfilter.Is(err) || ctx.Err() != nil {
			return err
		}
		t := time.NewTimer(min(max(wait, after), hookTimeout))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		}
		wait *= 2
	}
}

// refused is a status after which another try would fail, too.
type refused int

func (r refused) Error() string {
	return fmt.Sprintf("it answers %d %s", int(r), http.StatusText(int(r)))
}

func (h *webhook) try(ctx context.Context, id string, body []byte) (after time.Duration, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.url, bytes.NewReader(body))
	if err != nil {
		return 0, errors.New("the address is invalid")
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "muster")
	req.Header.Set("Idempotency-Key", id)
	if len(h.secret) > 0 {
		stamp := strconv.FormatInt(time.Now().Unix(), 10)
		req.Header.Set("Muster-Signature", "t="+stamp+",v1="+Sign(h.secret, stamp, body))
	}
	res, err := h.client.Do(req)
	if err != nil {
		var ue *url.Error
		if errors.As(err, &ue) {
			err = ue.Err // the URL may contain a token
		}
		return 0, err
	}
	defer res.Body.Close()
	_, _ = io.CopyN(io.Discard, res.Body, 64<<10) // so that the connection can be reused
	switch s := res.StatusCode; {
	case s >= 200 && s < 300:
		return 0, nil
	case s == http.StatusRequestTimeout, s == http.StatusTooManyRequests, s >= 500:
		after, _ = retryafter.Parse(res.Header.Get("Retry-After"), time.Now(), time.Hour)
		return after, fmt.Errorf("it answers %s", res.Status)
	default:
		return 0, refused(s)
	}
}

// Sign returns the v1 of a webhook's signature for a stamp and a body, for the receiver to check.
func Sign(secret []byte, stamp string, body []byte) string {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(stamp + "."))
	mac.Write(body)
	return hex.EncodeToString(mac.Sum(nil))
}

// Name implements Sink.
func (h *webhook) Name() string { return h.name }

// Close implements Sink.
func (h *webhook) Close() error {
	h.client.CloseIdleConnections()
	return nil
}
