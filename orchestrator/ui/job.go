package ui

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"muster/internal/clip"
	"muster/internal/webui"
	"muster/jobs"
	"muster/jobs/pipeline"
	"muster/orchestrator/event"
)

const (
	eventsShown = 20
	errorsRead  = 200     // errors of items, to group them
	groupsShown = 10      // of errors
	promptShown = 4 << 10 // bytes
	agentsShown = 50      // agents with reported usage
)

type jobData struct {
	jobs.Job
	Progress jobs.Progress
	Took     time.Duration // since the start, or until the end
	Left     time.Duration // negative: unknown
	Bar      []part
	Steps    []step
	Errors   []group
	Errored  int // read errors
	Events   []eventRow
	Prompted webui.Document
	Given    webui.Document // context
	Detail   webui.Document // details of the error
	Used     []total
	ByAgent  []agentUse
	Results  []stageResult
	Review   bool // items are in review
	Compared *compareData
}

// step is a stage with its progress bar.
type step struct {
	jobs.Stage
	Done, Total int64 // items that have passed the stage
	Bar         bool
	Open        bool // can be ended manually
}

// eventRow is an event of a list.
type eventRow struct {
	event.Event
	Text string
	Key  string // key of an item
}

// agentUse is the reported usage of an agent.
type agentUse struct {
	Agent string
	Used  []total
}

// Over reports whether the job has terminated.
func (d jobData) Over() bool { return d.Status.Terminal() }

// Failures returns the number of items that a retry gives new attempts.
func (d jobData) Failures() int64 { return d.Items.Failed + d.Items.Review }

// Reopens reports whether a retry can reopen the job.
func (d jobData) Reopens() bool {
	return d.Status == jobs.Failed || d.Status == jobs.Completed && d.Items.Failed > 0
}

// oneJob shows a job. It reads no items, only the last errors.
func (c jobPages) oneJob(ctx context.Context, r *http.Request) (webui.View, error) {
	id := r.PathValue("job")
	j, progress, err := c.Jobs.Look(ctx, id)
	if err != nil {
		return webui.View{}, noJob(id, err)
	}
	d := jobData{
		Job: j, Progress: progress, Bar: byState(j.Items), Steps: stepsOf(j), Prompted: webui.NewDocument(j.Prompt, promptShown), Given: indented(j.Context),
		Detail: indented(j.ErrorDetails), Used: totals(j.Usage), Left: -1, Review: j.Items.Review > 0 && !j.Status.Terminal(),
		Took: time.Duration(progress.ElapsedSeconds * float64(time.Second)),
	}
	if progress.ETASeconds != nil && progress.PerMinute > 0 {
		d.Left = time.Duration(*progress.ETASeconds * float64(time.Second))
	}
	for _, st := range j.Stages {
		if text := indented(st.Result); text.Text != "" {
			d.Results = append(d.Results, stageResult{st.Name, text})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(j.AgentUsage)) {
		if len(d.ByAgent) < agentsShown {
			d.ByAgent = append(d.ByAgent, agentUse{name, totals(j.AgentUsage[name])})
		}
	}
	if d.Failures() > 0 {
		errs, err := c.Jobs.LastErrors(ctx, id, errorsRead)
		if err != nil {
			return webui.View{}, noJob(id, err)
		}
		d.Errors, d.Errored = grouped(errs), len(errs)
		d.Errors = d.Errors[:min(len(d.Errors), groupsShown)]
	}
	if c.Events != nil {
		list, err := c.Events.Last(ctx, id, eventsShown)
		if err != nil {
			return webui.View{}, err
		}
		for _, e := range list {
			d.Events = append(d.Events, rowOf(e))
		}
	}
	view := webui.View{Name: webui.Plain(j.Name) + " " + string(j.Status), Every: 2 * time.Second}
	if other := r.URL.Query().Get("compare"); other != "" {
		if d.Compared, err = c.compare(ctx, other, id); err != nil {
			return webui.View{}, err
		}
		view.Fixed = true
	}
	view.Data = d
	return view, nil
}

// noJob converts the error of an unknown or invalid job ID to a page.
func noJob(id string, err error) error {
	field := (*jobs.FieldError)(nil)
	if errors.Is(err, jobs.ErrNotFound) || errors.As(err, &field) && field.Field == "job_id" {
		return webui.NotFound("Job not found: " + webui.Plain(clip.Bytes(id, 100)) + ". Jobs are deleted after the time of the setting jobs.keep.")
	}
	return err
}

// stageResult is the result of a stage that takes the job.
type stageResult struct {
	Stage  string
	Result webui.Document
}

// stepsOf returns the stages of a job with their progress bars.
func stepsOf(j jobs.Job) []step {
	var all []step
	var open int64 // items in the stages so far
	for _, st := range j.Stages {
		s := step{Stage: st, Open: !j.Status.Terminal() && st.Status != jobs.StageCompleted && st.Status != jobs.StageFailed}
		s.Error = webui.Plain(clip.Line(s.Error, 300))
		if st.Takes == pipeline.TakesItem {
			open += st.Pending + st.Processing
			s.Bar, s.Total, s.Done = j.Items.Total > 0, j.Items.Total, max(j.Items.Total-open, 0)
		}
		all = append(all, s)
	}
	return all
}

// indented formats JSON for display, and omits an empty object.
func indented(raw json.RawMessage) webui.Document {
	if text := strings.TrimSpace(string(raw)); text == "" || text == "{}" || text == "null" {
		return webui.Document{}
	}
	return webui.NewJSON(raw, promptShown)
}

// rowOf converts an event to a row.
func rowOf(e event.Event) eventRow {
	row := eventRow{Event: e}
	var data struct{ Key, Stage, Error, Reason, Decision, By string }
	if json.Unmarshal(e.Data, &data) == nil {
		row.Key = data.Key
		var parts []string
		for _, p := range []string{data.Stage, data.Error, data.Decision, data.By, data.Reason} {
			if p != "" {
				parts = append(parts, p)
			}
		}
		row.Text = webui.Plain(clip.Line(strings.Join(parts, ": "), 200))
	}
	return row
}
