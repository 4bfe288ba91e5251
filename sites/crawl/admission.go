package crawl

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync/atomic"
	"time"

	"muster/internal/limit"
	"muster/sites/definition"
	"muster/sites/internal/store"
	"muster/sites/polite"

	"github.com/redis/go-redis/v9"
)

// Delay is the reason why a page waits.
type Delay string

// Reasons for delays. A delay does not count as an attempt.
const (
	DelayPace    Delay = "pace"         // too soon after the last request to the site
	DelaySlots   Delay = "page slots"   // sites.max_pages_at_once pages are in flight
	DelayDown    Delay = "site down"    // the circuit breaker of the site is open
	DelayRecords Delay = "records"      // too many unwritten records
	DelayLimited Delay = "rate limited" // the site asked for a pause
	DelayProxies Delay = "proxies"      // no proxy of the pool is usable
)

// admission decides whether to fetch a page of a job now, and whether the job may start more pages. It is safe for concurrent
// use.
//
// It does not enforce the request rate of the site: a page may need several requests, for redirects and robots.txt, and package
// fetch delays each of them.
type admission struct {
	*pages
	budget  *budget
	slots   *limit.KeyedLimiter // pages in flight in all processes; nil: no limit
	room    int64               // limit of unwritten records, in bytes
	breaker *polite.SiteBreaker

	patience time.Duration // maximum wait for a slot
	heavy    atomic.Bool   // a page produced large records since the last call of backlog
}

// page admits one page. The caller must call release after the fetch and report the result to the circuit breaker with permit. The
// error is later for a page that must wait, and a *polite.DownError for one that fails.
func (a *admission) page(ctx context.Context) (release func(), permit limit.Permit, err error) {
	if a.heavy.Load() {
		if err := a.backlog(ctx); err != nil {
			return nil, permit, err
		}
	}
	if release, err = a.slot(ctx); err != nil {
		return nil, permit, err
	}
	permit, err = a.breaker.Allow(ctx)
	if w, ok := errors.AsType[*polite.WaitError](err); ok {
		err = later{w.After, DelayDown}
	}
	if err != nil {
		release()
	}
	return release, permit, err
}

// reachedLimits returns the limits that the job has reached. It starts no page after that.
func (a *admission) reachedLimits(ctx context.Context) ([]limitReached, error) {
	reached, err := a.budget.reached(ctx)
	if a.timeLeft() == 0 {
		reached = append(reached, limitReached{text: fmt.Sprintf("limits.max_duration (%s) was reached", a.def.Limits.MaxDuration)})
	}
	return reached, err
}

// limitReached is a limit that a job has reached.
type limitReached struct {
	text   string
	wanted bool // a requested number of records: the job is COMPLETE
}

// timeLeft returns the time until the job may start no more pages.
func (a *admission) timeLeft() time.Duration {
	if a.def.Limits.MaxDuration == 0 {
		return math.MaxInt64
	}
	return max(a.def.Limits.MaxDuration-time.Since(a.startTime()), 0)
}

// Limits of unwritten records in Redis, in number and bytes. No more pages are fetched above them; pages in flight still add
// their records.
const (
	maxUnwritten      = 5000
	maxUnwrittenBytes = 64 << 20
)

// heavyPage is the size of a page's records, in bytes, above which the backlog is checked before the next page instead of the
// next lease.
const heavyPage = 256 << 10

// backlog returns later while too many records are unwritten or their writer fails.
func (a *admission) backlog(ctx context.Context) error {
	n, bytes, err := a.queue.Outputs().Backlog(ctx)
	a.heavy.Store(false)
	if err != nil {
		return fmt.Errorf("count unwritten records: %w", err)
	}
	if n == 0 {
		return nil
	}
	_, trouble, err := store.Written(ctx, a.queue.Outputs())
	if err != nil || n < maxUnwritten && bytes < a.room && trouble == "" {
		return err
	}
	a.log.DebugContext(ctx, "too many unwritten records; fetching is paused", "waiting", n, "bytes", bytes, "trouble", trouble)
	return later{time.Second, DelayRecords}
}

// slotsName is the key of the slots of Config.MaxPages in the KeyedLimiter.
const slotsName = "sites:pages"

// The maximum wait of a page for a slot, and its delay if it gets none.
const (
	slotPatience = 5 * time.Second
	slotAway     = 100 * time.Millisecond
)

// slot acquires one of the page slots that all processes share. The error is later if no slot became free in time.
func (a *admission) slot(ctx context.Context) (release func(), err error) {
	if a.slots == nil {
		return func() {}, nil
	}
	slot, err := a.slots.TryAcquireFor(ctx, slotsName, a.patience)
	if err != nil {
		return nil, fmt.Errorf("wait for a page slot: %w", err)
	}
	if slot == nil {
		return nil, later{slotAway, DelaySlots}
	}
	return func() {
		if err := slot.Release(ctx); err != nil {
			a.log.WarnContext(ctx, "cannot release a page slot; it expires later", "error", err)
		}
	}, nil
}

// budget counts the records and bytes of a job in all processes against limits.max_records, the limit of the scrape, and
// limits.max_total_bytes. Without these limits it makes no Redis calls.
type budget struct {
	rdb     redis.UniversalClient
	job     string
	records int64  // 0: no limit, as with bytes
	name    string // of the limit of records
	bytes   int64
}

// newBudget returns the budget of a job with a limit of records in the request, which is 0 without one.
func newBudget(rdb redis.UniversalClient, job string, l definition.Limits, limit int) *budget {
	b := &budget{rdb: rdb, job: job, records: int64(l.MaxRecords), name: "limits.max_records", bytes: int64(l.MaxTotalBytes)}
	if limit > 0 && (b.records == 0 || int64(limit) < b.records) {
		b.records, b.name = int64(limit), "the limit of the scrape"
	}
	return b
}

func (b *budget) hasLimits() bool { return b.records > 0 || b.bytes > 0 }

// grant counts a fetched page and returns how many of its records to keep. It is idempotent per page.
func (b *budget) grant(ctx context.Context, page string, records, bytes int) (int, error) {
	if !b.hasLimits() {
		return records, nil
	}
	return store.Grant(ctx, b.rdb, store.SpentKey(b.job), page, records, bytes, b.records)
}

// reached returns the exceeded limits.
func (b *budget) reached(ctx context.Context) ([]limitReached, error) {
	if !b.hasLimits() {
		return nil, nil
	}
	got, err := b.rdb.HMGet(ctx, store.SpentKey(b.job), "records", "bytes").Result()
	if err != nil {
		return nil, fmt.Errorf("read the limits of job %s: %w", b.job, err)
	}
	count := func(v any) int64 {
		text, _ := v.(string)
		n, _ := strconv.ParseInt(text, 10, 64) // 0 if unset
		return n
	}
	var reached []limitReached
	if n := count(got[0]); b.records > 0 && n >= b.records {
		reached = append(reached, limitReached{fmt.Sprintf("%s (%d) was reached", b.name, b.records), true})
	}
	if n := count(got[1]); b.bytes > 0 && n >= b.bytes {
		reached = append(reached, limitReached{fmt.Sprintf("limits.max_total_bytes (%d) was reached, with %d bytes", b.bytes, n), false})
	}
	return reached, nil
}
