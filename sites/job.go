package sites

import (
	"context"
	"fmt"
	"time"

	"muster/tasks"
)

// job is a scrape as one process sees it.
type job struct {
	*pages
	crawler *crawler
	writer  *Writer
	alerts  string    // the URL of a webhook that gets bad health, or ""
	looked  time.Time // when the writer last saw that the job is alive
}

// later says that there is nothing to do until some time has passed.
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

// publish writes the live numbers of the job.
func (j *job) publish(ctx context.Context) {
	if byType, _, err := written(ctx, j.writer.out); err == nil && len(byType) > 0 {
		n := 0
		for _, of := range byType {
			n += of
		}
		tasks.PublishKey(ctx, "result_count", fmt.Sprint(n))
	}
	for _, c := range []*counters{j.crawler.delays, j.crawler.ends} {
		if err := c.flush(ctx); err != nil {
			j.log.Warn("the report will lack delays or ends of sessions", "error", err)
		}
	}
	if stats, err := j.queue.Stats(ctx); err == nil {
		tasks.PublishKey(ctx, "error_count", fmt.Sprint(stats.Error))
	}
}
