package polite

import (
	"context"
	"errors"
	"net/http"

	"muster/internal/addressfilter"
	"muster/internal/limit"
)

// breaker rejects requests while requests with the same key keep failing.
type breaker struct {
	next http.RoundTripper
	cfg  Config
}

// RoundTrip implements http.RoundTripper.
func (b *breaker) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, key := req.Context(), b.cfg.Key(req.URL)
	permit, ok, wait, err := b.cfg.Breaker.Allow(ctx, key)
	switch {
	case err != nil:
		return nil, err
	case !ok && permit.TrialsRunning():
		return nil, &WaitError{Key: key, After: wait, Err: errors.New("a trial request to the host is in progress")}
	case !ok:
		return nil, &OpenError{Key: key, After: wait}
	}
	res, err := b.next.RoundTrip(req)
	if rerr := report(ctx, permit, res, err); rerr != nil {
		b.cfg.Logger.WarnContext(ctx, "cannot report the result of a request to the circuit breaker", "err", rerr)
	}
	return res, err
}

// report reports the result of a request to a circuit breaker.
func report(ctx context.Context, permit limit.Permit, res *http.Response, err error) error {
	ended := ctx.Err() != nil
	ctx = context.WithoutCancel(ctx) // a trial must always end
	switch {
	case ended, err != nil && !isOfHost(err), err == nil && res.StatusCode == http.StatusTooManyRequests:
		return permit.Cancel(ctx)
	case errors.As(err, new(*RobotsError)):
		return permit.Failure(ctx, "robots.txt")
	case err != nil:
		return permit.Failure(ctx, "connection")
	case res.StatusCode >= http.StatusInternalServerError:
		return permit.Failure(ctx, res.Status)
	}
	return permit.Success(ctx)
}

// isOfHost reports whether the host may have caused the error of a request, because the request was sent.
func isOfHost(err error) bool {
	return !errors.Is(err, ErrDisallowed) && !addressfilter.Is(err) && !errors.As(err, new(*WaitError)) && !errors.As(err, new(unsentError))
}
