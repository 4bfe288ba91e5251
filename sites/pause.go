package sites

import (
	"context"
	"errors"
	"fmt"

	"muster/sites/internal/store"
	"muster/tasks/workqueue"
)

// PauseSite stops the fetching of pages of a site, in all processes, until
// ResumeSite. It holds for the job under way and for jobs that begin meanwhile.
// Pages in flight are completed.
func (s *Service) PauseSite(ctx context.Context, site string) error {
	if err := s.cfg.Client.Redis().SAdd(ctx, store.PausedSitesKey, site).Err(); err != nil {
		return fmt.Errorf("pause site %s: %w", site, err)
	}
	return s.eachOpen(ctx, site, func(q *workqueue.Queue) error { _, err := q.Pause(ctx); return err })
}

// ResumeSite ends PauseSite.
func (s *Service) ResumeSite(ctx context.Context, site string) error {
	if err := s.cfg.Client.Redis().SRem(ctx, store.PausedSitesKey, site).Err(); err != nil {
		return fmt.Errorf("resume site %s: %w", site, err)
	}
	return s.eachOpen(ctx, site, func(q *workqueue.Queue) error { _, err := q.Resume(ctx); return err })
}

// eachOpen calls fn with the queue of each job of a site under way.
func (s *Service) eachOpen(ctx context.Context, site string, fn func(*workqueue.Queue) error) error {
	rdb := s.cfg.Client.Redis()
	open, err := rdb.SMembers(ctx, store.OpenJobsKey).Result()
	if err != nil {
		return fmt.Errorf("list open jobs: %w", err)
	}
	for _, id := range open {
		req, err := store.ReadRequest(ctx, s.cfg.Client.Redis(), id)
		if errors.Is(err, store.ErrNoJob) || err == nil && req.Site != site {
			continue
		}
		if err != nil {
			return err
		}
		if err := fn(workqueue.New(rdb, store.QueueName(site, req.PagesOf(id)), workqueue.Config{})); err != nil {
			return err
		}
	}
	return nil
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
