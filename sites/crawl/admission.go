package crawl

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"sync/atomic"
	"time"

	"muster/sites/definition"
	"muster/sites/fetch"
	"muster/sites/internal/store"
	"muster/sites/polite"
	"muster/tasks/limit"
	"muster/tasks/workqueue"

	"github.com/redis/go-redis/v9"
)

// Delay is why a page of a job waits.
type Delay string

// The delays. None of them is an attempt at the page.
const (
	DelayPace    Delay = "pace"         // it is too early after the last request to the site
	DelaySlots   Delay = "page slots"   // as many pages as sites.max_pages_at_once are being fetched
	DelayDown    Delay = "site down"    // the breaker of the site is open
	DelayRecords Delay = "records"      // records wait to be written
	DelayLimited Delay = "rate limited" // the site asked for a pause
	DelayProxies Delay = "proxies"      // all proxies rest
)

// decision is the answer of admission about a page.
type decision struct {
	action action
	// With wait:
	delay Delay
	after time.Duration
	// With refuse: why the page is given up.
	class fetch.Class
	err   error
	// With admit: release must be called when the page is fetched, and how that
	// ended reported to the breaker with permit.
	release func()
	permit  limit.Permit
}

type action int

const (
	admit  action = iota // the page may be fetched now
	wait                 // it may be fetched later
	refuse               // it is given up
)

func waitFor(delay Delay, after time.Duration) decision {
	return decision{action: wait, delay: delay, after: after}
}

// admission decides whether a page of a job may be fetched now, and whether pages may begin at all. It may be used
// by many goroutines.
//
// It does not decide about the pace of the site: a page may need several
// requests, with redirects and robots.txt, and package fetch delays each.
type admission struct {
	limits  definition.Limits
	began   func() time.Time // of the job
	budget  *budget
	slots   *limit.KeyedLimiter // of all pages in all processes; nil: no limit
	out     *workqueue.Outputs  // the records that wait to be written
	room    int64               // bytes of records that may wait
	breaker *polite.SiteBreaker
	log     *slog.Logger

	patience time.Duration // how long a page waits for a slot
	heavy    atomic.Bool   // a page had many bytes of records since the last call of backlog
}

// page decides about one page.
func (a *admission) page(ctx context.Context) (decision, error) {
	if a.heavy.Load() {
		if d, err := a.backlog(ctx); err != nil || d.action != admit {
			return d, err
		}
	}
	release, err := a.slot(ctx)
	if err != nil {
		return decision{}, err
	}
	if release == nil {
		return waitFor(DelaySlots, slotAway), nil
	}
	d, err := a.site(ctx)
	if err != nil || d.action != admit {
		release()
		return d, err
	}
	d.release = release
	return d, nil
}

// reached lists the limits of the job that are reached. No page begins after that.
func (a *admission) reached(ctx context.Context) ([]limitReached, error) {
	reached, err := a.budget.reached(ctx)
	if a.left() == 0 {
		reached = append(reached, limitReached{text: fmt.Sprintf("limits.max_duration (%s) was reached", a.limits.MaxDuration)})
	}
	return reached, err
}

// limitReached is a limit of a job that was reached.
type limitReached struct {
	text   string
	wanted bool // the user asked for this number: the job is COMPLETE
}

// left returns how long pages of the job may begin.
func (a *admission) left() time.Duration {
	if a.limits.MaxDuration == 0 {
		return math.MaxInt64
	}
	return max(a.limits.MaxDuration-time.Since(a.began()), 0)
}

// How many records, and bytes of them, may wait in Redis for their writer before
// no more pages are fetched. Records of pages in flight come on top.
const (
	maxUnwritten      = 5000
	maxUnwrittenBytes = 64 << 20
)

// heavyPage is the size of the records of a page, in bytes, from which on the
// backlog is checked before the next page, and not only before the next lease.
const heavyPage = 256 << 10

// backlog delays pages while too many records wait to be written, or while
// they cannot be written.
func (a *admission) backlog(ctx context.Context) (decision, error) {
	n, bytes, err := a.out.Backlog(ctx)
	a.heavy.Store(false)
	if err != nil {
		return decision{}, fmt.Errorf("count records to write: %w", err)
	}
	if n == 0 {
		return decision{}, nil
	}
	_, trouble, err := store.Written(ctx, a.out)
	if err != nil {
		return decision{}, err
	}
	if n < maxUnwritten && bytes < a.room && trouble == "" {
		return decision{}, nil
	}
	a.log.DebugContext(ctx, "no more pages are fetched until records are written", "waiting", n, "bytes", bytes, "trouble", trouble)
	return waitFor(DelayRecords, time.Second), nil
}

// slotsName names the slots of Config.MaxPages among those of a KeyedLimiter.
const slotsName = "sites:pages"

// How long a page waits for a slot, and how long it is delayed when it got none.
const (
	slotPatience = 5 * time.Second
	slotAway     = 100 * time.Millisecond
)

// slot acquires one of the slots that bound the pages of all processes. Release
// is nil when no slot was free in time.
func (a *admission) slot(ctx context.Context) (release func(), err error) {
	if a.slots == nil {
		return func() {}, nil
	}
	slot, err := a.slots.TryAcquireFor(ctx, slotsName, a.patience)
	if err != nil {
		return nil, fmt.Errorf("wait for a page slot: %w", err)
	}
	if slot == nil {
		return nil, nil
	}
	return func() {
		if err := slot.Release(ctx); err != nil {
			a.log.WarnContext(ctx, "a page slot is free only when it expires", "error", err)
		}
	}, nil
}

// site asks the breaker of the site.
func (a *admission) site(ctx context.Context) (decision, error) {
	permit, err := a.breaker.Allow(ctx)
	if down, ok := errors.AsType[*polite.DownError](err); ok {
		return decision{action: refuse, class: fetch.Class(down.Class), err: err}, nil
	}
	if w, ok := errors.AsType[*polite.WaitError](err); ok {
		return waitFor(DelayDown, w.After), nil
	}
	return decision{permit: permit}, err
}

// budget counts the records and bytes of a job against limits.max_records and
// limits.max_total_bytes, for all processes. Without these limits it costs
// nothing.
type budget struct {
	rdb     redis.UniversalClient
	job     string
	records int64 // 0: no limit, as with bytes
	bytes   int64
}

func newBudget(rdb redis.UniversalClient, job string, l definition.Limits) *budget {
	return &budget{rdb: rdb, job: job, records: int64(l.MaxRecords), bytes: int64(l.MaxTotalBytes)}
}

func (b *budget) bounded() bool { return b.records > 0 || b.bytes > 0 }

// grant counts a fetched page and returns how many of its records may be kept.
// A second call with the same page counts nothing and returns the same.
func (b *budget) grant(ctx context.Context, page string, records, bytes int) (int, error) {
	if !b.bounded() {
		return records, nil
	}
	n, err := store.Grant(ctx, b.rdb, store.SpentKey(b.job), store.Page{ID: page, Records: records, Bytes: bytes}, b.records)
	if err != nil {
		return 0, fmt.Errorf("count records and bytes of job %s: %w", b.job, err)
	}
	return n, nil
}

// reached lists the limits that are reached.
func (b *budget) reached(ctx context.Context) ([]limitReached, error) {
	if !b.bounded() {
		return nil, nil
	}
	got, err := b.rdb.HMGet(ctx, store.SpentKey(b.job), "records", "bytes").Result()
	if err != nil {
		return nil, fmt.Errorf("look at the limits of job %s: %w", b.job, err)
	}
	count := func(v any) int64 {
		text, _ := v.(string)
		n, _ := strconv.ParseInt(text, 10, 64) // 0 when there is none
		return n
	}
	var reached []limitReached
	if n := count(got[0]); b.records > 0 && n >= b.records {
		reached = append(reached, limitReached{fmt.Sprintf("limits.max_records (%d) was reached", b.records), true})
	}
	if n := count(got[1]); b.bytes > 0 && n >= b.bytes {
		reached = append(reached, limitReached{fmt.Sprintf("limits.max_total_bytes (%d) was reached, with %d bytes", b.bytes, n), false})
	}
	return reached, nil
}
