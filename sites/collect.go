package sites

import (
	"context"
	"errors"
	"fmt"

	"muster/sites/definition"
	"muster/sites/internal/store"
	"muster/tasks"
	"muster/tasks/tasktype"
	"muster/tasks/workqueue"
)

// collect queues the start pages of the job, and ends the leases of an earlier run of the job that was killed.
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
		v := visit{URL: p.URL, Kind: p.Kind, Post: p.Post}
		if p.Kind == definition.KindSitemap {
			v.Start = p.Start
		}
		starts = append(starts, v)
	}
	starts, err := j.crawler.limitDetails(ctx, "start", starts)
	if err != nil {
		return err
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

// requeue puts the failed pages of the resumed job back into the queue, once.
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
	j.log.InfoContext(ctx, "failed pages are requeued", "pages", len(ids))
	if err := j.rdb.Set(ctx, store.ResumedKey(j.run), len(ids), store.Keep).Err(); err != nil {
		return fmt.Errorf("resume job %s: %w", j.id, err)
	}
	return nil
}

// crawlersFor returns the crawlers of a job: one for each eight pages that may be in flight, but not more than the live
// workers have slots for scrapes.
func crawlersFor(ctx context.Context, client *tasks.Client, def *definition.Definition) ([]store.Crawler, error) {
	workers, err := client.Workers(ctx)
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

// slotsOf returns how many tasks of scrapes the workers run at once.
func slotsOf(workers []tasktype.Worker) int {
	slots := 0
	for _, w := range workers {
		if w.Queues[Queue] == 0 {
			continue
		}
		n := w.Concurrency
		if limit, ok := w.QueueLimits[Queue]; ok {
			n = min(n, limit)
		}
		slots += n
	}
	return slots
}
