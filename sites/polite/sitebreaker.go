package polite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/tasks/limit"
)

const (
	breakerCooldown    = 30 * time.Second
	breakerMaxCooldown = 2 * time.Minute
	breakerPages       = 5 // different pages that must have failed since the last fetched page
	breakerProxies     = 3 // different proxies through which they must have failed
	breakerLook        = time.Second
)

// SiteBreaker stops requests to a site that is down, in all processes. A site counts as down when the first attempts of
// five pages fail because of the site and no page is fetched in between. They must have failed without a proxy or through
// three proxies, since a failure through one may be the proxy's. While the breaker is open, pages wait in the queue; then
// single pages are tried, at increasing intervals. A site that has been down for longer than patience is a DownError.
type SiteBreaker struct {
	rdb      redis.UniversalClient
	limit    *limit.Breaker
	site     string
	patience time.Duration
	began    time.Time // patience starts here at the earliest

	mu     sync.Mutex // guards the fields below
	looked time.Time
	calm   bool // the site had no failures at the time looked
}

// NewSiteBreaker returns the breaker of a site for a job that started at began. It does no I/O. The cooldowns of cfg
// have defaults, and are at most a quarter of patience.
func NewSiteBreaker(rdb redis.UniversalClient, site string, patience time.Duration, began time.Time, cfg limit.BreakerConfig) *SiteBreaker {
	cfg.Threshold, cfg.FailOpen = 1, true // SiteBreaker counts failures itself
	cfg.Cooldown = cmp.Or(cfg.Cooldown, breakerCooldown)
	cfg.MaxCooldown = cmp.Or(cfg.MaxCooldown, breakerMaxCooldown)
	if part := patience / 4; part > 0 {
		cfg.Cooldown, cfg.MaxCooldown = min(cfg.Cooldown, part), min(cfg.MaxCooldown, part)
	}
	return &SiteBreaker{rdb: rdb, limit: limit.NewBreaker(rdb, cfg), site: site, patience: patience, began: began}
}

// Forget forgets the failures of a site since its last fetched page: the next one alone does not open its breaker. It
// belongs to a reset of the breaker.
func Forget(ctx context.Context, rdb redis.UniversalClient, site string) error {
	if err := rdb.Del(ctx, failuresKey(site)).Err(); err != nil {
		return fmt.Errorf("forget the failures of %s: %w", site, err)
	}
	return nil
}

// Outcome is how a request for a page ended.
type Outcome struct {
	Answered bool   // the site is up, even if the page is gone
	OfSite   bool   // the whole site may have failed
	Blocked  bool   // the site blocked the request: the failure is the page's, too
	Class    string // of the failure
	Via      string // the proxy of the request; "": none
}

var errDown = errors.New("the site is down; its breaker is open")

// DownError says that a site has been down for longer than the job waits for it.
type DownError struct {
	Class string // of the last failure
	Since time.Time
}

// Error says since when the site is down and with what.
func (e *DownError) Error() string {
	return fmt.Sprintf("the site has been down since %s (%s), longer than retries.stall_max", e.Since.UTC().Format(time.RFC3339), e.Class)
}

// Allow returns a permit to fetch a page, or a *WaitError or a *DownError. The caller must Report how the request
// ended. While the site has no failures, Allow reads Redis once a second.
func (b *SiteBreaker) Allow(ctx context.Context) (limit.Permit, error) {
	b.mu.Lock()
	fresh := time.Since(b.looked) < breakerLook
	if fresh && b.calm {
		b.mu.Unlock()
		return limit.Permit{}, nil
	}
	b.mu.Unlock()
	if !fresh {
		state, err := b.limit.State(ctx, b.site)
		if err != nil {
			return limit.Permit{}, fmt.Errorf("read the breaker of %s: %w", b.site, err)
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
		return permit, fmt.Errorf("ask the breaker of %s: %w", b.site, err)
	}
	if ok {
		return permit, nil
	}
	if !permit.Tried() { // otherwise a trial will soon show whether the site is up again
		state, err := b.limit.State(ctx, b.site)
		if err != nil {
			return permit, fmt.Errorf("read how long %s has been down: %w", b.site, err)
		}
		down := min(state.Now.Sub(state.Since), time.Since(b.began))
		if state.State != "closed" && down > b.patience {
			return permit, &DownError{Class: state.LastBlock, Since: state.Since}
		}
	}
	return permit, &WaitError{Key: b.site, After: max(wait, 10*time.Millisecond), Err: errDown}
}

// State reads the state of the breaker.
func (b *SiteBreaker) State(ctx context.Context) (limit.BreakerState, error) {
	state, err := b.limit.State(ctx, b.site)
	if err != nil {
		return state, fmt.Errorf("read the breaker of %s: %w", b.site, err)
	}
	return state, nil
}

func (b *SiteBreaker) set(calm bool) {
	b.mu.Lock()
	b.looked, b.calm = time.Now(), calm
	b.mu.Unlock()
}

// Report records how the request for a page ended; first says whether it was the page's first. It returns how long
// the breaker stays open if the site is down, and 0 if the failure is the page's.
func (b *SiteBreaker) Report(ctx context.Context, permit limit.Permit, page string, first bool, o Outcome) (down time.Duration, err error) {
	ctx = context.WithoutCancel(ctx) // a trial must not be held for nothing
	switch {
	case o.OfSite:
		b.set(false)
		if permit.Trial() {
			err = permit.Failure(ctx, o.Class)
		} else {
			err = b.note(ctx, page, first, o)
		}
		if err != nil || o.Blocked {
			return 0, err
		}
		return b.left(ctx)
	case o.Answered:
		b.mu.Lock()
		calm := b.calm
		b.mu.Unlock()
		if calm && !permit.Trial() {
			return 0, nil
		}
		if err := permit.Success(ctx); err != nil {
			return 0, err
		}
		return 0, b.rdb.Del(ctx, failuresKey(b.site)).Err()
	}
	return 0, permit.Cancel(ctx) // it says nothing about the site
}

// note adds a failure to those since the last fetched page, and page to the failed pages if it is its first. It opens
// the breaker if enough pages have failed, without a proxy or through enough proxies.
func (b *SiteBreaker) note(ctx context.Context, page string, first bool, failure Outcome) error {
	members := []any{"direct"}
	if failure.Via != "" {
		members[0] = "via " + failure.Via
	}
	if first {
		members = append(members, "page "+page)
	}
	key := failuresKey(b.site)
	var all *redis.StringSliceCmd
	if _, err := b.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.SAdd(ctx, key, members...)
		p.Expire(ctx, key, 10*time.Minute)
		all = p.SMembers(ctx, key)
		return nil
	}); err != nil {
		return fmt.Errorf("record a failure of %s: %w", b.site, err)
	}
	pages, proxies := 0, 0
	for _, m := range all.Val() {
		switch {
		case m == "direct":
			proxies = breakerProxies
		case strings.HasPrefix(m, "page "):
			pages++
		default:
			proxies++
		}
	}
	if pages < breakerPages || proxies < breakerProxies {
		return nil
	}
	permit, ok, _, err := b.limit.Allow(ctx, b.site) // it may be open already
	if err != nil || !ok {
		return err
	}
	if permit.Trial() {
		return permit.Cancel(ctx)
	}
	return permit.Failure(ctx, failure.Class)
}

// left returns how long the breaker stays open, or 0 if it is closed.
func (b *SiteBreaker) left(ctx context.Context) (time.Duration, error) {
	state, err := b.limit.State(ctx, b.site)
	if err != nil || state.State == "closed" {
		return 0, err
	}
	return max(state.Until.Sub(state.Now), time.Millisecond), nil
}
