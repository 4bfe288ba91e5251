package crawl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/counts"
	"muster/sites/definition"
	"muster/sites/internal/store"
	"muster/tasks"
	"muster/tasks/workqueue"
)

const (
	stallAfter = 2 * time.Minute  // time without a settled page; longer for sites with longer delays
	stallEvery = 30 * time.Second // interval of checks for stalled jobs per process
)

// Stalled is a running scrape without a fetched or failed page for at least two minutes.
type Stalled struct {
	JobID, Site string
	For         time.Duration
	Delays      map[string]int // number of delays of pages since the start, by Delay
}

// String describes the scrape in one line.
func (s Stalled) String() string {
	text := fmt.Sprintf("%s (job %s): no page for %s", s.Site, s.JobID, s.For.Round(time.Second))
	if len(s.Delays) == 0 {
		return text + "; no page was delayed; check for slow responses of the site or its proxies"
	}
	var why []string
	for _, delay := range counts.Names(s.Delays) {
		why = append(why, fmt.Sprintf("%s (%d)", delay, s.Delays[delay]))
	}
	return text + "; delays so far: " + strings.Join(why, ", ")
}

// StalledJobs returns the running scrapes that make no progress, longest first, without paused ones.
func StalledJobs(ctx context.Context, client *tasks.Client) ([]Stalled, error) {
	rdb := client.Redis()
	open, err := rdb.SMembers(ctx, store.OpenJobsKey).Result()
	if err != nil {
		return nil, fmt.Errorf("list open jobs: %w", err)
	}
	var stalled []Stalled
	for _, id := range open {
		req, err := store.ReadRequest(ctx, rdb, id)
		if errors.Is(err, store.ErrNoJob) {
			continue // the recorder closes it
		}
		if err != nil {
			return nil, err
		}
		queue := workqueue.New(rdb, store.QueueName(req.Site, req.PagesOf(id)), workqueue.Config{})
		last, err := queue.LastSettled(ctx)
		if err != nil {
			return nil, fmt.Errorf("read the pages of job %s: %w", id, err)
		}
		idle := min(time.Since(last), time.Since(time.UnixMilli(req.Began)))
		if idle < stallAfter {
			continue
		}
		def, err := req.Definition()
		if err != nil || idle < 2*max(def.Politeness.Delay, definition.MaxCrawlDelay) {
			continue // the job itself reports an invalid definition
		}
		status, err := client.Workflow(id).Status(ctx)
		if errors.Is(err, tasks.ErrNotFound) || err == nil && status.Terminal() {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read job %s: %w", id, err)
		}
		pages, err := queue.Stats(ctx)
		if err != nil {
			return nil, fmt.Errorf("read the pages of job %s: %w", id, err)
		}
		if pages.Paused {
			continue
		}
		counts, err := Counts(ctx, rdb, store.CountsKey(req.PagesOf(id)))
		if err != nil {
			return nil, err
		}
		stalled = append(stalled, Stalled{JobID: id, Site: req.Site, For: idle, Delays: counts["delay"]})
	}
	slices.SortFunc(stalled, func(a, b Stalled) int { return cmp.Compare(b.For, a.For) })
	return stalled, nil
}

// warnStalled logs a stalled job of this process once, until it makes progress again.
func (l *localJobs) warnStalled(ctx context.Context) {
	if time.Since(l.looked) < stallEvery {
		return
	}
	l.looked = time.Now()
	stalled, err := StalledJobs(ctx, l.cfg.Client)
	if err != nil {
		if ctx.Err() == nil {
			l.cfg.Logger.DebugContext(ctx, "cannot check for stalled scrapes", "error", err)
		}
		return
	}
	still := map[string]bool{}
	for _, s := range stalled {
		_, mine := l.jobs.Load(s.JobID)
		if mine && !l.stalled[s.JobID] {
			l.cfg.Logger.WarnContext(ctx, "a scrape makes no progress", "site", s.Site, "job", s.JobID, "for", s.For.Round(time.Second), "delays", s.Delays)
		}
		still[s.JobID] = mine
	}
	l.stalled = still
}

// counters counts events of a job by kind and name, first in memory. flush adds the counts to a hash in Redis. It is safe for concurrent
// use.
type counters struct {
	rdb redis.UniversalClient
	key string

	mu sync.Mutex // guards by
	by map[string]int64
}

func (c *counters) add(kind, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by == nil {
		c.by = map[string]int64{}
	}
	c.by[kind+" "+name]++
}

// flush adds the counts of this process to the counts in Redis.
func (c *counters) flush(ctx context.Context) error {
	c.mu.Lock()
	by := c.by
	c.by = nil
	c.mu.Unlock()
	if len(by) == 0 {
		return nil
	}
	pipe := c.rdb.Pipeline()
	for name, n := range by {
		pipe.HIncrBy(ctx, c.key, name, n)
	}
	pipe.Expire(ctx, c.key, store.Keep)
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("store counts: %w", err)
	}
	return nil
}

// all returns the flushed counts of all processes plus the counts of this one.
func (c *counters) all(ctx context.Context) (map[string]map[string]int, error) {
	if err := c.flush(ctx); err != nil {
		return nil, err
	}
	return Counts(ctx, c.rdb, c.key)
}

// Counts returns the flushed counts at a key, by kind and name.
func Counts(ctx context.Context, rdb redis.UniversalClient, key string) (map[string]map[string]int, error) {
	stored, err := rdb.HGetAll(ctx, key).Result()
	if err != nil {
		return nil, fmt.Errorf("read counts: %w", err)
	}
	by := map[string]map[string]int{}
	for field, text := range stored {
		kind, name, _ := strings.Cut(field, " ")
		if by[kind] == nil {
			by[kind] = map[string]int{}
		}
		by[kind][name], _ = strconv.Atoi(text) // 0 for an invalid value
	}
	return by, nil
}
