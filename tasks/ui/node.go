package ui

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"muster/internal/webui"
	"muster/tasks"
	"muster/tasks/tasktype"
)

const (
	// shownBytes is the displayed part of an input or result. The whole is available as a download.
	shownBytes = 16 << 10
	// mostRead is the maximum number of tasks of a workflow whose nodes are all read for a page.
	mostRead    = 20_000
	mostHeaders = 50
)

// nodeData is a node of a workflow.
type nodeData struct {
	Workflow string
	tasktype.NodeDetail
	Before, After []tasktype.Node // dependencies and dependents
	Alone         bool            // the workflow is too large to find the dependencies
	Result        json.RawMessage
	Said          webui.Document // output of the last run
	Log           []tasktype.LogLine
	Trace         string // trace ID of the workflow, or empty
	Last          *lastAttempt
	Hidden        bool // the client may not see inputs and results
	Over          bool // the workflow has completed
}

// lastAttempt is the run after the runs in Tried.
type lastAttempt struct {
	tasktype.NodeAttempt
	Status tasktype.Status
	Took   time.Duration
}

// Took returns the duration of the last run, so far if it is running; negative if there is none.
func (d nodeData) Took(now time.Time) time.Duration {
	n := d.Node
	if n.Status == tasktype.Started && n.Ended.IsZero() && n.Planned.IsZero() {
		n.Ended = now
	}
	return ran(n)
}

// Waited returns the time from the scheduled start to the first start, or until now; negative if the task was never
// ready.
func (d nodeData) Waited(now time.Time) time.Duration {
	end := now
	switch {
	case d.Scheduled.IsZero():
		return -1
	case !d.First.IsZero():
		end = d.First
	case !d.Ended.IsZero():
		end = d.Ended
	}
	return end.Sub(d.Scheduled) // negative before the scheduled start
}

// node reads a node of a workflow, in about ten Redis reads.
func (s *site) node(ctx context.Context, r *http.Request, id, node string) (*nodeData, error) {
	d := &nodeData{Workflow: id}
	var err error
	if d.NodeDetail, err = s.client.Workflow(id).Node(ctx, node); err != nil {
		return nil, err
	}
	if d.Saved != nil { // a step without a name
		d.Steps = append(d.Steps, *d.Saved)
	}
	d.setSaid()
	for name, value := range d.Headers {
		if parts := strings.Split(value, "-"); strings.EqualFold(name, "traceparent") && len(parts) == 4 {
			d.Trace = parts[1]
		}
	}
	if len(d.Headers) > mostHeaders {
		d.Headers = nil
	}
	d.setLast(time.Now())
	if d.Hidden = !s.cfg.Data(r); d.Hidden {
		d.Input, d.Headers, d.Steps, d.Said = nil, nil, nil, webui.Document{}
		return d, nil
	}
	if d.Status == tasktype.Success {
		if d.Result, err = s.result(ctx, id, node); err != nil {
			return nil, err
		}
	}
	d.Log, err = s.log(ctx, r, id, node)
	return d, err
}

// setSaid sets the output of the last run.
func (d *nodeData) setSaid() {
	var said strings.Builder
	for _, c := range d.Output {
		if c.Begin {
			said.Reset()
		}
		said.WriteString(c.Text())
	}
	text := said.String()
	d.Said = webui.Document{Bytes: len(text), Cut: len(text) > shownBytes}
	d.Said.Text = webui.Plain(strings.ToValidUTF8(text[max(0, len(text)-shownBytes):], "\uFFFD"))
}

// setLast sets the current or last run, unless it is in Tried.
func (d *nodeData) setLast(now time.Time) {
	if d.Step() || d.Attempts == 0 || d.Status == tasktype.Retry || d.Status == tasktype.Pending {
		return
	}
	d.Last = &lastAttempt{Status: d.Status, Took: d.Took(now)}
	d.Last.Run, d.Last.Attempt, d.Last.Started, d.Last.Ended, d.Last.Worker = max(d.Runs, 1), d.Attempts, d.Started, d.Ended, d.Worker
	if n := len(d.Tried); n > 0 && d.Tried[n-1].Run == d.Runs { // it completed before another run of its handler
		d.Last.Run, d.Last.Started, d.Last.Worker, d.Last.Took = d.Runs+1, time.Time{}, "", -1
	}
	if d.Failure != nil {
		d.Last.Code, d.Last.Message = d.Failure.Code, d.Failure.Message
	}
}

// neighbours sets the dependencies, dependents, ready time and wait reason of a node of a workflow with nodes.
func (d *nodeData) neighbours(nodes []tasktype.Node) {
	needs := map[string]bool{}
	for i := range nodes {
		if nodes[i].ID == d.ID {
			d.Waits, d.Ready, d.Scheduled = nodes[i].Waits, nodes[i].Ready, nodes[i].Scheduled
			for _, n := range nodes[i].Needs {
				needs[n] = true
			}
		}
	}
	for i := range nodes {
		if needs[nodes[i].ID] {
			d.Before = append(d.Before, nodes[i])
		}
		for _, n := range nodes[i].Needs {
			if n == d.ID {
				d.After = append(d.After, nodes[i])
			}
		}
	}
}

// ToDo returns the choices of an open node.
func (d nodeData) ToDo() []Choice { return openChoices(d.Choices) }

// result returns the result of a node as JSON, or "" if there is none.
func (s *site) result(ctx context.Context, id, node string) (json.RawMessage, error) {
	raw, err := s.client.Workflow(id).NodeValue(ctx, node)
	if errors.Is(err, tasks.ErrNotFound) {
		return nil, nil
	}
	return raw, err
}

// input returns the input of a node as JSON.
func (s *site) input(ctx context.Context, id, node string) (json.RawMessage, error) {
	d, err := s.client.Workflow(id).Node(ctx, node)
	return d.Input, err
}

// download serves JSON of a node as a file.
func (s *site) download(name string, of func(ctx context.Context, id, node string) (json.RawMessage, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), webui.AskTime)
		defer cancel()
		raw, err := json.RawMessage(nil), webui.Forbidden("Inputs and results of tasks may contain secrets; you do not have permission to see them.")
		if s.cfg.Data(r) {
			raw, err = of(ctx, r.PathValue("id"), r.PathValue("node"))
		}
		if err != nil {
			s.Fail(w, r, err)
			return
		}
		h := w.Header()
		h.Set("Content-Type", "application/json")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Content-Disposition", "attachment; filename="+strconv.Quote(name))
		h.Set("Content-Length", strconv.Itoa(len(raw)))
		_, _ = w.Write(raw)
	}
}
