package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"muster/jobs"
	"muster/jobs/report"
	"muster/orchestrator/access"
	"muster/orchestrator/api/client"
)

// streamOutput is a response that is generated while it is sent.
type streamOutput struct{ Body func(huma.Context) }

// stream sends the output of write. An error before the first byte becomes a problem; a later one closes the
// connection, so that the client notices that the response is incomplete.
func (s *server) stream(head http.Header, write func(ctx context.Context, w io.Writer) error) *streamOutput {
	return &streamOutput{func(hc huma.Context) {
		r, w := humago.Unwrap(hc)
		lazy := &lazyWriter{head: head, to: w}
		err := write(r.Context(), lazy)
		switch {
		case err == nil:
			lazy.begin() // an empty response has a header too
		case !lazy.begun:
			writeProblem(w, problemOf(err, "query."))
		default:
			s.cfg.Logger.WarnContext(r.Context(), "response aborted", "err", err)
			panic(http.ErrAbortHandler)
		}
	}}
}

// lazyWriter sends the head with the first byte.
type lazyWriter struct {
	head  http.Header
	to    http.ResponseWriter
	begun bool
}

func (l *lazyWriter) begin() {
	if l.begun {
		return
	}
	l.begun = true
	for name, values := range l.head {
		l.to.Header()[name] = values
	}
	l.to.WriteHeader(http.StatusOK)
}

func (l *lazyWriter) Write(p []byte) (int, error) {
	l.begin()
	return l.to.Write(p)
}

type reportInput struct {
	client.JobPath
	Format string `query:"format" default:"json" enum:"text,json,csv" doc:"csv: the items"`
}

// addReports adds the reports of jobs.
func addReports(s *server) {
	op := describe(s, http.MethodGet, "/jobs/{id}/report", "getReport", tagJobs, "Get the report of a job: numbers, usage, citations and items", http.StatusNotFound)
	answersWith(&op, "The report", "application/json", "text/plain", "text/csv")
	op.Responses["200"].Content["application/json"].Schema = s.api.OpenAPI().Components.Schemas.Schema(typeOf[client.JobReport](), true, "JobReport")
	routeBoth(s, op, 0, func(_ context.Context, in *reportInput) (*streamOutput, error) {
		head := http.Header{"Content-Type": {map[string]string{"json": "application/json", "text": "text/plain; charset=utf-8", "csv": "text/csv; charset=utf-8"}[in.Format]}}
		if in.Format == "csv" {
			head.Set("Content-Disposition", `attachment; filename="`+in.ID+`.csv"`)
		}
		return s.stream(head, func(ctx context.Context, w io.Writer) error { return writeReport(ctx, w, s.cfg.Jobs, in.ID, in.Format) }), nil
	})
}

// writeReport writes the report of a job as "text", "json" or "csv".
func writeReport(ctx context.Context, w io.Writer, from *jobs.Service, id, format string) error {
	switch format {
	case "json":
		return report.WriteJSON(ctx, w, from, id)
	case "csv":
		return report.WriteCSV(ctx, w, from, id)
	}
	sum, err := report.Summarize(ctx, from, id)
	if err != nil {
		return err
	}
	return sum.Text(w)
}

// addDocuments adds the documents of jobs.
func addDocuments(s *server) {
	op := describe(s, http.MethodGet, "/v1/jobs/{id}/document", "getDocument", tagJobs, "Get the document of a job", http.StatusNotFound)
	needs(&op, access.Viewer, access.Agent)
	answersWith(&op, "The document, as an attachment", "application/octet-stream")
	route(s, op, 0, func(ctx context.Context, in *client.JobPath) (*streamOutput, error) {
		if err := s.reads(ctx, in.ID); err != nil {
			return nil, err
		}
		j, err := s.cfg.Jobs.Summary(ctx, in.ID)
		if err != nil {
			return nil, err
		}
		if j.Document == nil {
			return nil, problem(http.StatusNotFound, "job %s has no document", in.ID)
		}
		content, err := s.cfg.Documents.Open(j.Document.Hash)
		if err != nil {
			return nil, problem(http.StatusNotFound, "the document of job %s is not stored here: %v", in.ID, err)
		}
		out := s.stream(documentHead(j.Document), func(_ context.Context, w io.Writer) error {
			_, err := io.Copy(w, content)
			return errors.Join(err, content.Close())
		})
		return out, nil
	})
}

// documentHead returns the headers of a document. They prevent browsers from displaying it or running its scripts.
func documentHead(d *jobs.Document) http.Header {
	media := "application/octet-stream"
	if known, params, err := mime.ParseMediaType(d.Type); err == nil {
		media = mime.FormatMediaType(known, params)
	}
	disposition := mime.FormatMediaType("attachment", map[string]string{"filename": fileName(d.Name)})
	if disposition == "" {
		disposition = "attachment"
	}
	return http.Header{
		"Content-Type":            {media},
		"Content-Length":          {strconv.FormatInt(d.Size, 10)},
		"Content-Disposition":     {disposition},
		"Content-Security-Policy": {"default-src 'none'; sandbox"},
		"Etag":                    {strconv.Quote(d.Hash)},
	}
}

// addCompare adds the comparison of two jobs.
func addCompare(s *server) {
	op := s.operationOf(client.CompareJobs.Declaration)
	answersWith(&op, "The differences by item key (new, gone, changed), and the number of each", "application/json")
	op.Responses["200"].Content["application/json"].Schema = s.api.OpenAPI().Components.Schemas.Schema(typeOf[client.Comparison](), true, "Comparison")
	route(s, op, 0, func(_ context.Context, in *client.JobComparison) (*streamOutput, error) {
		head := http.Header{"Content-Type": {"application/json"}}
		return s.stream(head, func(ctx context.Context, w io.Writer) error { return writeComparison(ctx, w, s.cfg.Jobs, in) }), nil
	})
}

// writeComparison writes the differences as they come.
func writeComparison(ctx context.Context, w io.Writer, from *jobs.Service, in *client.JobComparison) error {
	counts := map[string]int64{"new": 0, "gone": 0, "changed": 0, "same": 0}
	sep := fmt.Sprintf(`{"a":%q,"b":%q,"differences":[`, in.ID, in.Other)
	err := from.Compare(ctx, in.ID, in.Other, func(d jobs.Difference) error {
		counts[d.Change]++
		if d.Change == "same" && !in.Same {
			return nil
		}
		data, err := json.Marshal(d)
		if err != nil {
			return err
		}
		_, err = w.Write(append([]byte(sep), data...))
		sep = ","
		return err
	})
	if err != nil {
		return err
	}
	data, err := json.Marshal(counts)
	if err != nil {
		return err
	}
	if sep == "," {
		sep = ""
	}
	_, err = fmt.Fprintf(w, "%s],\"counts\":%s}\n", sep, data)
	return err
}
