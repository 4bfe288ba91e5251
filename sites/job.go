package sites

import (
	"context"
	"fmt"
	"time"

	"muster/sites/definition"
	"muster/sites/internal/store"
	"muster/sites/report"
	"muster/tasks"
	"muster/tasks/workqueue"
)

// job is a scrape in this process.
type job struct {
	*pages
	crawler *crawler
	// finish closes the files of the job; see record.Recorder.Finish.
	finish func(ctx context.Context, run string, sum report.Summary) (report.Summary, error)
}

// later is the error of a step that must run again after some time.
type later struct{ after time.Duration }

func (l later) Error() string { return fmt.Sprintf("nothing to do for %s", l.after) }

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// publish stores the progress of the job.
func (j *job) publish(ctx context.Context) {
	if byType, _, err := store.Written(ctx, j.queue.Outputs()); err == nil && len(byType) > 0 {
		n := 0
		for _, of := range byType {
			n += of
		}
		tasks.PublishKey(ctx, "result_count", fmt.Sprint(n))
	}
	for _, c := range []*counters{j.crawler.delays, j.crawler.ends} {
		if err := c.flush(ctx); err != nil {
			j.log.WarnContext(ctx, "the report will lack delays or ends of sessions", "error", err)
		}
	}
	if stats, err := j.queue.Stats(ctx); err == nil {
		total, completed := chunks(j.def, stats)
		tasks.PublishKey(ctx, "error_count", fmt.Sprint(stats.Error))
		tasks.PublishKey(ctx, "total_urls", fmt.Sprint(stats.Total))
		tasks.PublishKey(ctx, "total_chunks", fmt.Sprint(total)) // before those that are completed
		tasks.PublishKey(ctx, "completed_chunks", fmt.Sprint(completed))
	}
}

// chunks returns the pages of a job in chunks of ten times max_per_domain, at least 25: how many are known, and how many
// will not be fetched any more. The last chunk is complete when no page is open.
func chunks(def *definition.Definition, pages workqueue.Stats) (total, completed int64) {
	size := int64(max(10*def.Politeness.MaxPerDomain, 25))
	total = (pages.Total + size - 1) / size
	if pages.Open() == 0 {
		return total, total
	}
	return total, (pages.Total - pages.Open()) / size
}

// applyPause pauses a job that begins while its site is paused. Otherwise it
// resumes the queue, which may be that of an earlier job that ended paused.
func (j *job) applyPause(ctx context.Context) error {
	paused, err := j.rdb.SIsMember(ctx, store.PausedSitesKey, j.def.Site).Result()
	if err != nil {
		return fmt.Errorf("look whether site %s is paused: %w", j.def.Site, err)
	}
	set := j.queue.Resume
	if paused {
		set = j.queue.Pause
	}
	if _, err := set(ctx); err != nil {
		return fmt.Errorf("pause or resume job %s: %w", j.id, err)
	}
	return nil
}
