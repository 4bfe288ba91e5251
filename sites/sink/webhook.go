package sink

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"time"

	"muster/internal/webhook"
	"muster/sites/internal/lines"
)

const (
	hookAtOnce  = 100              // records in one request
	hookTries   = 4                // attempts per request before Put fails
	hookTimeout = 30 * time.Second // of one attempt
)

// poster is a sink that posts batches of records to a URL as a webhook; see package webhook. The body is {"site", "job",
// "records": [{"type", "key", "url", "change", "diff", "record"}]}. A batch without a 2xx response is posted again with the same
// webhook-id. With a secret it is signed.
type poster struct {
	url, name string
	secrets   []string
	sender    *webhook.Sender
	base      time.Duration // of the backoff between attempts
}

// newPoster returns an error if the secret is invalid.
func newPoster(address string, o Options) (*poster, error) {
	h := &poster{url: address, name: "webhook", base: 500 * time.Millisecond}
	if u, err := url.Parse(address); err == nil {
		h.name = u.Scheme + "://" + u.Host + u.Path // a query may contain a token
	}
	if o.Secret != "" {
		if err := webhook.CheckSecret(o.Secret); err != nil {
			return nil, fmt.Errorf("sign requests to %s: %w", h.name, err)
		}
		h.secrets = []string{o.Secret}
	}
	h.sender = webhook.NewSender(o.Filter.WithURLs(address), hookTimeout)
	return h, nil
}

// hookBody is the body of a request.
type hookBody struct {
	Site    string   `json:"site"`
	Job     string   `json:"job"`
	Records []Record `json:"records"`
}

// Put implements Sink.
func (h *poster) Put(ctx context.Context, records []Record) (took int, err error) {
	for len(records) > 0 {
		n := 1
		for n < min(len(records), hookAtOnce) && records[n].Site == records[0].Site && records[n].Job == records[0].Job {
			n++
		}
		data, err := lines.JSON(hookBody{records[0].Site, records[0].Job, latest(records[:n])})
		if err != nil {
			return took, fmt.Errorf("encode records for %s: %w", h.name, err)
		}
		if err := h.post(ctx, data); err != nil {
			return took, fmt.Errorf("post records to %s: %w", h.name, err)
		}
		took += n
		records = records[n:]
	}
	return took, nil
}

// post delivers the body with at most hookTries attempts.
func (h *poster) post(ctx context.Context, body []byte) error {
	sum := sha256.Sum256(body)
	r := webhook.Request{URL: h.url, ID: hex.EncodeToString(sum[:16]), Body: body, Secrets: h.secrets}
	wait := h.base
	for try := 1; ; try++ {
		a := h.sender.Send(ctx, r)
		if a.Outcome == webhook.Delivered {
			return nil
		}
		again := a.Outcome == webhook.Failed || a.Outcome == webhook.Unreachable && !a.TimedOut // a timeout is not retried
		if try == hookTries || !again || ctx.Err() != nil {
			return a.Err
		}
		t := time.NewTimer(min(max(wait, a.RetryAfter), hookTimeout))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		}
		wait *= 2
	}
}

// Close implements Sink.
func (h *poster) Close() error {
	h.sender.Close()
	return nil
}
