package api

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"muster/jobs"
	"muster/jobs/pipeline"
	"muster/orchestrator/access"
	"muster/sites"
)

// Job is a job with the numbers that clients ask for most.
type Job struct {
	jobs.Job
	JobID           string           `json:"job_id" doc:"the same as id"`
	CreatorStatus   jobs.StageStatus `json:"creator_status,omitempty" doc:"of the stage create"`
	ValidatorStatus jobs.StageStatus `json:"validator_status,omitempty" doc:"of the stage validate"`
	TotalTokens     int64            `json:"total_tokens"`
	TotalRequests   int64            `json:"total_requests"`
	Percent         float64          `json:"progress_percent" doc:"items that have reached a final state"`
	Duplicate       bool             `json:"duplicate,omitempty" doc:"the job was there already"`
	Scrape          json.RawMessage  `json:"scrape,omitempty" doc:"of a job of kind scrape: its pages, its records and its report"`
}

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

// JobPath is the path of a job.
type JobPath struct {
	ID string `path:"id" maxLength:"100" pattern:"^([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9a-v]{24}|[a-z]+_[A-Za-z0-9_.-]+)$" patternDescription:"the id of a job, as in 0f0e6b1c-6c5e-4b7e-9f49-0a4b2f6f3d11" doc:"id of the job" example:"0f0e6b1c-6c5e-4b7e-9f49-0a4b2f6f3d11"`
}

type listInput struct {
	Status []string `query:"status" enum:"created,processing,completed,failed,cancelled,pending" maxItems:"6" doc:"any of these; pending: a stage is pending"`
	Kind   string   `query:"kind" enum:"pipeline,scrape,refresh,queue" doc:"what runs the job"`
	Name   string   `query:"name" maxLength:"200" doc:"of the pipeline, the site or the queue"`
	Label  string   `query:"label" maxLength:"100"`
	Cursor string   `query:"cursor" maxLength:"500" doc:"next of the page before"`
	Offset int      `query:"offset" default:"0" minimum:"0" maximum:"1000000" doc:"jobs to leave out"`
	Limit  int      `query:"limit" default:"50" minimum:"1" maximum:"100" doc:"jobs on a page"`

	context map[string]string
}

// contextKey is a key of a job's context that can be asked for.
var contextKey = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,100}$`)

// maxContext is how many keys of the context a request can ask for.
const maxContext = 10

// Resolve reads the parameters context.KEY, and refuses those that there are not.
func (in *listInput) Resolve(ctx huma.Context) []error {
	var errs []error
	known := []string{"status", "kind", "name", "label", "cursor", "offset", "limit"}
	u := ctx.URL()
	for name, values := range u.Query() {
		key, isContext := strings.CutPrefix(name, "context.")
		bad := func(why string) {
			errs = append(errs, &huma.ErrorDetail{Location: "query." + keyOf([]byte(name)), Message: why})
		}
		switch {
		case !isContext && !slices.Contains(known, name):
			bad("unknown query parameter; there are " + strings.Join(known, ", ") + " and context.KEY")
		case !isContext:
			if len(values) > 1 {
				bad("give the parameter once; commas separate several values of status")
			}
		case !contextKey.MatchString(key):
			bad("a key of the context has up to 100 letters, digits, dots, hyphens and underscores")
		case len(values) != 1 || len(values[0]) > 1000:
			bad("one value of up to 1000 bytes is expected")
		case len(in.context) == maxContext:
			bad(fmt.Sprintf("at most %d keys of the context can be asked for", maxContext))
		default:
			if in.context == nil {
				in.context = map[string]string{}
			}
			in.context[key] = values[0]
		}
	}
	return errs
}

// filter is the selection of a request.
func (in *listInput) filter() (jobs.Filter, error) {
	f := jobs.Filter{Kind: in.Kind, Name: in.Name, Label: in.Label, Offset: in.Offset, Limit: in.Limit, Context: in.context}
	for _, status := range in.Status {
		if status == "pending" {
			f.Pending = true
			continue
		}
		f.Statuses = append(f.Statuses, jobs.Status(status))
	}
	var err error
	f.Cursor, err = readCursor("jobs", in.Cursor)
	return f, err
}

// readCursor returns what a cursor of makeCursor was made of.
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

// makeCursor makes a cursor that says nothing to clients.
func makeCursor(of, next string) string {
	if next == "" {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString([]byte(of + ":" + next))
}

// JobList is a page of jobs.
type JobList struct {
	Jobs   []Job  `json:"jobs" doc:"the newest first"`
	Total  int64  `json:"total" doc:"of all pages; -1 where several filters at once would take a scan"`
	Limit  int    `json:"limit"`
	Offset int    `json:"offset"`
	Next   string `json:"next,omitempty" doc:"cursor of the next page; absent on the last"`
}

type listOutput struct{ Body JobList }

type jobOutput struct {
	ETag string `header:"ETag" doc:"the version, for If-Match"`
	Body Job
}

func outputOf(j jobs.Job) *jobOutput {
	return &jobOutput{ETag: strconv.Quote(strconv.FormatInt(j.Version, 10)), Body: viewOf(j)}
}

type stuckOutput struct {
	Body struct {
		Jobs []jobs.Stuck `json:"jobs"`
	} `nameHint:"StuckJobs"`
}

type progressOutput struct{ Body jobs.Progress }

// addJobs adds what reads jobs.
func addJobs(s *server) {
	op := describe(s, http.MethodGet, "/jobs", "listJobs", tagJobs, "List jobs of all kinds")
	op.Description = "Parameters named context.KEY select by values of the context that the pipeline declares, as in context.customer=acme."
	op.RejectUnknownQueryParameters = false // see listInput.Resolve
	example(&op, http.StatusOK, JobList{Jobs: []Job{exampleJob()}, Total: 1, Limit: 50})
	route(s, op, 0, s.list)

	op = describe(s, http.MethodGet, "/jobs/stuck", "listStuckJobs", tagJobs, "List the jobs without progress")
	route(s, op, 0, func(ctx context.Context, _ *nothing) (*stuckOutput, error) {
		stuck, err := s.cfg.Jobs.Stuck(ctx)
		if err != nil {
			return nil, err
		}
		out := &stuckOutput{}
		out.Body.Jobs = orEmpty(stuck)
		return out, nil
	})

	op = describe(s, http.MethodGet, "/jobs/{id}", "getJob", tagJobs, "Get a job", http.StatusNotFound)
	needs(&op, access.Viewer, access.Agent)
	example(&op, http.StatusOK, exampleJob())
	route(s, op, 0, s.get)

	op = describe(s, http.MethodGet, "/jobs/{id}/progress", "getJobProgress", tagJobs, "How far a job is, and how long the rest will take", http.StatusNotFound)
	route(s, op, 0, func(ctx context.Context, in *JobPath) (*progressOutput, error) {
		p, err := s.cfg.Jobs.Progress(ctx, in.ID)
		return &progressOutput{p}, err
	})
}

func (s *server) list(ctx context.Context, in *listInput) (*listOutput, error) {
	f, err := in.filter()
	if err != nil {
		return nil, err
	}
	if s.cfg.Pipelines != nil {
		if err := f.CheckContext(s.cfg.Pipelines.List()); err != nil {
			return nil, err
		}
	}
	page, err := s.cfg.Jobs.List(ctx, f)
	if err != nil {
		return nil, err
	}
	out := &listOutput{JobList{Jobs: []Job{}, Total: page.Total, Limit: in.Limit, Offset: in.Offset, Next: makeCursor("jobs", page.Next)}}
	for _, j := range page.Jobs {
		out.Body.Jobs = append(out.Body.Jobs, viewOf(j))
	}
	return out, nil
}

func (s *server) get(ctx context.Context, in *JobPath) (*jobOutput, error) {
	if err := s.reads(ctx, in.ID); err != nil {
		return nil, err
	}
	j, err := s.cfg.Jobs.Get(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	out := outputOf(j)
	if j.Kind == jobs.KindScrape && s.cfg.Sites != nil {
		var scrape sites.Job
		if scrape, err = s.cfg.Sites.Job(ctx, in.ID); err == nil { // it is kept for a week
			out.Body.Scrape, err = json.Marshal(scrape)
		}
		if err != nil {
			s.cfg.Logger.DebugContext(ctx, "a scrape has no report", "job", in.ID, "err", err)
		}
	}
	return out, nil
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
