package polite

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/limit"
	"muster/internal/wrap"
)

const (
	breakerCooldown    = 30 * time.Second
	breakerMaxCooldown = 2 * time.Minute
	breakerPages       = 5  // pages that must fail without a fetched page in between
	breakerProxies     = 3  // distinct proxies of the failures
	breakerFewProxies  = 15 // pages that must fail through fewer proxies, or with status 500
	failuresTTL        = 10 * time.Minute
	breakerLook        = time.Second
)

//go:embed lua/failures.lua
var failuresLua string

var failuresCmd = redis.NewScript(failuresLua)

// SiteBreaker stops requests to a site that is down, in all processes. A site is down if the first attempts of five pages fail
// because of the site, without a fetched page in between. The failures must occur without a proxy or through three proxies, since
// a failure through one may be the proxy's. Through fewer proxies, 15 pages must fail: there may be no others. So must 15 pages with
// status 500, which may be errors of single pages. While the breaker is open, pages wait in the queue, and single pages are tried at
// increasing intervals. After patience, the site's outage is a DownError.
type SiteBreaker struct {
	rdb      redis.UniversalClient
	limit    *limit.Breaker
	site     string
	patience time.Duration
	began    time.Time // earliest start of patience

	looked atomic.Int64 // unix nanoseconds
	calm   atomic.Bool  // no failures at the time looked
}

// NewSiteBreaker returns the circuit breaker of a site for a job that started at began. It does no I/O. The cooldowns of cfg have
// defaults and are at most a quarter of patience.
func NewSiteBreaker(rdb redis.UniversalClient, site string, patience time.Duration, began time.Time, cfg limit.BreakerConfig) *SiteBreaker {
	cfg.Threshold, cfg.FailOpen, cfg.Trials = 1, true, 1 // SiteBreaker counts failures itself; one page tests a site that is down
	cfg.Cooldown = cmp.Or(cfg.Cooldown, breakerCooldown)
	cfg.MaxCooldown = cmp.Or(cfg.MaxCooldown, breakerMaxCooldown)
	if part := patience / 4; part > 0 {
		cfg.Cooldown, cfg.MaxCooldown = min(cfg.Cooldown, part), min(cfg.MaxCooldown, part)
	}
	return &SiteBreaker{rdb: rdb, limit: limit.NewBreaker(rdb, cfg), site: site, patience: patience, began: began}
}

// Forget deletes the failures of a site since its last fetched page, so that the next failure alone does not open its breaker.
// Call it when the breaker is reset.
func Forget(ctx context.Context, rdb redis.UniversalClient, site string) error {
	return wrap.Err(rdb.Del(ctx, failuresKey(site)).Err(), "delete the failures of %s", site)
}

// Outcome is the result of a request for a page.
type Outcome struct {
	SiteUp  bool   // the site is up, even if the page is gone
	OfSite  bool   // the whole site may have failed
	Blocked bool   // the site blocked the request, so the failure is also the page's
	Class   string // class of the failure
	Via     string // proxy of the request, or another cause that is not the site; "": none
}

var errDown = errors.New("circuit breaker open: the site is down")

// DownError means that a site has been down longer than the job waits for it.
type DownError struct {
	Class string // class of the last failure
	Since time.Time
}

// Error names the start and the class of the outage.
func (e *DownError) Error() string {
	return fmt.Sprintf("the site has been down since %s (%s), longer than retries.stall_max", e.Since.UTC().Format(time.RFC3339), e.Class)
}

// Allow returns a permit to fetch a page, or a *WaitError or a *DownError. The caller must Report the result of the request.
// While the site has no failures, Allow reads Redis once a second.
func (b *SiteBreaker) Allow(ctx context.Context) (limit.Permit, error) {
	fresh := time.Since(time.Unix(0, b.looked.Load())) < breakerLook
	if fresh && b.calm.Load() {
		return limit.Permit{}, nil
	}
	if !fresh {
		state, err := b.limit.State(ctx, b.site)
		if err != nil {
			return limit.Permit{}, fmt.Errorf("read the circuit breaker of %s: %w", b.site, err)
		}
		failures, err := b.rdb.Exists(ctx, failuresKey(b.site)).Result()
		if err != nil {
			return limit.Permit{}, fmt.Errorf("read the failures of %s: %w", b.site, err)
		}
		calm := state.State == "closed" && failures == 0
		b.set(calm)
		if calm {
			return limit.Permit{}, nil
		}
	}
	permit, ok, wait, err := b.limit.Allow(ctx, b.site)
	if err != nil {
		return permit, fmt.Errorf("check the circuit breaker of %s: %w", b.site, err)
	}
	if ok {
		return permit, nil
	}
	if !permit.TrialsRunning() { // otherwise a trial will soon test the site
		state, err := b.limit.State(ctx, b.site)
		if err != nil {
			return permit, fmt.Errorf("read the outage of %s: %w", b.site, err)
		}
		down := min(state.Now.Sub(state.Since), time.Since(b.began))
		if state.State != "closed" && down > b.patience {
			return permit, &DownError{Class: state.LastBlock, Since: state.Since}
		}
	}
	return permit, &WaitError{Key: b.site, After: max(wait, 10*time.Millisecond), Err: errDown}
}

// State returns the state of the breaker.
func (b *SiteBreaker) State(ctx context.Context) (limit.BreakerState, error) {
	state, err := b.limit.State(ctx, b.site)
	return state, wrap.Err(err, "read the circuit breaker of %s", b.site)
}

func (b *SiteBreaker) set(calm bool) {
	b.calm.Store(calm)
	b.looked.Store(time.Now().UnixNano())
}

// Report records the result of a request for a page. first means that it was the page's first attempt. Report returns how long
// the breaker stays open if the site is down, and 0 if the failure is the page's.
func (b *SiteBreaker) Report(ctx context.Context, permit limit.Permit, first bool, o Outcome) (down time.Duration, err error) {
	ctx = context.WithoutCancel(ctx) // a trial must always end
	switch {
	case o.OfSite:
		b.set(false)
		if permit.Trial() {
			err = permit.Failure(ctx, o.Class)
		} else {
			err = b.note(ctx, first, o)
		}
		if err != nil || o.Blocked {
			return 0, err
		}
		return b.timeLeft(ctx)
	case o.SiteUp:
		if b.calm.Load() && !permit.Trial() {
			return 0, nil
		}
		if err := permit.Success(ctx); err != nil {
			return 0, err
		}
		return 0, b.rdb.Del(ctx, failuresKey(b.site)).Err()
	}
	return 0, permit.Cancel(ctx) // not evidence about the site
}

// note records a failure of a page. It opens the breaker after enough failed pages.
func (b *SiteBreaker) note(ctx context.Context, first bool, failure Outcome) error {
	count := 0
	if first {
		count = 1
	}
	got, err := failuresCmd.Run(ctx, b.rdb, []string{failuresKey(b.site)}, count, cmp.Or(failure.Via, "direct"), breakerProxies, int(failuresTTL.Seconds())).Int64Slice()
	if err != nil {
		return fmt.Errorf("record a failure of %s: %w", b.site, err)
	}
	pages, proxies, direct := got[0], got[1], got[2] > 0
	if pages < breakerPages || !direct && proxies < breakerProxies && pages < breakerFewProxies {
		return nil
	}
	permit, ok, _, err := b.limit.Allow(ctx, b.site) // the breaker may already be open
	if err != nil || !ok {
		return err
	}
	if permit.Trial() {
		return permit.Cancel(ctx)
	}
	return permit.Failure(ctx, failure.Class)
}

// timeLeft returns how long the breaker stays open, or 0 if it is closed.
func (b *SiteBreaker) timeLeft(ctx context.Context) (time.Duration, error) {
	state, err := b.limit.State(ctx, b.site)
	if err != nil || state.State == "closed" {
		return 0, err
	}
	return max(state.Until.Sub(state.Now), time.Millisecond), nil
}
