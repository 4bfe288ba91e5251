package crawl

import (
	"context"
	"errors"
	"fmt"
	"time"

	"muster/internal/wrap"
	"muster/sites/definition"
	"muster/sites/extract"
	"muster/sites/internal/store"
	"muster/sites/report"
	"muster/tasks"
	"muster/tasks/tasktype"
	"muster/tasks/workqueue"
)

// job is a scrape with its resources in this process.
type job struct {
	*pages
	crawler *crawler
	// finish closes the files of the job; see record.Recorder.Finish.
	finish func(ctx context.Context, run string, sum report.Summary) (report.Summary, error)
}

// later is the error of a step that must run again after a delay.
type later struct {
	after time.Duration
	delay Delay // of a page
}

func (l later) Error() string { return fmt.Sprintf("retry after %s", l.after) }

// publish stores the progress of the job.
func (j *job) publish(ctx context.Context) {
	if byType, _, err := store.Written(ctx, j.queue.Outputs()); err == nil && len(byType) > 0 {
		n := 0
		for _, of := range byType {
			n += of
		}
		tasks.PublishKey(ctx, "result_count", fmt.Sprint(n))
	}
	if err := j.crawler.counts.flush(ctx); err != nil {
		j.log.WarnContext(ctx, "cannot store counts for the report", "error", err)
	}
	if stats, err := j.queue.Stats(ctx); err == nil {
		total, completed := chunks(j.def, stats)
		tasks.PublishKey(ctx, "error_count", fmt.Sprint(stats.Error))
		tasks.PublishKey(ctx, "total_urls", fmt.Sprint(stats.Total))
		tasks.PublishKey(ctx, "total_chunks", fmt.Sprint(total)) // before completed_chunks
		tasks.PublishKey(ctx, "completed_chunks", fmt.Sprint(completed))
	}
}

// chunks counts the pages of a job in chunks of ten times max_per_domain, at least 25 pages: all known pages and the terminal
// pages. The last chunk completes when no page is open.
func chunks(def *definition.Definition, pages workqueue.Stats) (total, completed int64) {
	size := int64(max(10*def.Politeness.MaxPerDomain, 25))
	total = (pages.Total + size - 1) / size
	if pages.Open() == 0 {
		return total, total
	}
	return total, (pages.Total - pages.Open()) / size
}

// applyPause pauses a job that begins while its site is paused. Otherwise it resumes the queue, which an earlier job may have
// left paused.
func (j *job) applyPause(ctx context.Context) error {
	paused, err := j.rdb.SIsMember(ctx, store.PausedSitesKey, j.def.Site).Result()
	if err != nil {
		return fmt.Errorf("read whether site %s is paused: %w", j.def.Site, err)
	}
	set := j.queue.Resume
	if paused {
		set = j.queue.Pause
	}
	if _, err := set(ctx); err != nil && !errors.Is(err, workqueue.ErrNoQueue) {
		return fmt.Errorf("pause or resume job %s: %w", j.id, err)
	}
	return nil
}

// collect queues the start pages and ends the leases of a crashed earlier run of the job.
func (j *job) collect(ctx context.Context) error {
	if err := j.requeue(ctx); err != nil {
		return err
	}
	if err := j.crawler.leases.returnPending(ctx); err != nil {
		return err
	}
	if err := errors.Join(j.queue.Seal(ctx), j.queue.Unseal(ctx)); err != nil {
		return fmt.Errorf("end the leases of an earlier run: %w", err)
	}
	var starts []visit
	for _, p := range j.def.StartPages() {
		v := visit{Link: extract.Link{URL: p.URL, Kind: p.Kind, Post: p.Post}}
		if p.Kind == definition.KindSitemap {
			v.Start = p.Start
		}
		starts = append(starts, v)
	}
	items, err := j.items(starts)
	if err != nil {
		return err
	}
	if _, err := j.queue.Enqueue(ctx, items...); err != nil {
		return fmt.Errorf("queue the start pages: %w", err)
	}
	return nil
}

// requeue requeues the failed pages of the resumed job, once.
func (j *job) requeue(ctx context.Context) error {
	if j.req.Resume == "" {
		return nil
	}
	done, err := j.rdb.Exists(ctx, store.ResumedKey(j.run)).Result()
	if err != nil {
		return fmt.Errorf("resume job %s: %w", j.id, err)
	}
	if done > 0 {
		return nil
	}
	ids, err := j.queue.Requeue(ctx, workqueue.RequeueOptions{})
	if err != nil {
		return fmt.Errorf("requeue the failed pages of job %s: %w", j.id, err)
	}
	j.log.InfoContext(ctx, "requeued failed pages", "pages", len(ids))
	return wrap.Err(j.rdb.Set(ctx, store.ResumedKey(j.run), len(ids), store.Keep).Err(), "resume job %s", j.id)
}

// crawlersFor returns the crawlers of a job: one per eight pages that may be in flight, and at most one per slot of the live
// workers.
func crawlersFor(ctx context.Context, client *tasks.Client, def *definition.Definition) ([]store.Crawler, error) {
	workers, err := client.Inspect().Workers(ctx)
	if err != nil {
		return nil, fmt.Errorf("count the slots of workers: %w", err)
	}
	n := max(min((def.Politeness.MaxPerDomain+leastWindow-1)/leastWindow, slotsOf(workers)), 1)
	crawlers := make([]store.Crawler, n)
	for i := range crawlers {
		crawlers[i] = store.Crawler{Site: def.Site, Number: i, Of: n}
	}
	return crawlers, nil
}

// slotsOf returns the number of slots of the workers for scrapes.
func slotsOf(workers []tasktype.Worker) int {
	slots := 0
	for _, w := range workers {
		if w.Queues[store.Queue] == 0 {
			continue
		}
		n := w.Concurrency
		if limit, ok := w.QueueLimits[store.Queue]; ok {
			n = min(n, limit)
		}
		slots += n
	}
	return slots
}
