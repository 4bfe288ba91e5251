package api

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"muster/jobs"
	"muster/jobs/pipeline"
	"muster/orchestrator/access"
	"muster/orchestrator/api/client"
)

// Job is a job with the numbers that clients use most.
type Job = client.Job

// viewOf returns a job with its numbers.
func viewOf(j jobs.Job) Job {
	v := Job{Job: j, JobID: j.ID, TotalTokens: j.Usage["tokens"], TotalRequests: j.Usage["requests"]}
	for _, stage := range j.Stages {
		switch {
		case stage.Name == "create" || v.CreatorStatus == "" && stage.Role == "creator":
			v.CreatorStatus = stage.Status
		case stage.Name == "validate" || v.ValidatorStatus == "" && stage.Role == "validator":
			v.ValidatorStatus = stage.Status
		}
	}
	if j.Items.Total > 0 {
		v.Percent = 100 * float64(j.Items.Processed()) / float64(j.Items.Total)
	}
	return v
}

// filterOf returns the filter of a request.
func filterOf(in *client.JobFilter) (jobs.Filter, error) {
	f := statusFilter(in.Status)
	f.Name, f.Label, f.Offset, f.Limit = in.Name, in.Label, in.Offset, in.Limit
	for _, pair := range in.Context {
		key, value, _ := strings.Cut(pair, "=")
		if old, twice := f.Context[key]; twice && old != value {
			return f, badField("query.context", "%s has two values, and no job has both", key)
		}
		if f.Context == nil {
			f.Context = map[string]string{}
		}
		f.Context[key] = value
	}
	var err error
	f.Cursor, err = readCursor("jobs", in.Cursor)
	return f, err
}

// statusFilter returns a filter for words of a parameter status.
func statusFilter(words []string) (f jobs.Filter) {
	for _, word := range words {
		if word == "pending" {
			f.Statuses = append(f.Statuses, jobs.Open...)
			continue
		}
		f.Statuses = append(f.Statuses, jobs.Status(word))
	}
	return f
}

// unversionedJobsInput selects jobs as the first release did.
type unversionedJobsInput struct {
	Status []string `query:"status,explode" enum:"created,processing,completed,failed,cancelled,pending" maxItems:"6" doc:"any of these; pending selects jobs with a pending stage; may be repeated"`
	Offset int      `query:"offset" default:"0" minimum:"0" maximum:"10000" doc:"number of jobs to skip; use a cursor for more"`
	Limit  int      `query:"limit" default:"50" minimum:"1" maximum:"100" doc:"jobs of a page"`
}

// readCursor returns the position that makeCursor encoded.
func readCursor(of, cursor string) (string, error) {
	if cursor == "" {
		return "", nil
	}
	data, err := base64.RawURLEncoding.DecodeString(cursor)
	rest, ok := strings.CutPrefix(string(data), of+":")
	if err != nil || !ok || plainText(rest) != "" {
		return "", badField("query.cursor", "no cursor of this list; take next of the page before")
	}
	return rest, nil
}

// makeCursor encodes a position as an opaque cursor.
func makeCursor(of, next string) string {
	if next == "" {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString([]byte(of + ":" + next))
}

// JobList is a page of jobs as the first release has it.
type JobList struct {
	Jobs   []Job `json:"jobs" doc:"the newest first"`
	Total  int64 `json:"total" doc:"number of jobs on all pages; -1 where it would take a scan"`
	Limit  int   `json:"limit"`
	Offset int   `json:"offset"`
}

type jobOutput struct {
	ETag string `header:"ETag" doc:"the version, for If-Match"`
	Body Job
}

func outputOf(j jobs.Job) *jobOutput {
	return &jobOutput{ETag: strconv.Quote(strconv.FormatInt(j.Version, 10)), Body: viewOf(j)}
}

type unversionedStuckOutput struct {
	Body struct {
		Jobs []jobs.Stuck `json:"jobs"`
	} `nameHint:"StuckJobs"`
}

// addJobs adds the operations that read jobs.
func addJobs(s *server) {
	implement(s, client.ListJobs, s.listJobs)
	op := describe(s, http.MethodGet, "/jobs", "listJobsUnversioned", tagJobs, "List jobs, the newest first")
	example(&op, http.StatusOK, JobList{Jobs: []Job{exampleJob()}, Total: 1, Limit: 50})
	route(s, op, 0, body(s.listUnversioned))

	implement(s, client.ListStuckJobs, func(ctx context.Context, _ *client.None) (client.Page[jobs.Stuck], error) {
		return pageOf(s.cfg.Jobs.Stuck(ctx))
	})
	op = describe(s, http.MethodGet, "/jobs/stuck", "listStuckJobsUnversioned", tagJobs, "List the jobs without progress")
	route(s, op, 0, func(ctx context.Context, _ *nothing) (*unversionedStuckOutput, error) {
		stuck, err := s.cfg.Jobs.Stuck(ctx)
		out := &unversionedStuckOutput{}
		out.Body.Jobs = orEmpty(stuck)
		return out, err
	})

	op = s.unversioned(client.GetJob.Declaration)
	example(&op, http.StatusOK, exampleJob())
	routeBoth(s, op, 0, s.get)

	routeBoth(s, s.unversioned(client.GetJobProgress.Declaration), 0, body(func(ctx context.Context, in *client.JobPath) (jobs.Progress, error) {
		return s.cfg.Jobs.Progress(ctx, in.ID)
	}))
}

// pageOf returns a list as its only page.
func pageOf[T any](list []T, err error) (client.Page[T], error) {
	return client.Page[T]{Data: orEmpty(list)}, err
}

// viewsOf returns the jobs of a page.
func viewsOf(page jobs.Page) []Job {
	list := []Job{}
	for _, j := range page.Jobs {
		list = append(list, viewOf(j))
	}
	return list
}

func (s *server) listJobs(ctx context.Context, in *client.JobFilter) (out client.Page[Job], err error) {
	f, err := filterOf(in)
	if err != nil {
		return out, err
	}
	if s.cfg.Pipelines != nil {
		if err := f.CheckContext(s.cfg.Pipelines.List()); err != nil {
			return out, err
		}
	}
	page, err := s.cfg.Jobs.List(ctx, f)
	return client.Page[Job]{Data: viewsOf(page), Next: makeCursor("jobs", page.Next)}, err
}

func (s *server) listUnversioned(ctx context.Context, in *unversionedJobsInput) (JobList, error) {
	f := statusFilter(in.Status)
	f.Limit, f.Offset = in.Limit, in.Offset
	page, err := s.cfg.Jobs.List(ctx, f)
	return JobList{Jobs: viewsOf(page), Total: page.Total, Limit: in.Limit, Offset: in.Offset}, err
}

func (s *server) get(ctx context.Context, in *client.JobPath) (*jobOutput, error) {
	if err := s.reads(ctx, in.ID); err != nil {
		return nil, err
	}
	j, err := s.cfg.Jobs.Get(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	return outputOf(j), nil
}

// exampleJob is a job for the description.
func exampleJob() Job {
	const id = "0f0e6b1c-6c5e-4b7e-9f49-0a4b2f6f3d11"
	return viewOf(jobs.Job{
		ID: id, Kind: jobs.KindPipeline, Name: pipeline.Default, Status: jobs.Processing, Version: 3, Prompt: "List the requirements",
		Context: json.RawMessage(`{"customer":"acme"}`), Generation: 1, Items: jobs.Counts{Total: 10, Pending: 6, Integrated: 4},
		Usage: map[string]int64{"tokens": 1500, "requests": 2},
		Stages: []jobs.Stage{
			{Name: "create", Role: "creator", Takes: pipeline.TakesJob, Status: jobs.StageCompleted},
			{Name: "validate", Role: "validator", Takes: pipeline.TakesItem, Status: jobs.StageProcessing, Pending: 6},
		},
	})
}

// addItems adds the operations on the items of jobs.
func addItems(s *server) {
	implement(s, client.ListItems, func(ctx context.Context, in *client.ItemFilter) (out client.Page[jobs.Item], err error) {
		if err := s.reads(ctx, in.ID); err != nil {
			return out, err
		}
		cursor, err := readCursor("items", in.Cursor)
		if err != nil {
			return out, err
		}
		page, err := s.cfg.Jobs.Items(ctx, in.ID, jobs.ItemFilter{Status: jobs.ItemStatus(in.Status), Cursor: cursor, Limit: in.Limit})
		return client.Page[jobs.Item]{Data: orEmpty(page.Items), Next: makeCursor("items", page.Next)}, err
	})
	implement(s, client.GetItem, func(ctx context.Context, in *client.ItemPath) (out jobs.Item, err error) {
		if err := s.reads(ctx, in.ID); err != nil {
			return out, err
		}
		return s.cfg.Jobs.Item(ctx, in.ID, in.Key)
	})
	implement(s, client.DecideItem, func(ctx context.Context, in *client.ItemDecision) (jobs.Item, error) {
		d := jobs.Decision{Accept: in.Body.Accept, Reason: in.Body.Reason, Patch: json.RawMessage(in.Body.Item), By: access.CallerOf(ctx).Name}
		return s.cfg.Jobs.Decide(ctx, in.ID, in.Key, d)
	})
	implement(s, client.DecideItems, func(ctx context.Context, in *client.ItemDecisions) (client.DecidedItems, error) {
		n, err := s.cfg.Jobs.DecideAll(ctx, in.ID, in.Body.Keys, jobs.Decision{Accept: in.Body.Accept, Reason: in.Body.Reason, By: access.CallerOf(ctx).Name})
		return client.DecidedItems{Decided: n}, err
	})
	implement(s, client.ListReviews, func(ctx context.Context, in *client.ReviewFilter) (client.Page[jobs.Item], error) {
		reviews, err := s.cfg.Jobs.Reviews(ctx, in.Limit)
		return pageOf(reviews.Items, err)
	})
}

// jobCommands changes jobs.
type jobCommands struct{ jobs *jobs.Service }

// addJobCommands adds the operations that change jobs.
func addJobCommands(s *server) {
	c := jobCommands{s.cfg.Jobs}
	implementOutput(s, client.EditJob, c.edit)
	implementNone(s, client.DeleteJob, func(ctx context.Context, in *client.JobPath) error { return c.jobs.Delete(ctx, in.ID) })
	op := describe(s, http.MethodDelete, "/jobs/{id}", "cancelJobByDelete", tagJobs, "Cancel a job", http.StatusNotFound, http.StatusConflict)
	op.Description = "The same as POST /v1/jobs/{id}/cancel."
	op.DefaultStatus = http.StatusOK
	route(s, op, 0, body(c.cancel))
	routeBoth(s, s.unversioned(client.CancelJob.Declaration), 0, body(c.cancel))
	implement(s, client.RetryJob, c.retry)
	implementOutput(s, client.RerunJob, func(ctx context.Context, in *client.JobPath) (*createOutput, error) {
		j, err := c.jobs.Rerun(ctx, in.ID)
		return &createOutput{Status: http.StatusCreated, Location: "/v1/jobs/" + j.ID, Body: viewOf(j)}, err
	})
	implementOutput(s, client.PauseJob, func(ctx context.Context, in *client.JobPath) (*jobOutput, error) {
		return changed(c.jobs.Pause(ctx, in.ID))
	})
	implementOutput(s, client.ResumeJob, func(ctx context.Context, in *client.JobPath) (*jobOutput, error) {
		return changed(c.jobs.Resume(ctx, in.ID))
	})
	implementOutput(s, client.CompleteStage, func(ctx context.Context, in *client.StagePath) (*jobOutput, error) {
		return changed(c.jobs.CompleteStage(ctx, in.ID, in.Stage, ""))
	})
	implementOutput(s, client.FailStage, func(ctx context.Context, in *client.StageFail) (*jobOutput, error) {
		return changed(c.jobs.CompleteStage(ctx, in.ID, in.Stage, in.Body.Error))
	})
}

// entityTag is a version as the header If-Match has it.
var entityTag = regexp.MustCompile(`^(?:W/)?"?([0-9]{1,18})"?$`)

func (c jobCommands) edit(ctx context.Context, in *client.JobChange) (*jobOutput, error) {
	tag := entityTag.FindStringSubmatch(in.IfMatch)
	if tag == nil {
		return nil, badField("header.If-Match", "the version of the job is expected, as in its ETag")
	}
	version, err := strconv.ParseInt(tag[1], 10, 64)
	if err != nil {
		return nil, badField("header.If-Match", "%v", err)
	}
	e := jobs.Edit{Priority: in.Body.Priority, Context: json.RawMessage(in.Body.Context), Labels: in.Body.Labels}
	j, err := c.jobs.Edit(ctx, in.ID, version, e)
	if err != nil {
		return nil, err
	}
	return outputOf(j), nil
}

func (c jobCommands) cancel(ctx context.Context, in *client.JobCancel) (out client.CancelledJob, err error) {
	j, cleaned, err := c.jobs.Cancel(ctx, in.ID, in.Cleanup)
	return client.CancelledJob{Success: err == nil, JobID: in.ID, Status: j.Status, Cleanup: cleaned}, err
}

func (c jobCommands) retry(ctx context.Context, in *client.JobRetrial) (client.RetriedJob, error) {
	var keys []string
	if in.Body != nil {
		keys = in.Body.Keys
	}
	n, err := c.jobs.Retry(ctx, in.ID, keys...)
	return client.RetriedJob{JobID: in.ID, Retried: n}, err
}

// changed returns a job that was changed.
func changed(j jobs.Job, err error) (*jobOutput, error) {
	if err != nil {
		return nil, err
	}
	return outputOf(j), nil
}

type daysOutput struct {
	Body struct {
		Days []jobs.Day `json:"days" doc:"the newest first, in UTC"`
	} `nameHint:"DailyStatistics"`
}

// addNumbers adds the daily statistics.
func addNumbers(s *server) {
	implement(s, client.ListJobDays, func(ctx context.Context, in *client.DayFilter) (client.Page[jobs.Day], error) {
		return pageOf(s.cfg.Jobs.Daily(ctx, in.Days))
	})
	op := describe(s, http.MethodGet, "/stats/daily", "getDailyStatistics", tagState, "Count the jobs of each day, by status")
	route(s, op, 0, func(ctx context.Context, in *client.DayFilter) (*daysOutput, error) {
		days, err := s.cfg.Jobs.Daily(ctx, in.Days)
		if err != nil {
			return nil, err
		}
		out := &daysOutput{}
		out.Body.Days = orEmpty(days)
		return out, nil
	})
}

// orEmpty returns an empty list for nil, so that it is [] in JSON.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

func pipelineView(p *pipeline.Pipeline) client.Pipeline {
	v := client.Pipeline{Name: p.Name, Description: p.Description, StuckAfter: duration(p.StuckAfter), Timeout: duration(p.Timeout), Labels: p.Labels, Context: p.Context}
	for _, st := range p.Stages {
		v.Stages = append(v.Stages, client.PipelineStage{
			Name: st.Name, Role: st.Role, Task: st.Task, Takes: st.Takes, States: st.States, Timeout: duration(st.Timeout), MaxRetries: st.MaxRetries, Review: st.Review,
		})
	}
	v.Stages = orEmpty(v.Stages)
	return v
}

func duration(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}

// addPipelines adds the operations that read pipelines.
func addPipelines(s *server) {
	implement(s, client.ListPipelines, func(context.Context, *client.None) (client.Page[client.Pipeline], error) {
		var list []client.Pipeline
		for _, p := range s.cfg.Pipelines.List() {
			list = append(list, pipelineView(p))
		}
		return pageOf(list, nil)
	})
	implement(s, client.GetPipeline, func(_ context.Context, in *client.PipelinePath) (out client.Pipeline, err error) {
		p, err := s.cfg.Pipelines.Get(in.Name)
		if err != nil {
			return out, problem(http.StatusNotFound, "%v", err)
		}
		return pipelineView(p), nil
	})
}
