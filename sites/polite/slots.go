package polite

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"
)

// slotPatience is the maximum wait of a request for a slot.
const slotPatience = 5 * time.Second

type heldSlots struct{}

// WithSlots returns a context whose requests take no slots for the keys, because the caller already holds them.
func WithSlots(ctx context.Context, keys []string) context.Context {
	return context.WithValue(ctx, heldSlots{}, keys)
}

// slots limits the concurrent requests per key.
type slots struct {
	next http.RoundTripper
	cfg  Config
}

// RoundTrip implements http.RoundTripper.
func (s *slots) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, key := req.Context(), s.cfg.Key(req.URL)
	if held, _ := ctx.Value(heldSlots{}).([]string); slices.Contains(held, key) {
		return s.next.RoundTrip(req)
	}
	slot, err := s.cfg.Slots.TryAcquireFor(ctx, key, slotPatience)
	if err != nil {
		return nil, unsentError{err}
	}
	if slot == nil {
		return nil, &WaitError{After: slotPatience, Err: fmt.Errorf("all slots of %s are in use", key)}
	}
	release := func() {
		if err := slot.Release(ctx); err != nil {
			s.cfg.Logger.WarnContext(ctx, "cannot release a slot; it will expire", "key", key, "err", err)
		}
	}
	res, err := s.next.RoundTrip(req)
	if err != nil {
		release()
		return nil, err
	}
	res.Body = &slotBody{res.Body, release}
	return res, nil
}

// slotBody releases a slot when the body is closed.
type slotBody struct {
	io.ReadCloser
	release func()
}

// Close implements io.Closer.
func (b *slotBody) Close() error {
	defer b.release() // idempotent
	return b.ReadCloser.Close()
}
