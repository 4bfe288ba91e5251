package ui

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
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

// jobChanges are the actions of operators on jobs and items.
type jobChanges struct{ Config }

// all returns the actions on jobs and items by path.
func (c jobChanges) all() map[string]webui.Action {
	actions := map[string]webui.Action{
		"/jobs/{job}/cancel": {Confirm: c.ask(askCancel), Do: c.do(func(r *http.Request, id string) error {
			_, _, err := c.Jobs.Cancel(r.Context(), id, r.PostFormValue("cleanup") != "")
			return err
		})},
		"/jobs/{job}/retry": {Confirm: c.ask(askRetry), Do: c.do(func(r *http.Request, id string) error {
			_, err := c.Jobs.Retry(r.Context(), id)
			return err
		})},
		"/jobs/{job}/pause": {Confirm: c.ask(func(_ *http.Request, j jobs.Job) (webui.Question, error) {
			return webui.Question{Title: "Pause the " + named(j), Button: "Pause", Text: "No agent gets its work until you resume it. Agents complete the assignments that they hold."}, nil
		}), Do: c.do(func(r *http.Request, id string) error { _, err := c.Jobs.Pause(r.Context(), id); return err })},
		"/jobs/{job}/resume": {Confirm: c.ask(func(_ *http.Request, j jobs.Job) (webui.Question, error) {
			return webui.Question{Title: "Resume the " + named(j), Button: "Resume", Text: "Agents get its work again."}, nil
		}), Do: c.do(func(r *http.Request, id string) error { _, err := c.Jobs.Resume(r.Context(), id); return err })},
		"/jobs/{job}/delete":             {Confirm: c.ask(askDelete), Do: c.delete},
		"/jobs/{job}/stages/{stage}/end": {Confirm: c.ask(askStage), Do: c.do(c.endStage)},
		"/jobs/{job}/accept-all": {Confirm: c.ask(func(_ *http.Request, j jobs.Job) (webui.Question, error) {
			return webui.Question{
				Title: "Accept all " + inReview(j), Button: "Accept them", Text: "They go to their next stage, or are integrated by their last one.",
				Fields: []webui.Field{{Name: "reason", Type: "textarea", Label: "Comment", Max: maxReason}},
			}, nil
		}), Do: c.do(c.decideAll(true))},
		"/jobs/{job}/reject-all": {Confirm: c.ask(func(_ *http.Request, j jobs.Job) (webui.Question, error) {
			return webui.Question{
				Title: "Reject all " + inReview(j), Button: "Reject them", Danger: true, Text: "The items fail and are not integrated.",
				Fields: []webui.Field{{Name: "reason", Type: "textarea", Label: "Reason", Max: maxReason, Required: true}},
			}, nil
		}), Do: c.do(c.decideAll(false))},
	}
	if c.Pipelines != nil {
		actions["/jobs/start"] = webui.Action{Confirm: c.askStart, Do: c.start}
		actions["/jobs/{job}/again"] = webui.Action{Confirm: c.ask(func(_ *http.Request, j jobs.Job) (webui.Question, error) {
			return webui.Question{
				Title: "Run the " + named(j) + " again", Button: "Create the next version",
				Text: "A new job is created with the same prompt, document and context. It is the next version of this job. You can compare the two.",
			}, nil
		}), Do: c.again}
	}
	for path, a := range actions {
		a.Class = webui.Operate
		actions[path] = a
	}
	return actions
}

func jobURL(id string) string { return jobsAt + "/" + url.PathEscape(id) }

// itemURL returns the URL of the page of an item. The key is in the query because it may be "..".
func itemURL(id, key string) string {
	return jobURL(id) + "/item?" + url.Values{"key": {key}}.Encode()
}

// ask returns the confirmation of an action on a job. q may reject the job.
func (c jobChanges) ask(q func(*http.Request, jobs.Job) (webui.Question, error)) func(context.Context, *http.Request) (webui.Question, error) {
	return func(ctx context.Context, r *http.Request) (webui.Question, error) {
		id := r.PathValue("job")
		j, err := c.Jobs.Get(ctx, id)
		if err != nil {
			return webui.Question{}, noJob(id, err)
		}
		asked, err := q(r, j)
		asked.Back, asked.At = jobURL(id), jobsAt
		return asked, err
	}
}

// do returns an action on a job that leads to its page. The request passed to change has the context of the action.
func (c jobChanges) do(change func(r *http.Request, id string) error) func(context.Context, *http.Request) (webui.Result, error) {
	return func(ctx context.Context, r *http.Request) (webui.Result, error) {
		id := r.PathValue("job")
		return webui.Result{To: jobURL(id)}, noJob(id, change(r.WithContext(ctx), id))
	}
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

func (c jobChanges) again(ctx context.Context, r *http.Request) (webui.Result, error) {
	next, err := c.Jobs.Rerun(ctx, r.PathValue("job"))
	return webui.Result{To: jobURL(next.ID)}, noJob(r.PathValue("job"), err)
}

func askDelete(_ *http.Request, j jobs.Job) (webui.Question, error) {
	if !j.Status.Terminal() {
		return webui.Question{}, fmt.Errorf("%w: it is %s", jobs.ErrNotEnded, j.Status)
	}
	return webui.Question{
		Title: "Delete the " + named(j), Button: "Delete the job", Danger: true,
		Text: fmt.Sprintf("The job is removed, with its %d items, its events, and its document unless another job has it. This cannot be undone.", j.Items.Total),
	}, nil
}

func (c jobChanges) delete(ctx context.Context, r *http.Request) (webui.Result, error) {
	return webui.Result{To: jobsAt}, noJob(r.PathValue("job"), c.Jobs.Delete(ctx, r.PathValue("job")))
}

func askStage(r *http.Request, j jobs.Job) (webui.Question, error) {
	stage := r.PathValue("stage")
	for _, st := range j.Stages {
		if st.Name != stage {
			continue
		}
		text := "Agents lose their work on this stage. Its waiting items are rejected, and the job continues without them."
		if st.Takes == pipeline.TakesJob {
			text = "An agent loses its work on this stage. The job continues with the existing items."
		}
		return webui.Question{
			Title: "End stage " + stage + " of the " + named(j), Text: text + " Alternatively, the job fails. This cannot be undone.", Button: "End the stage", Danger: true,
			Fields: []webui.Field{
				{Name: "how", Type: "select", Label: "Result", Options: []webui.Option{{Value: "complete", Text: "Completed: the job continues"}, {Value: "fail", Text: "Failed: the job fails"}}},
				{Name: "reason", Type: "text", Label: "Why it failed", Hint: "Needed if it fails.", Max: 1000},
			},
		}, nil
	}
	return webui.Question{}, webui.NotFound("Stage not found.")
}

func (c jobChanges) endStage(r *http.Request, id string) error {
	failure := ""
	switch r.PostFormValue("how") {
	case "complete":
	case "fail":
		if failure = strings.TrimSpace(r.PostFormValue("reason")); failure == "" || len(failure) > maxReason {
			return webui.Invalid("Enter a reason of at most %d bytes.", maxReason)
		}
	default:
		return webui.Invalid("Choose a result of the stage.")
	}
	_, err := c.Jobs.CompleteStage(r.Context(), id, r.PathValue("stage"), failure)
	return err
}

// decideAll returns the change that accepts or rejects all items of a job in review.
func (c jobChanges) decideAll(accept bool) func(*http.Request, string) error {
	return func(r *http.Request, id string) error {
		d := jobs.Decision{Accept: accept, Reason: strings.TrimSpace(r.PostFormValue("reason")), By: access.CallerOf(r.Context()).Name}
		if !accept && d.Reason == "" {
			return webui.Invalid("To reject items, give a reason.")
		}
		_, err := c.Jobs.DecideAll(r.Context(), id, nil, d)
		return err
	}
}

func (c jobChanges) askStart(_ context.Context, r *http.Request) (webui.Question, error) {
	var options []webui.Option
	for _, p := range c.Pipelines.List() {
		text := p.Name
		if p.Description != "" {
			text += ": " + clip.Line(p.Description, 80)
		}
		options = append(options, webui.Option{Value: p.Name, Text: webui.Plain(text)})
	}
	chosen := r.URL.Query().Get("pipeline")
	if chosen == "" {
		chosen = pipeline.Default
	}
	q := webui.Question{
		Title: "Start a job", Button: "Start the job", Back: jobsAt, At: jobsAt,
		Text: "The agents of the pipeline's stages do the work. If a job with the same work exists, jobs.dedupe decides whether that job is shown or a new one is created.",
		Fields: []webui.Field{
			{Name: "pipeline", Type: "select", Label: "Pipeline", Value: chosen, Options: options},
			{Name: "prompt", Type: "textarea", Label: "Prompt", Hint: "The request for the agents.", Required: true, Max: maxPrompt},
		},
	}
	if c.Documents != nil {
		q.Fields = append(q.Fields,
			webui.Field{Name: "url", Type: "text", Label: "URL of the document", Hint: "Where the document is fetched from, or leave it empty.", Max: maxURL},
			webui.Field{Name: "document", Type: "textarea", Label: "Text of the document", Hint: "Instead of a URL. For a file use muster jobs start --document FILE.", Max: maxText})
	}
	q.Fields = append(q.Fields, webui.Field{Name: "priority", Type: "number", Label: "Priority", Value: "0", Min: -jobs.MaxPriority, Max: jobs.MaxPriority, Hint: "A step is worth a minute of waiting."})
	return q, nil
}

func (c jobChanges) start(ctx context.Context, r *http.Request) (webui.Result, error) {
	req := jobs.Request{Pipeline: r.PostFormValue("pipeline"), Prompt: r.PostFormValue("prompt")}
	address, text := strings.TrimSpace(r.PostFormValue("url")), r.PostFormValue("document")
	if strings.TrimSpace(req.Prompt) == "" {
		return webui.Result{}, webui.Invalid("Enter a prompt.")
	}
	if priority := strings.TrimSpace(r.PostFormValue("priority")); priority != "" {
		var err error
		if req.Priority, err = strconv.Atoi(priority); err != nil {
			return webui.Result{}, webui.Invalid("The priority must be a number from %d to %d.", -jobs.MaxPriority, jobs.MaxPriority)
		}
	}
	switch {
	case address == "" && strings.TrimSpace(text) == "":
	case c.Documents == nil:
		return webui.Result{}, webui.Invalid("Documents are not stored here.")
	case address != "" && strings.TrimSpace(text) != "":
		return webui.Result{}, webui.Invalid("Give the document as a URL or as a text, not both.")
	case len(address) > maxURL:
		return webui.Result{}, webui.Invalid("The URL is too long: at most %d bytes.", maxURL)
	case address != "":
		d, err := c.Documents.Fetch(ctx, address)
		if err != nil {
			return webui.Result{}, err
		}
		req.Document = &d
	default:
		d, err := c.Documents.Put(ctx, "document.txt", strings.NewReader(text))
		if err != nil {
			return webui.Result{}, err
		}
		req.Document = &d
	}
	j, created, err := c.Jobs.Create(ctx, req)
	if err != nil {
		return webui.Result{}, err
	}
	done := webui.Result{To: jobURL(j.ID)}
	if !created {
		done.Title, done.Text = "Existing job", "A job with the same work exists, so no other job was created. See the setting jobs.dedupe."
	}
	return done, nil
}
