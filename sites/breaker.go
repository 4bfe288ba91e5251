package sites

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/sites/fetch"
	"muster/sites/internal/store"
	"muster/tasks/limit"
)

const (
	breakerCooldown    = 30 * time.Second
	breakerMaxCooldown = 2 * time.Minute
	breakerPages       = 5 // different pages that must have failed since the last page that came
	breakerProxies     = 3 // different proxies through which they must have failed
	breakerLook        = time.Second
)

// breaker stops the fetching from a site that is down, in all processes. A
// site is taken for down when different pages fail at their first try, by its
// fault, and none comes in between; or when a page has failed with all its
// tries, and one that came before fails too. They must have failed directly, or
// through several different proxies, for a failure seen through one may be the
// proxy's. While the breaker is open pages wait in the queue; then some try, at
// longer and longer intervals. A site that has been down for longer than
// patience is waited for no more.
type breaker struct {
	rdb      redis.UniversalClient
	limit    *limit.Breaker
	site     string
	patience time.Duration
	began    time.Time // what was before does not count toward patience

	mu     sync.Mutex // guards the fields below
	looked time.Time
	calm   bool      // when last looked at, the site had not failed
	good   time.Time // when a page came last
}

// newBreaker returns the breaker of a site for a job that began at a time. The
// cooldowns of cfg have defaults; they are cut to what fits into patience some
// times.
func newBreaker(rdb redis.UniversalClient, site string, patience time.Duration, began time.Time, cfg limit.BreakerConfig) *breaker {
	cfg.Threshold, cfg.FailOpen = 1, true // what is enough, failed knows
	cfg.Cooldown = cmp.Or(cfg.Cooldown, breakerCooldown)
	cfg.MaxCooldown = cmp.Or(cfg.MaxCooldown, breakerMaxCooldown)
	if part := patience / 4; part > 0 {
		cfg.Cooldown, cfg.MaxCooldown = min(cfg.Cooldown, part), min(cfg.MaxCooldown, part)
	}
	return &breaker{rdb: rdb, limit: limit.NewBreaker(rdb, cfg), site: site, patience: patience, began: began}
}

// downError ends a page of a site that has been down for too long.
type downError struct {
	class fetch.Class // of the failure that was seen last
	since time.Time
}

// Error says since when the site is down and with what.
func (e *downError) Error() string {
	return fmt.Sprintf("the site has been down since %s (%s), longer than retries.stall_max", e.since.UTC().Format(time.RFC3339), e.class)
}

// allow asks for the leave to fetch a page; if it is not given it returns
// later, or a *downError. While all is calm it costs a look each second.
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
		failures, err := b.rdb.Exists(ctx, store.FailuresKey(b.site)).Result()
		if err != nil {
			return limit.Permit{}, fmt.Errorf("look for failures of %s: %w", b.site, err)
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
	if !permit.Tried() { // or it is soon known whether it is up again
		state, err := b.limit.State(ctx, b.site)
		if err != nil {
			return permit, fmt.Errorf("look how long %s is down: %w", b.site, err)
		}
		since := state.Since
		if b.began.After(since) {
			since = b.began
		}
		if state.State != "closed" && time.Since(since) > b.patience {
			return permit, &downError{class: fetch.Class(state.LastBlock), since: state.Since}
		}
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

// cameSince reports whether a page of the site has come since a time.
func (b *breaker) cameSince(t time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.good.After(t)
}

// report notes how the request for a page ended, and whether it was the page's
// first. It returns for how long the site is left alone when the failure is one
// of a site that is down, and 0 when it counts against the page.
func (b *breaker) report(ctx context.Context, permit limit.Permit, page string, first bool, failure error) (down time.Duration, err error) {
	ctx = context.WithoutCancel(ctx) // a trial must not be held for nothing
	fe, _ := errors.AsType[*fetch.Error](failure)
	switch {
	case fe != nil && fe.OfSite():
		b.set(false)
		if permit.Trial() {
			return 0, permit.Failure(ctx, string(fe.Class))
		}
		if first {
			page = "page " + page
		} else {
			page = ""
		}
		pages, apart, err := b.note(ctx, page, fe)
		if err == nil && pages >= breakerPages && apart {
			err = b.open(ctx, fe)
		}
		if err != nil || fe.Class == fetch.Blocked {
			return 0, err
		}
		return b.left(ctx)
	case fetch.ClassOf(failure).Answered():
		b.mu.Lock()
		calm := b.calm
		b.good = time.Now()
		b.mu.Unlock()
		if calm && !permit.Trial() {
			return 0, nil
		}
		if err := permit.Success(ctx); err != nil {
			return 0, err
		}
		return 0, b.rdb.Del(ctx, store.FailuresKey(b.site)).Err()
	}
	return 0, permit.Cancel(ctx) // the proxy's, or nobody's
}

// confirm notes how the request for a page ended that came before, made because
// another has failed with all its tries. It returns what report returns.
func (b *breaker) confirm(ctx context.Context, failure error) (down time.Duration, err error) {
	ctx = context.WithoutCancel(ctx)
	fe, ok := errors.AsType[*fetch.Error](failure)
	switch {
	case fetch.ClassOf(failure).Answered():
		return b.report(ctx, limit.Permit{}, "", false, failure)
	case !ok || !fe.OfSite(): // nothing is known; the page is tried again
		return probeAgain, nil
	}
	_, apart, err := b.note(ctx, "", fe)
	if err != nil || !apart {
		return 0, err
	}
	if err := b.open(ctx, fe); err != nil {
		return 0, err
	}
	return b.left(ctx)
}

// note adds a failure to those since the last page that came, and the page as
// one that has failed unless it is "". It returns how many pages have, and
// whether the failures were seen directly or through several proxies.
func (b *breaker) note(ctx context.Context, page string, failure *fetch.Error) (pages int, apart bool, err error) {
	members := []any{"direct"}
	if failure.Via != "" {
		members[0] = "via " + failure.Via
	}
	if page != "" {
		members = append(members, page)
	}
	key := store.FailuresKey(b.site)
	var all *redis.StringSliceCmd
	if _, err := b.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.SAdd(ctx, key, members...)
		p.Expire(ctx, key, 10*time.Minute)
		all = p.SMembers(ctx, key)
		return nil
	}); err != nil {
		return 0, false, fmt.Errorf("note that %s fails: %w", b.site, err)
	}
	proxies := 0
	for _, m := range all.Val() {
		switch {
		case m == "direct":
			apart = true
		case strings.HasPrefix(m, "page "):
			pages++
		default:
			proxies++
		}
	}
	return pages, apart || proxies >= breakerProxies, nil
}

// open opens the breaker, unless it is not closed.
func (b *breaker) open(ctx context.Context, failure *fetch.Error) error {
	permit, ok, _, err := b.limit.Allow(ctx, b.site)
	if err != nil || !ok {
		return err
	}
	if permit.Trial() {
		return permit.Cancel(ctx)
	}
	return permit.Failure(ctx, string(failure.Class))
}

// left is for how long the site is left alone yet, or 0 when the breaker is
// closed.
func (b *breaker) left(ctx context.Context) (time.Duration, error) {
	state, err := b.limit.State(ctx, b.site)
	if err != nil || state.State == "closed" {
		return 0, err
	}
	return max(time.Until(state.Until), time.Millisecond), nil
}
