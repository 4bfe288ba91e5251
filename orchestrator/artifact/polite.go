package artifact

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"time"

	"muster/internal/addressfilter"
	"muster/tasks/limit"
	"muster/tasks/workqueue"
)

// Manners are how a Fetcher treats the hosts it asks. They hold for each
// request, those that redirects lead to as well. Nil parts do not apply.
//
// What has to wait for its turn goes back to the queue, and no worker with it:
// see workqueue.NotNow.
type Manners struct {
	// Robots says whether a URL may be fetched, and how far apart its host
	// wants requests to be. Its error is an error of the host.
	Robots func(ctx context.Context, u *url.URL) (Permission, error)
	// Pacer keeps the requests to a host apart and obeys Retry-After.
	Pacer *limit.Pacer
	// Breaker stops the requests to a host that keeps failing: its items fail
	// without a request until it is tried again.
	Breaker *limit.Breaker
	// Slots bound the requests to a host at a time. They are taken here for
	// hosts that a redirect leads to; the item holds its own host's already.
	Slots *limit.KeyedLimiter
}

// Permission is what a host allows.
type Permission struct {
	Allowed    bool
	CrawlDelay time.Duration // between requests; 0: not said
}

const (
	// patience is how long a worker waits for its turn, rather than give the
	// item back.
	patience = 250 * time.Millisecond
	// slotPatience is the same for the slot of a host that a redirect leads to.
	slotPatience = 5 * time.Second
	// maxCrawlDelay bounds what a host may ask for.
	maxCrawlDelay = time.Minute
)

// errRobots says that the host does not want the content to be fetched.
var errRobots = errors.New("robots.txt forbids it")

// hostOf is the resource key of a URL's host. What is wrong with a URL the
// request itself will say.
func hostOf(u *url.URL) string {
	key, _ := limit.ParseHostKey(u.String())
	return HostKey + key
}

type itemHost struct{}

// withHost notes the resource keys whose slots an item holds.
func withHost(ctx context.Context, it workqueue.Leased) context.Context {
	return context.WithValue(ctx, itemHost{}, it.ResourceKeys)
}

// heed lets nobody ask a host before d has passed, as it wants.
func (m Manners) heed(ctx context.Context, u *url.URL, d time.Duration, err error) error {
	key := hostOf(u)
	if m.Pacer != nil {
		if held := m.Pacer.NotBefore(ctx, key, time.Now().Add(d)); held != nil {
			return errors.Join(err, held)
		}
	}
	return workqueue.HoldBack(key, d, err)
}

// polite is a transport with manners.
type polite struct {
	next http.RoundTripper
	m    Manners
	log  *slog.Logger
}

// RoundTrip implements http.RoundTripper. Each redirect passes here again.
func (p *polite) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, key := req.Context(), hostOf(req.URL)
	var permit limit.Permit
	if p.m.Breaker != nil {
		allowed, ok, wait, err := p.m.Breaker.Allow(ctx, key)
		switch {
		case err != nil:
			return nil, err
		case !ok && allowed.Tried():
			return nil, workqueue.NotNow(key, wait, errors.New("others try whether the host works again"))
		case !ok:
			// It counts as an attempt, as the request would: an item of a dead
			// host must end at some time.
			return nil, workqueue.RetryAfter(wait, errors.New("the host keeps failing; it is left alone for now"))
		}
		permit = allowed
	}
	res, block, err := p.send(req, key)
	p.report(ctx, permit, block)
	return res, err
}

// report tells the breaker how a request ended.
func (p *polite) report(ctx context.Context, permit limit.Permit, block string) {
	var err error
	told := context.WithoutCancel(ctx)
	switch {
	case block == noAnswer || ctx.Err() != nil:
		err = permit.Cancel(told)
	case block == "":
		err = permit.Success(told)
	default:
		err = permit.Failure(told, block)
	}
	if err != nil {
		p.log.Warn("cannot tell the breaker how a request ended", "err", err)
	}
}

// noAnswer is the block of a request that says nothing about its host.
const noAnswer = "-"

// send makes the request when its host may be asked. It also says what is
// wrong with the host, if anything.
func (p *polite) send(req *http.Request, key string) (res *http.Response, block string, err error) {
	ctx := req.Context()
	var apart time.Duration
	if p.m.Robots != nil {
		may, err := p.m.Robots(ctx, req.URL)
		if err != nil {
			if workqueue.IsNotNow(err) || addressfilter.Is(err) {
				return nil, noAnswer, err
			}
			return nil, "robots.txt", err
		}
		if !may.Allowed {
			return nil, noAnswer, errRobots
		}
		apart = min(may.CrawlDelay, maxCrawlDelay)
	}
	if held, _ := ctx.Value(itemHost{}).([]string); p.m.Slots != nil && !slices.Contains(held, key) {
		slot, refused := p.m.Slots.TryAcquireFor(ctx, key, slotPatience)
		if refused != nil {
			return nil, noAnswer, refused
		}
		if slot == nil {
			return nil, noAnswer, workqueue.Postpone(slotPatience, fmt.Errorf("all slots of %s are taken", key))
		}
		release := func() {
			if err := slot.Release(ctx); err != nil {
				p.log.Warn("cannot give a slot back; it will come free", "key", key, "err", err)
			}
		}
		defer func() {
			if err != nil {
				release()
				return
			}
			res.Body = &slotBody{res.Body, release}
		}()
	}
	if p.m.Pacer != nil {
		if err := p.turn(ctx, key, apart); err != nil {
			return nil, noAnswer, err
		}
	}
	res, err = p.next.RoundTrip(req)
	switch {
	case addressfilter.Is(err):
		return nil, noAnswer, err
	case err != nil:
		return nil, "connection", err
	case res.StatusCode == http.StatusTooManyRequests:
		return res, noAnswer, nil
	case res.StatusCode >= 500:
		return res, res.Status, nil
	}
	return res, "", nil
}

// slotBody gives a slot back when the content is read.
type slotBody struct {
	io.ReadCloser
	release func()
}

func (b *slotBody) Close() error {
	defer b.release() // again does nothing
	return b.ReadCloser.Close()
}

// turn waits for a short turn of a host; for a long one the item goes back.
func (p *polite) turn(ctx context.Context, key string, apart time.Duration) error {
	wait, ok, err := p.m.Pacer.ReserveApart(ctx, key, apart, patience)
	if err != nil {
		return err
	}
	if !ok {
		return workqueue.NotNow(key, wait, fmt.Errorf("%s is not to be asked for %v", key, wait.Round(time.Millisecond)))
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
