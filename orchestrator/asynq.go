package orchestrator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/hibiken/asynq"

	"muster/sites"
	"muster/tasks"
)

// asynqTasks returns the handler of the tasks that a program with only asynq's client can send to the queue "default":
//
//	muster:scrape   {"site": "shop.example", "limit": 0, "direct": false} starts a scrape; so does asynq's scheduler
//	muster:refresh  starts a refresh of the pool of proxies; the payload is empty
//
// A task succeeds when the work is sent or is running already. Its result is the ID of the workflow. A payload that
// cannot be used and an unknown site are not retried.
func (s *System) asynqTasks() asynq.Handler {
	mux := asynq.NewServeMux()
	mux.HandleFunc("muster:scrape", func(ctx context.Context, t *asynq.Task) error {
		var in struct {
			Site   string `json:"site"`
			Limit  int    `json:"limit"`
			Direct bool   `json:"direct"`
		}
		decoder := json.NewDecoder(bytes.NewReader(t.Payload()))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&in); err != nil {
			return fmt.Errorf(`payload of muster:scrape: %w; it is {"site": NAME, "limit": N, "direct": BOOL}: %w`, err, asynq.SkipRetry)
		}
		if in.Limit < 0 {
			return fmt.Errorf("payload of muster:scrape: limit: must not be negative: %w", asynq.SkipRetry)
		}
		if _, err := s.Sites.Registry().Definition(in.Site); err != nil {
			return fmt.Errorf("payload of muster:scrape: site: %w: %w", err, asynq.SkipRetry)
		}
		run, err := s.Sites.Send(ctx, in.Site, sites.ScrapeOptions{Limit: in.Limit, Direct: in.Direct})
		if err != nil && !errors.Is(err, tasks.ErrDuplicate) {
			return err
		}
		return writeID(t, run.ID())
	})
	mux.HandleFunc("muster:refresh", func(ctx context.Context, t *asynq.Task) error {
		id, err := s.proxies.StartRefresh(ctx)
		if err != nil {
			return err
		}
		return writeID(t, id)
	})
	return mux
}

func writeID(t *asynq.Task, id string) error {
	_, err := t.ResultWriter().Write([]byte(id))
	return err
}
