package sites

import (
	"context"

	"muster/tasks/workqueue"
)

// Progress counts the pages of a job by their state. Total grows while listing
// pages are walked.
func (s *Service) Progress(ctx context.Context, site, job string) (workqueue.Stats, error) {
	return workqueue.New(s.cfg.Client.Redis(), "scrape_"+site+":"+job, workqueue.Config{}).Stats(ctx)
}
