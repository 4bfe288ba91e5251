package sites

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/sites/fetch"
	"muster/tasks/limit"
)

const (
	breakerCooldown = 30 * time.Second
	breakerInARow   = 5 // failures since the last page that came
	breakerPages    = 5 // different pages that must have failed
	breakerProxies  = 3 // different proxies through which they must have
	breakerLook     = time.Second
)

// breaker stops the fetching from a site that fails, in all processes. Only
// the site's own errors count, and a proxy's never: it takes some in a row, of
// different pages, through different proxies. While it is open pages wait in
// the queue; then some try. A site that has not given a page for longer than
// patience is waited for no more.
type breaker struct {
	rdb      redis.UniversalClient
	limit    *limit.Breaker
	site     string
	patience time.Duration

	mu     sync.Mutex // guards looked and calm
	looked time.Time
	calm   bool // when last looked at, the site had not failed
}

func newBreaker(rdb redis.UniversalClient, site string, patience time.Duration, cfg limit.BreakerConfig) *breaker {
	cfg.Threshold, cfg.Cooldown, cfg.FailOpen = breakerInARow, breakerCooldown, true
	return &breaker{rdb: rdb, limit: limit.NewBreaker(rdb, cfg), site: site, patience: patience}
}

// errDown ends a page of a site that is down for too long.
var errDown = errors.New("the site has been down for too long")

// allow asks for the leave to fetch a page; if it is not given it returns
// later, or errDown. While all is calm it costs a look each second.
func (b *breaker) allow(ctx context.Context) (limit.Permit, error) {
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
			return limit.Permit{}, fmt.Errorf("look at the breaker of %s: %w", b.site, err)
		}
		calm := state.State == "closed" && state.Failures == 0
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
	down, err := b.rdb.Get(ctx, downKey(b.site)).Int64()
	if err != nil && !errors.Is(err, redis.Nil) {
		return permit, fmt.Errorf("look how long %s is down: %w", b.site, err)
	}
	if err == nil && time.Since(time.UnixMilli(down)) > b.patience {
		return permit, errDown
	}
	return permit, later{max(wait, 10*time.Millisecond)}
}

// state is closed, open or half_open, as it is now.
func (b *breaker) state(ctx context.Context) (string, error) {
	state, err := b.limit.State(ctx, b.site)
	if err != nil {
		return "", fmt.Errorf("look at the breaker of %s: %w", b.site, err)
	}
	return state.State, nil
}

func (b *breaker) set(calm bool) {
	b.mu.Lock()
	b.looked, b.calm = time.Now(), calm
	b.mu.Unlock()
}

// report tells what became of a page that was allowed.
func (b *breaker) report(ctx context.Context, permit limit.Permit, page string, failure error) error {
	ctx = context.WithoutCancel(ctx) // a trial must not be held for nothing
	switch class := fetch.ClassOf(failure); class {
	case fetch.Server, fetch.Blocked, fetch.Connect:
		via := ""
		if fe, ok := errors.AsType[*fetch.Error](failure); ok {
			via = fe.Via
		}
		return b.failed(ctx, permit, class, page, via)
	case fetch.OK, fetch.Gone, fetch.Refused, fetch.Validate, fetch.Parse, fetch.BadType, fetch.TooBig, fetch.Redirect:
		b.mu.Lock()
		calm := b.calm
		b.mu.Unlock()
		if calm && !permit.Trial() {
			return nil
		}
		if err := permit.Success(ctx); err != nil {
			return err
		}
		return b.rdb.Del(ctx, failuresKey(b.site), downKey(b.site)).Err()
	default: // the proxy's, or nobody's
		return permit.Cancel(ctx)
	}
}

func (b *breaker) failed(ctx context.Context, permit limit.Permit, class fetch.Class, page, via string) error {
	b.set(false)
	if permit.Trial() {
		return permit.Failure(ctx, string(class))
	}
	key := failuresKey(b.site)
	var members *redis.StringSliceCmd
	if _, err := b.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.SAdd(ctx, key, "page "+page, "via "+via)
		p.Expire(ctx, key, 10*time.Minute)
		members = p.SMembers(ctx, key)
		return nil
	}); err != nil {
		return fmt.Errorf("note that %s fails: %w", b.site, err)
	}
	pages, proxies, direct := 0, 0, false
	for _, m := range members.Val() {
		switch {
		case m == "via ":
			direct = true
		case m[0] == 'p':
			pages++
		default:
			proxies++
		}
	}
	if pages < breakerPages || proxies < breakerProxies && !direct {
		return permit.Cancel(ctx)
	}
	permit, ok, _, err := b.limit.Allow(ctx, b.site)
	if err != nil || !ok {
		return err
	}
	if err := permit.Failure(ctx, string(class)); err != nil {
		return err
	}
	return b.rdb.SetNX(ctx, downKey(b.site), time.Now().UnixMilli(), time.Hour).Err()
}
