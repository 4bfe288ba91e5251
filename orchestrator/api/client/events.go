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
	"muster/tasks/tasktype"
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
	gap := false
	return c.stream(ctx, path, query, func(kind string, data []byte) error {
		if kind == "gap" {
			gap = true
			return nil
		}
		var e event.Event
		if err := json.Unmarshal(data, &e); err != nil {
			return fmt.Errorf("decode an event of %s: %w", c.base, err)
		}
		defer func() { gap = false }()
		return yield(e, gap)
	})
}

// WorkflowOutput calls yield with the output of the tasks of a workflow or, unless node is empty, of a node. It returns when the workflow or the node has
// ended, ctx is done, or yield returns an error.
func (c *Client) WorkflowOutput(ctx context.Context, id, node string, yield func(tasktype.Chunk) error) error {
	query := url.Values{}
	if node != "" {
		query.Set("node", node)
	}
	ended := false
	err := c.stream(ctx, "/v1/workflows/"+url.PathEscape(id)+"/output", query, func(kind string, data []byte) error {
		if ended = kind == "end"; ended {
			return nil
		}
		var chunk tasktype.Chunk
		if err := json.Unmarshal(data, &chunk); err != nil {
			return fmt.Errorf("decode output of %s: %w", c.base, err)
		}
		return yield(chunk)
	})
	if err == nil && !ended {
		err = fmt.Errorf("the output of workflow %s was cut off by %s; the workflow continues", id, c.base)
	}
	return err
}

// stream calls yield with the kinds and data of server-sent events, until the server ends the stream, ctx is done, or yield returns an error.
func (c *Client) stream(ctx context.Context, path string, query url.Values, yield func(kind string, data []byte) error) error {
	res, err := c.send(ctx, http.MethodGet, path, query, http.Header{"Accept": {"text/event-stream"}}, "", nil)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, maxEvent)
	for kind := ""; lines.Scan(); {
		line := lines.Text()
		if name, ok := strings.CutPrefix(line, "event: "); ok {
			kind = name
		} else if data, ok := strings.CutPrefix(line, "data: "); ok {
			if err := yield(kind, []byte(data)); err != nil {
				return err
			}
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
