package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"muster/jobs"
	"muster/orchestrator/event"
)

// maxEvent is the longest line of a stream of events, in bytes.
const maxEvent = 16 << 20

// Events calls yield with the stored events of a job, or of all jobs if id is "", and with follow also with new ones.
// It returns when ctx is done, the server ends the stream, or yield returns an error. after is the ID of the last
// known event: "" means all stored events, "$" only new ones. gap reports that some events before e were already
// deleted.
func (c *Client) Events(ctx context.Context, id, after string, follow bool, yield func(e event.Event, gap bool) error) error {
	path, query := "/v1/events", url.Values{}
	if id != "" {
		path = jobPath(id, "events")
	}
	if after != "" {
		query.Set("after", after)
	}
	if !follow {
		query.Set("follow", "false")
	}
	res, err := c.send(ctx, http.MethodGet, path, query, http.Header{"Accept": {"text/event-stream"}}, "", nil)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, maxEvent)
	gap := false
	for kind := ""; lines.Scan(); {
		line := lines.Text()
		if name, ok := strings.CutPrefix(line, "event: "); ok {
			kind = name
			continue
		}
		data, ok := strings.CutPrefix(line, "data: ")
		switch {
		case !ok:
		case kind == "gap":
			gap = true
		default:
			var e event.Event
			if err := json.Unmarshal([]byte(data), &e); err != nil {
				return fmt.Errorf("decode an event of %s: %w", c.base, err)
			}
			if err := yield(e, gap); err != nil {
				return err
			}
			gap = false
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return lines.Err()
}

// errEnded ends the stream of events of a finished job.
var errEnded = errors.New("the job has ended")

// WaitJob returns a job once it has ended. It calls progress, if not nil, with the progress after each event of the job, and at
// least every so often. It returns the error of progress.
func (c *Client) WaitJob(ctx context.Context, id string, every time.Duration, progress func(jobs.Progress) error) (Job, error) {
	waiting, stop := context.WithCancelCause(ctx)
	changed, streamed := make(chan struct{}, 1), make(chan struct{})
	defer func() {
		stop(errEnded)
		<-streamed
	}()
	go func() {
		defer close(streamed)
		_ = c.Events(waiting, id, "$", true, func(event.Event, bool) error { // without events, only the ticks remain
			select {
			case changed <- struct{}{}:
			default:
			}
			return nil
		})
	}()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		p, err := GetJobProgress.Call(ctx, c, JobPath{ID: id})
		if err != nil {
			return Job{}, err
		}
		if progress != nil {
			if err := progress(p); err != nil {
				return Job{}, err
			}
		}
		if p.Status.Terminal() {
			return GetJob.Call(ctx, c, JobPath{ID: id})
		}
		select {
		case <-ctx.Done():
			return Job{}, context.Cause(ctx)
		case <-changed:
		case <-tick.C:
		}
	}
}
