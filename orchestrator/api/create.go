package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net/http"
	"strconv"
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

const (
	uploadPause = time.Minute // without a byte of an upload
	uploadTime  = 30 * time.Minute
	maxParts    = 300 // of a form
)

// isForm reports whether the body is a form with files.
func isForm(r *http.Request) bool {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && media == "multipart/form-data"
}

// form is a request for a job that was sent as a form.
type form struct {
	fields   []byte // as JSON
	document *jobs.Document
}

// readForm reads a form, and stores its document while it arrives.
func (c creation) readForm(ctx context.Context, in *createInput) (*form, error) {
	limit := c.documents.Limit() + 2*maxBody
	slow := &slowReader{r: http.MaxBytesReader(in.w, in.r.Body, limit), control: http.NewResponseController(in.w), until: time.Now().Add(uploadTime)}
	in.r.Body = slow
	parts, err := in.r.MultipartReader()
	if err != nil {
		return nil, badField("body", "no form: %v", err)
	}
	f := &form{}
	values := map[string][]string{}
	left := int64(maxBody) // bytes of all fields
	for n := 0; ; n++ {
		part, err := parts.NextPart()
		if errors.Is(err, io.EOF) {
			if !slow.ended(in.r) {
				return nil, badField("body", "incomplete form")
			}
			break
		}
		if err != nil {
			return nil, uploadProblem(err)
		}
		if n == maxParts {
			return nil, badField("body", "the form has more than %d parts", maxParts)
		}
		if part.FormName() == "document" {
			if err := c.checkFields(values); err != nil {
				return nil, err
			}
			if err := c.putDocument(ctx, f, part); err != nil {
				return nil, err
			}
			continue
		}
		if left, err = readField(part, values, left); err != nil {
			return nil, err
		}
	}
	if f.fields, err = fieldsAsJSON(values); err != nil {
		return nil, err
	}
	return f, nil
}

// checkFields refuses a form for the fields that come before its document, so that
// a document is not stored for nothing.
func (c creation) checkFields(values map[string][]string) error {
	if values["prompt"] == nil { // it may follow
		values = maps.Clone(values)
		values["prompt"] = []string{"it follows"}
	}
	fields, err := fieldsAsJSON(values)
	if err != nil {
		return err
	}
	n, err := c.newJob(fields)
	if err != nil {
		return err
	}
	if n.DocumentURL != "" {
		return errTwoDocuments()
	}
	_, err = requestOf(n, "")
	return err
}

func errTwoDocuments() error {
	return badField("body.document_url", "document and document_url exclude each other; omit one of them")
}

// uploadProblem is the problem of a body that cannot be read.
func uploadProblem(err error) error {
	if errors.As(err, new(*http.MaxBytesError)) {
		return err
	}
	return badField("body", "the form cannot be read: %v", err)
}

// readField reads a field of a form, and returns the number of bytes left for others.
func readField(part *multipart.Part, values map[string][]string, left int64) (int64, error) {
	name := part.FormName()
	if name == "" || len(name) > 100 || plainText(name) != "" {
		return left, badField("body", "a part of the form has no name that can be used")
	}
	data, err := io.ReadAll(io.LimitReader(part, left+1))
	if err != nil {
		return left, uploadProblem(err)
	}
	if int64(len(data)) > left {
		p := problem(http.StatusRequestEntityTooLarge, "the fields of the form are too large: at most 1 MiB without the document")
		p.Errors = []ProblemField{{Location: "body." + name, Message: "it is too large"}}
		return left, p
	}
	if why := plainText(string(data)); why != "" {
		return left, badField("body."+name, "%s", why)
	}
	values[name] = append(values[name], string(data))
	return left - int64(len(data)), nil
}

// fieldsAsJSON converts the fields of a form to the equivalent JSON body.
func fieldsAsJSON(values map[string][]string) ([]byte, error) {
	fields := map[string]any{}
	for name, list := range values {
		switch name {
		case "labels", "after":
			fields[name] = list
			continue
		}
		if len(list) > 1 {
			return nil, badField("body."+name, "the form has it %d times", len(list))
		}
		text := list[0]
		switch name {
		case "context":
			if !json.Valid([]byte(text)) {
				return nil, badField("body.context", "invalid JSON")
			}
			fields[name] = json.RawMessage(text)
		case "priority":
			n, err := strconv.Atoi(text)
			if err != nil {
				return nil, badField("body.priority", "a whole number is expected")
			}
			fields[name] = n
		default:
			fields[name] = text
		}
	}
	return json.Marshal(fields)
}

// putDocument stores the document of a form.
func (c creation) putDocument(ctx context.Context, f *form, part *multipart.Part) error {
	if f.document != nil {
		return badField("body.document", "the form has more than one document")
	}
	d, err := c.documents.Put(ctx, part.FileName(), part)
	var tooLarge *document.TooLargeError
	switch {
	case errors.As(err, &tooLarge):
		p := problem(http.StatusRequestEntityTooLarge, "the document is too large; see the setting jobs.max_document_mb")
		p.Errors = []ProblemField{{Location: "body.document", Message: "at most " + strconv.FormatInt(tooLarge.Limit, 10) + " bytes"}}
		return p
	case errors.As(err, new(*document.ReadError)):
		return uploadProblem(err)
	case err != nil:
		return err
	}
	f.document = &d
	return nil
}

// slowReader reads a long body: the client may pause for uploadPause at a time, within a total limit.
type slowReader struct {
	r       io.ReadCloser
	control *http.ResponseController
	until   time.Time
	tail    []byte // the last bytes, up to tailSize
}

// tailSize is the largest distance between the last boundary of a form and its end.
const tailSize = 8 << 10

// ended reports whether the last boundary of the form was read. After the line of another boundary, multipart.Reader reports
// the end of the body as the end of the form.
func (s *slowReader) ended(r *http.Request) bool {
	_, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && bytes.Contains(s.tail, []byte("--"+params["boundary"]+"--"))
}

func (s *slowReader) Read(p []byte) (int, error) {
	deadline := time.Now().Add(uploadPause)
	if deadline.After(s.until) {
		deadline = s.until
	}
	_ = s.control.SetReadDeadline(deadline) // not supported by a recorder
	n, err := s.r.Read(p)
	s.tail = append(s.tail, p[:n]...)
	s.tail = s.tail[max(0, len(s.tail)-tailSize):]
	return n, err
}

func (s *slowReader) Close() error { return s.r.Close() }

// formSchema is the schema of the form for NewJob.
func formSchema(registry huma.Registry, schema *huma.Schema) *huma.Schema {
	of := registry.SchemaFromRef(schema.Ref)
	properties := map[string]*huma.Schema{"document": {Type: huma.TypeString, ContentEncoding: "binary", Description: "the file"}}
	for name, field := range of.Properties {
		if name != "document_url" {
			properties[name] = field
		}
	}
	properties["context"] = &huma.Schema{Type: huma.TypeString, Description: "a JSON object"}
	return &huma.Schema{Type: huma.TypeObject, Properties: properties, Required: of.Required}
}
