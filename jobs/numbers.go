package jobs

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// Numbers are counters of all jobs, maintained by scripts.
type Numbers struct {
	// Items are the items of all stored pipeline jobs. Items of unfinished jobs are counted by sweeps.
	Items map[ItemStatus]int64
	Stuck int64 // jobs without progress, as the last sweep has seen them
}

// Numbers returns the counters of all jobs.
func (s *Service) Numbers(ctx context.Context) (Numbers, error) {
	items, err := s.rdb.HGetAll(ctx, itemsKey).Result()
	if err != nil {
		return Numbers{}, fmt.Errorf("read the counters of jobs: %w", err)
	}
	r := record(items)
	n := Numbers{Items: map[ItemStatus]int64{}, Stuck: r.int("stuck")}
	for _, state := range ItemStatuses {
		n.Items[state] = r.int(string(state))
	}
	return n, nil
}

// by returns the items by state.
func (c Counts) by() map[ItemStatus]int64 {
	return map[ItemStatus]int64{
		ItemPending: c.Pending, ItemValidating: c.Validating, ItemIntegrated: c.Integrated,
		ItemRejected: c.Rejected, ItemFailed: c.Failed, ItemReview: c.Review,
	}
}

// tally is how the scripts get the items by state.
func (c Counts) tally() string {
	var parts []string
	by := c.by()
	for _, state := range ItemStatuses {
		if n := by[state]; n > 0 {
			parts = append(parts, string(state)+"="+strconv.FormatInt(n, 10))
		}
	}
	return strings.Join(parts, " ")
}

// tally counts the items of a job that has not ended, unless they are counted already, and lists the job if some of them
// wait for a decision.
func (s *Service) tally(ctx context.Context, j *Job, r record) error {
	items := j.Items.tally()
	if items == r["counted"] && j.Items.Review == 0 {
		return nil
	}
	_, err := s.run(ctx, "count the items of job "+j.ID, "tally", []string{recordKey(j.ID), itemsKey, reviewsKey}, items, j.ID)
	return err
}

// storeStuck stores how many jobs a sweep has found stuck.
func (s *Service) storeStuck(ctx context.Context, n int64) error {
	if err := s.rdb.HSet(ctx, itemsKey, "stuck", n).Err(); err != nil {
		return fmt.Errorf("store how many jobs are stuck: %w", err)
	}
	return nil
}
