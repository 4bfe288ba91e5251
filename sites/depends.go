package sites

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"muster/sites/internal/store"
	"muster/sites/report"
	"muster/tasks"
	"muster/tasks/tasktype"
)

// waitForOthers is how often a job that waits for others looks for their end.
const waitForOthers = time.Second

// errDepends fails a job whose site depends on another that is not complete.
var errDepends = errors.New("not started")

// awaitDependencies returns nil once the jobs that a job waits for are
// complete, later while one of them is under way, and errDepends when one has
// ended otherwise. Then it removes them from the stored request: a job that has
// begun does not wait again.
func (h *handlers) awaitDependencies(ctx context.Context, id string, req store.Request) error {
	if len(req.After) == 0 {
		return nil
	}
	if err := store.AddJob(ctx, h.rdb, id, req); err != nil {
		return err
	}
	stored, err := store.ReadRequest(ctx, h.rdb, id)
	if err != nil || len(stored.After) == 0 {
		return err
	}
	wait := false
	for site, job := range stored.After {
		status, over, err := h.outcome(ctx, job)
		switch {
		case err != nil:
			return err
		case !over:
			wait = true
		case status != report.StatusComplete:
			return fmt.Errorf("%w: it depends on %s, whose job %s ended as %s", errDepends, site, job, status)
		}
	}
	if wait {
		return later{waitForOthers}
	}
	stored.After, stored.Began = nil, time.Now().UnixMilli() // its time counts from here
	spec, err := json.Marshal(stored)
	if err != nil {
		return fmt.Errorf("encode job %s: %w", id, err)
	}
	if err := h.rdb.Set(ctx, store.RequestKey(id), spec, store.Keep).Err(); err != nil {
		return fmt.Errorf("store job %s: %w", id, err)
	}
	return nil
}

// outcome returns the status of a job, and whether it is over. Unlike
// Reader.Job it needs no stored request: the process that sent the job may have
// crashed before it stored one.
func (h *handlers) outcome(ctx context.Context, id string) (status string, over bool, err error) {
	sum, closed, err := store.ReadJSON[report.Summary](ctx, h.rdb, store.SummaryKey(id))
	if err != nil || closed {
		return sum.Status, closed, err
	}
	switch st, err := tasks.Attach[report.Summary](h.client, id).Status(ctx); {
	case errors.Is(err, tasks.ErrUnknown):
		return "UNKNOWN", true, nil
	case err != nil:
		return "", false, fmt.Errorf("look at job %s: %w", id, err)
	case st == tasktype.Revoked:
		return JobCanceled, true, nil
	case st.Terminal():
		return JobFailed, true, nil
	}
	return "", false, nil
}
