package api

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"muster/jobs"
	"muster/jobs/pipeline"
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
