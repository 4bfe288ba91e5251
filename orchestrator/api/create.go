package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"muster/jobs"
	"muster/jobs/document"
	"muster/orchestrator/api/client"
)

// NewJob is a job to create.
type NewJob = client.NewJob

// requestOf returns the request for a job.
func requestOf(n NewJob, idempotency string) (jobs.Request, error) {
	r := jobs.Request{
		Pipeline: n.Pipeline, Prompt: n.Prompt, Context: json.RawMessage(n.Context), Priority: n.Priority, Labels: n.Labels, After: n.After,
		OnFailure: n.OnFailure, At: n.At, VersionOf: n.VersionOf, Dedupe: n.Dedupe, IdempotencyKey: idempotency,
	}
	if n.StuckAfter != "" {
		d, err := time.ParseDuration(n.StuckAfter)
		if err != nil || d < time.Second || d > 168*time.Hour {
			return r, &jobs.FieldError{Field: "stuck_after", Why: fmt.Sprintf("invalid duration %q: must be between 1s and 168h", n.StuckAfter)}
		}
		r.StuckAfter = d
	}
	return r, nil
}

type createInput struct {
	Key string `header:"Idempotency-Key" maxLength:"200" pattern:"^[ -~]*$" patternDescription:"printable ASCII characters" doc:"the same key is the same job, for 24 hours" example:"order-4711"`

	r *http.Request
	w http.ResponseWriter
}

// Resolve keeps the request: its body is read by the handler.
func (in *createInput) Resolve(ctx huma.Context) []error {
	in.r, in.w = humago.Unwrap(ctx)
	return nil
}

type createOutput struct {
	Status   int
	Location string `header:"Location" doc:"path of the job"`
	Body     Job
}

// creation creates jobs.
type creation struct {
	jobs      *jobs.Service
	documents *document.Store // nil: documents are not supported
	schemas   huma.Registry
	schema    *huma.Schema // of NewJob
}

// addCreate adds the creation of jobs: JSON, or a form with a document.
func addCreate(s *server) {
	schema := s.api.OpenAPI().Components.Schemas.Schema(typeOf[NewJob](), true, "NewJob")
	c := creation{s.cfg.Jobs, s.cfg.Documents, s.api.OpenAPI().Components.Schemas, schema}
	op := describe(s, http.MethodPost, "/jobs", "createJob", tagJobs, "Create a job",
		http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity, http.StatusBadGateway)
	op.Description = "As JSON, or as a form of the same fields with the file document. In a form, context is JSON, and labels and after may be repeated. " +
		"The status 200 with duplicate: true returns an earlier job with the same work."
	op.DefaultStatus = http.StatusCreated
	example(&op, http.StatusCreated, exampleJob())
	for _, op := range s.alsoUnversioned(op) {
		register(s, op, "body.", c.create)
		c.describeBody(s, s.api.OpenAPI().Paths[op.Path].Post)
	}
}

// describeBody adds the bodies and responses to an operation that huma does not know.
func (c creation) describeBody(s *server, described *huma.Operation) {
	joined := *described.Responses["201"]
	joined.Description = "An earlier job with the same work."
	described.Responses["200"] = &joined
	described.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
		"application/json": {Schema: c.schema, Example: map[string]any{"prompt": "List the requirements", "context": map[string]any{"customer": "acme"}}},
	}}
	if s.cfg.Documents != nil {
		described.RequestBody.Content["multipart/form-data"] = &huma.MediaType{Schema: formSchema(c.schemas, c.schema)}
	}
}

func (c creation) create(ctx context.Context, in *createInput) (*createOutput, error) {
	var n NewJob
	var uploaded *jobs.Document
	if isForm(in.r) && c.documents != nil {
		form, err := c.readForm(ctx, in)
		if err != nil {
			return nil, err
		}
		if n, err = c.newJob(form.fields); err != nil {
			return nil, err
		}
		uploaded = form.document
	} else {
		data, p := readJSON(in.w, in.r, maxBody)
		if p != nil {
			return nil, p
		}
		var err error
		if n, err = c.newJob(data); err != nil {
			return nil, err
		}
	}
	j, created, err := CreateJob(ctx, c.jobs, c.documents, n, uploaded, in.Key)
	if err != nil {
		return nil, err
	}
	out := &createOutput{Status: http.StatusCreated, Location: "/v1/jobs/" + j.ID, Body: viewOf(j)}
	if !created {
		out.Status, out.Body.Duplicate = http.StatusOK, true
	}
	return out, nil
}

// newJob reads a request for a job that is JSON.
func (c creation) newJob(data []byte) (n NewJob, err error) {
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		return n, badField("body", "no JSON: %v", err)
	}
	res := &huma.ValidateResult{}
	path := huma.NewPathBuffer(nil, 0)
	path.Push("body")
	huma.Validate(c.schemas, c.schema, path, huma.ModeWriteToServer, v, res)
	if len(res.Errors) == 0 {
		if err := json.NewDecoder(bytes.NewReader(data)).Decode(&n); err != nil {
			return n, badField("body", "%v", err)
		}
		return n, nil
	}
	return n, huma.NewError(http.StatusBadRequest, "", res.Errors...)
}

// CreateJob creates the job of a request with its uploaded document, or with that of its URL, as [jobs.Service.Create]. key is its
// idempotency key.
func CreateJob(ctx context.Context, service *jobs.Service, documents *document.Store, n NewJob, uploaded *jobs.Document, key string) (j jobs.Job, created bool, err error) {
	req, err := requestOf(n, key)
	if err != nil {
		return j, false, err
	}
	req.Document = uploaded
	if n.DocumentURL != "" {
		if uploaded != nil {
			return j, false, errTwoDocuments()
		}
		if documents == nil {
			return j, false, &jobs.FieldError{Field: "document_url", Why: "documents are not stored here"}
		}
		fetched, err := documents.Fetch(ctx, strings.TrimSpace(n.DocumentURL))
		if err != nil {
			return j, false, err
		}
		req.Document = &fetched
	}
	return service.Create(ctx, req)
}
