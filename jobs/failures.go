package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"muster/tasks/workqueue"
)

// ItemError is why an item failed for the last time, whether it waits for a decision or not.
type ItemError struct {
	Key   string
	Error string
}

// LastErrors returns why the last items of a job failed, up to n, the newest first. It reads no other items.
func (s *Service) LastErrors(ctx context.Context, id string, n int) ([]ItemError, error) {
	if _, err := s.planOf(ctx, id); err != nil {
		return nil, err
	}
	q := s.queue(id)
	ids, err := q.Failed(ctx, -n, n)
	if err != nil {
		return nil, err
	}
	failed, err := workqueue.Glances(ctx, workqueue.Wanted{Queue: q, IDs: ids})
	if err != nil {
		return nil, err
	}
	var all []ItemError
	for _, f := range slices.Backward(failed[0].Items) {
		if key, ok := strings.CutPrefix(f.ID, itemID("")); ok {
			all = append(all, ItemError{key, f.Note})
		}
	}
	return all, nil
}

// Failures returns the items of a job that failed or wait for a decision, up to n from an offset on, the first to fail
// first. It reads no others. A page can be short, or empty, although others follow: next is the offset of those, or 0.
func (s *Service) Failures(ctx context.Context, id string, status ItemStatus, offset, n int) (items []Item, next int, err error) {
	if status != ItemFailed && status != ItemReview {
		return nil, 0, bad("status", "%.20q is not failed or review", string(status))
	}
	if offset < 0 || n < 1 || n > 1000 {
		return nil, 0, bad("offset", "from 0 on, and 1 to 1000 items")
	}
	p, err := s.planOf(ctx, id)
	if err != nil {
		return nil, 0, err
	}
	q := s.queue(id)
	ids, err := q.Failed(ctx, offset, n)
	if err != nil {
		return nil, 0, err
	}
	if len(ids) == n {
		next = offset + n
	}
	infos, err := q.Get(ctx, ids...)
	if err != nil {
		return nil, 0, err
	}
	for _, info := range infos {
		if it, ok := matchItem(id, p, info, status); ok {
			items = append(items, it)
		}
	}
	return items, next, nil
}

// Reviews are items that wait for a decision.
type Reviews struct {
	Items []Item
	More  bool // there are others
}

// reviewJobs bounds the jobs that Reviews looks at.
const reviewJobs = 20

// reviewLooks bounds how often Reviews looks at the failed items of a job.
const reviewLooks = 5

// InReview returns the number of items in review, and of their jobs.
func (s *Service) InReview(ctx context.Context) (items int64, jobs int, err error) {
	ids, err := s.rdb.ZRange(ctx, reviewsKey, 0, -1).Result()
	if err != nil {
		return 0, 0, fmt.Errorf("list jobs with items in review: %w", err)
	}
	records, err := s.fields(ctx, ids, "status", "final", "pipeline_sha256")
	if err != nil {
		return 0, 0, err
	}
	glances, err := s.glances(ctx, ids, records)
	if err != nil {
		return 0, 0, err
	}
	for i, id := range ids {
		glance := glances[id]
		if glance == nil || records[i].status().Terminal() {
			continue
		}
		p, err := s.pipeline(ctx, records[i])
		if errors.Is(err, ErrNotFound) {
			continue
		}
		if err != nil {
			return 0, 0, err
		}
		var n int64
		for _, st := range p.Stages {
			if st.Review {
				n += glance.Lanes[lane(st.Name)].Error
			}
		}
		if n > 0 {
			items, jobs = items+n, jobs+1
		}
	}
	return items, jobs, nil
}

// Reviews returns items of all jobs that wait for a decision, up to n, of the job that waits for longest first.
func (s *Service) Reviews(ctx context.Context, n int) (Reviews, error) {
	ids, err := s.rdb.ZRangeArgs(ctx, redis.ZRangeArgs{Key: reviewsKey, Start: 0, Stop: reviewJobs}).Result()
	if err != nil {
		return Reviews{}, fmt.Errorf("list the jobs with items to decide on: %w", err)
	}
	var out Reviews
	if len(ids) > reviewJobs {
		ids, out.More = ids[:reviewJobs], true
	}
	records, err := s.records(ctx, ids)
	if err != nil {
		return Reviews{}, err
	}
	for i, id := range ids {
		if r := records[i]; r["status"] == "" || r.status().Terminal() { // it has just ended
			continue
		}
		if len(out.Items) == n {
			out.More = true
			break
		}
		next := 0
		for looks := 0; looks < reviewLooks && len(out.Items) < n; looks++ { // failed items may precede them
			var items []Item
			items, next, err = s.Failures(ctx, id, ItemReview, next, n-len(out.Items))
			if errors.Is(err, ErrNotFound) {
				break
			}
			if err != nil {
				return Reviews{}, err
			}
			out.Items = slices.Concat(out.Items, items)
			if next == 0 {
				break
			}
		}
		out.More = out.More || next > 0
	}
	return out, nil
}
