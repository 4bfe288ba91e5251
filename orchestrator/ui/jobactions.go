package ui

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"muster/internal/clip"
	"muster/internal/webui"
	"muster/jobs"
	"muster/jobs/pipeline"
	"muster/orchestrator/access"
)

const (
	maxPrompt = 50_000  // characters of a form
	maxText   = 100_000 // of a document
	maxURL    = 2000
	maxReason = 10_000
)

// jobActions returns the actions on jobs and items by path.
func (p *pages) jobActions() map[string]webui.Action {
	// of returns an action on a job that leads to its page. q may reject the job.
	of := func(q func(*http.Request, jobs.Job) (webui.Question, error), do func(ctx context.Context, id string, f webui.Form) error) webui.Action {
		return func(ctx context.Context, r *http.Request) (webui.Question, error) {
			id := r.PathValue("job")
			j, err := p.Jobs.Get(ctx, id)
			if err != nil {
				return webui.Question{}, noJob(id, err)
			}
			asked, err := q(r, j)
			if asked.Back = cmp.Or(asked.Back, jobURL(id)); asked.Do == nil {
				asked.Do = func(ctx context.Context, f webui.Form) (webui.Result, error) {
					return webui.Result{}, noJob(id, do(ctx, id, f))
				}
			}
			return asked, err
		}
	}
	actions := map[string]webui.Action{
		"/jobs/{job}/cancel": of(askCancel, func(ctx context.Context, id string, f webui.Form) error {
			_, _, err := p.Jobs.Cancel(ctx, id, f["cleanup"] != "")
			return err
		}),
		"/jobs/{job}/retry": of(askRetry, func(ctx context.Context, id string, _ webui.Form) error {
			_, err := p.Jobs.Retry(ctx, id)
			return err
		}),
		"/jobs/{job}/pause": of(func(_ *http.Request, j jobs.Job) (webui.Question, error) {
			return webui.Question{Title: "Pause the " + named(j), Button: "Pause", Text: "No agent gets its work until you resume it. Agents complete the assignments that they hold."}, nil
		}, func(ctx context.Context, id string, _ webui.Form) error { _, err := p.Jobs.Pause(ctx, id); return err }),
		"/jobs/{job}/resume": of(func(_ *http.Request, j jobs.Job) (webui.Question, error) {
			return webui.Question{Title: "Resume the " + named(j), Button: "Resume", Text: "Agents get its work again."}, nil
		}, func(ctx context.Context, id string, _ webui.Form) error { _, err := p.Jobs.Resume(ctx, id); return err }),
		"/jobs/{job}/delete":             of(askDelete, func(ctx context.Context, id string, _ webui.Form) error { return p.Jobs.Delete(ctx, id) }),
		"/jobs/{job}/stages/{stage}/end": of(p.endStage, nil),
		"/jobs/{job}/accept-all": of(func(_ *http.Request, j jobs.Job) (webui.Question, error) {
			return webui.Question{
				Title: "Accept all " + inReview(j), Button: "Accept them", Text: "They go to their next stage, or are integrated by their last one.",
				Fields: []webui.Field{{Name: "reason", Type: "textarea", Label: "Comment", Max: maxReason}},
			}, nil
		}, p.decideAll(true)),
		"/jobs/{job}/reject-all": of(func(_ *http.Request, j jobs.Job) (webui.Question, error) {
			return webui.Question{
				Title: "Reject all " + inReview(j), Button: "Reject them", Danger: true, Text: "The items fail and are not integrated.",
				Fields: []webui.Field{{Name: "reason", Type: "textarea", Label: "Reason", Max: maxReason, Required: true}},
			}, nil
		}, p.decideAll(false)),
	}
	if p.Pipelines != nil {
		actions["/jobs/start"] = p.startJob
		actions["/jobs/{job}/again"] = of(func(_ *http.Request, j jobs.Job) (webui.Question, error) {
			return webui.Question{
				Title: "Run the " + named(j) + " again", Button: "Create the next version",
				Text: "A new job is created with the same prompt, document and context. It is the next version of this job. You can compare the two.",
				Do: func(ctx context.Context, _ webui.Form) (webui.Result, error) {
					next, err := p.Jobs.Rerun(ctx, j.ID)
					return webui.Result{To: jobURL(next.ID)}, noJob(j.ID, err)
				},
			}, nil
		}, nil)
	}
	return actions
}

func jobURL(id string) string { return jobsAt + "/" + url.PathEscape(id) }

// itemURL returns the URL of the page of an item. The key is in the query because it may be "..".
func itemURL(id, key string) string {
	return jobURL(id) + "/item?" + url.Values{"key": {key}}.Encode()
}

// named returns the description of a job in questions.
func named(j jobs.Job) string { return "job of " + webui.Plain(clip.Line(j.Name, 60)) }

// inReview returns the description of the items of a job in review.
func inReview(j jobs.Job) string {
	return fmt.Sprintf("%d items in review of the %s", j.Items.Review, named(j))
}

func askCancel(_ *http.Request, j jobs.Job) (webui.Question, error) {
	if j.Status.Terminal() {
		return webui.Question{}, fmt.Errorf("%w: it is %s", jobs.ErrTerminal, j.Status)
	}
	q := webui.Question{Title: "Cancel the " + named(j), Button: "Cancel the job", Danger: true}
	q.Text = fmt.Sprintf("%d of %d items are finished and keep their results. The others are cancelled; their agents are asked to stop. This cannot be undone.", j.Items.Processed(), j.Items.Total)
	if j.Document != nil {
		q.Fields = []webui.Field{{Name: "cleanup", Type: "checkbox", Label: "Delete its document", Hint: "A document of another job is kept."}}
	}
	return q, nil
}

func askRetry(_ *http.Request, j jobs.Job) (webui.Question, error) {
	if j.Status == jobs.Cancelled {
		return webui.Question{}, fmt.Errorf("%w: it is %s; create its next version", jobs.ErrTerminal, j.Status)
	}
	text := fmt.Sprintf("%d items that failed get new attempts.", j.Items.Failed)
	if j.Items.Review > 0 {
		text = fmt.Sprintf("%d items that failed, and %d that wait for a decision, get new attempts. These need no decision then, unless they fail again.", j.Items.Failed, j.Items.Review)
	}
	if j.Status.Terminal() {
		text += " The job is reopened and keeps its finished items."
	}
	return webui.Question{Title: "Retry the failed items of the " + named(j), Text: text, Button: "Retry them"}, nil
}

func askDelete(_ *http.Request, j jobs.Job) (webui.Question, error) {
	if !j.Status.Terminal() {
		return webui.Question{}, fmt.Errorf("%w: it is %s", jobs.ErrNotEnded, j.Status)
	}
	return webui.Question{
		Title: "Delete the " + named(j), Button: "Delete the job", Danger: true, Back: jobsAt,
		Text: fmt.Sprintf("The job is removed, with its %d items, its events, and its document unless another job has it. This cannot be undone.", j.Items.Total),
	}, nil
}

// endStage ends a stage of a job.
func (p *pages) endStage(r *http.Request, j jobs.Job) (webui.Question, error) {
	stage := r.PathValue("stage")
	i := slices.IndexFunc(j.Stages, func(st jobs.Stage) bool { return st.Name == stage })
	if i < 0 {
		return webui.Question{}, webui.NotFound("Stage not found.")
	}
	text := "Agents lose their work on this stage. Its waiting items are rejected, and the job continues without them."
	if j.Stages[i].Takes == pipeline.TakesJob {
		text = "An agent loses its work on this stage. The job continues with the existing items."
	}
	return webui.Question{
		Title: "End stage " + stage + " of the " + named(j), Text: text + " Alternatively, the job fails. This cannot be undone.", Button: "End the stage", Danger: true,
		Fields: []webui.Field{
			{Name: "how", Type: "select", Label: "Result", Options: []webui.Option{{Value: "complete", Text: "Completed: the job continues"}, {Value: "fail", Text: "Failed: the job fails"}}},
			{Name: "reason", Type: "text", Label: "Why it failed", Hint: "Needed if it fails.", Max: 1000},
		},
		Do: func(ctx context.Context, f webui.Form) (webui.Result, error) {
			failure := ""
			if f["how"] == "fail" {
				if failure = f["reason"]; failure == "" {
					return webui.Result{}, webui.Invalid("Enter a reason.")
				}
			}
			_, err := p.Jobs.CompleteStage(ctx, j.ID, stage, failure)
			return webui.Result{}, noJob(j.ID, err)
		},
	}, nil
}

// decideAll returns the change that accepts or rejects all items of a job in review.
func (p *pages) decideAll(accept bool) func(context.Context, string, webui.Form) error {
	return func(ctx context.Context, id string, f webui.Form) error {
		_, err := p.Jobs.DecideAll(ctx, id, nil, jobs.Decision{Accept: accept, Reason: strings.TrimSpace(f["reason"]), By: access.CallerOf(ctx).Name})
		return err
	}
}

func (p *pages) startJob(_ context.Context, r *http.Request) (webui.Question, error) {
	var options []webui.Option
	for _, pl := range p.Pipelines.List() {
		text := pl.Name
		if pl.Description != "" {
			text += ": " + clip.Line(pl.Description, 80)
		}
		options = append(options, webui.Option{Value: pl.Name, Text: webui.Plain(text)})
	}
	q := webui.Question{
		Title: "Start a job", Button: "Start the job", Back: jobsAt, Do: p.start,
		Text: "The agents of the pipeline's stages do the work. If a job with the same work exists, jobs.dedupe decides whether that job is shown or a new one is created.",
		Fields: []webui.Field{
			{Name: "pipeline", Type: "select", Label: "Pipeline", Value: cmp.Or(r.URL.Query().Get("pipeline"), pipeline.Default), Options: options},
			{Name: "prompt", Type: "textarea", Label: "Prompt", Hint: "The request for the agents.", Required: true, Max: maxPrompt},
		},
	}
	if p.Documents != nil {
		q.Fields = append(q.Fields,
			webui.Field{Name: "url", Type: "text", Label: "URL of the document", Hint: "Where the document is fetched from, or leave it empty.", Max: maxURL},
			webui.Field{Name: "document", Type: "textarea", Label: "Text of the document", Hint: "Instead of a URL. For a file use muster jobs start --document FILE.", Max: maxText})
	}
	q.Fields = append(q.Fields, webui.Field{Name: "priority", Type: "number", Label: "Priority", Value: "0", Min: -jobs.MaxPriority, Max: jobs.MaxPriority, Hint: "A step is worth a minute of waiting."})
	return q, nil
}

func (p *pages) start(ctx context.Context, f webui.Form) (webui.Result, error) {
	req := jobs.Request{Pipeline: f["pipeline"], Prompt: f["prompt"], Priority: f.Int("priority")}
	address, text := f["url"], f["document"]
	var d jobs.Document
	var err error
	switch {
	case address != "" && strings.TrimSpace(text) != "":
		err = webui.Invalid("Give the document as a URL or as a text, not both.")
	case address != "":
		d, err = p.Documents.Fetch(ctx, address)
		req.Document = &d
	case strings.TrimSpace(text) != "":
		d, err = p.Documents.Put(ctx, "document.txt", strings.NewReader(text))
		req.Document = &d
	}
	if err != nil {
		return webui.Result{}, err
	}
	j, created, err := p.Jobs.Create(ctx, req)
	done := webui.Result{To: jobURL(j.ID)}
	if err == nil && !created {
		done.Title, done.Text = "Existing job", "A job with the same work exists, so no other job was created. See the setting jobs.dedupe."
	}
	return done, err
}
