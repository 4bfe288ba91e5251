package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"muster/jobs"
	"muster/jobs/report"
	"muster/orchestrator/access"
	"muster/orchestrator/api/client"
	"muster/orchestrator/event"
)

// heartbeat is how often a stream without events gets a comment, so that both
// sides notice when the other has gone.
const heartbeat = 15 * time.Second

// maxEvents is the number of events per read.
const maxEvents = 100

// EventPlace is where a stream of events begins.
type EventPlace struct {
	LastEventID string `header:"Last-Event-ID" maxLength:"50" pattern:"^[0-9]{1,19}(-[0-9]{1,19})?$" patternDescription:"the id of an event" doc:"ID of the last event received; browsers send it automatically"`
	After       string `query:"after" maxLength:"50" pattern:"^(\\$|[0-9]{1,19}(-[0-9]{1,19})?)$" patternDescription:"the id of an event, or $" doc:"the same as a parameter; $ for new events only. Defaults to all stored events."`
	Follow      bool   `query:"follow" default:"true" doc:"false: end after the stored events"`
}

func (p EventPlace) after() string {
	if p.LastEventID != "" {
		return p.LastEventID
	}
	switch p.After {
	case "":
		return "0-0" // the first that is kept
	case "$":
		return ""
	}
	return p.After
}

// eventStreams streams events to clients.
type eventStreams struct {
	read          readEvents
	untilShutdown func(context.Context) (context.Context, context.CancelFunc)
	identify      func(r *http.Request) (access.Caller, error)
	logger        *slog.Logger
	open          *shares
}

// AllEvents is the input of the stream of all events.
type AllEvents struct {
	EventPlace
	Source string `query:"source" enum:"jobs,workflows" default:"jobs" doc:"jobs: of jobs, sites and agents; workflows: workflow.succeeded, workflow.failed, workflow.revoked and, if a webhook selects it, workflow.stuck"`
}

type jobEventsInput struct {
	client.JobPath
	EventPlace
}

// readEvents reads events as event.Stream.Read does.
type readEvents func(ctx context.Context, jobID, after string, limit int, block time.Duration) (event.Batch, error)

// addEvents adds the streams of events.
func addEvents(s *server, read readEvents) {
	streams := &eventStreams{read, s.untilShutdown, s.cfg.identify, s.cfg.Logger, s.streams}
	const what = "Server-sent events: id, event (the type) and data (the event as JSON). " +
		"A comment is sent every 15 seconds, and the event gap where events were already deleted. The stream ends when the key is revoked or expires."
	op := describe(s, http.MethodGet, "/v1/events", "streamEvents", tagEvents, "Stream the events of all jobs, or of workflows", http.StatusTooManyRequests)
	answersWith(&op, what, "text/event-stream")
	op.Metadata[waitsKey] = true
	route(s, op, 0, func(ctx context.Context, in *AllEvents) (*streamOutput, error) {
		from := *streams
		if in.Source == "workflows" {
			from.read = s.readEnds
		}
		return from.stream(ctx, "", in.EventPlace)
	})

	op = describe(s, http.MethodGet, "/v1/jobs/{id}/events", "streamJobEvents", tagEvents, "Stream the events of a job", http.StatusNotFound, http.StatusTooManyRequests)
	answersWith(&op, what, "text/event-stream")
	op.Metadata[waitsKey] = true
	route(s, op, 0, func(ctx context.Context, in *jobEventsInput) (*streamOutput, error) {
		if s.cfg.Jobs != nil {
			if _, err := s.cfg.Jobs.Summary(ctx, in.ID); err != nil {
				return nil, err
			}
		}
		return streams.stream(ctx, in.ID, in.EventPlace)
	})
}

// endsEvery is how often the stream of workflows looks for ends.
const endsEvery = 200 * time.Millisecond

// readEnds reads ends of workflows as event.Stream.Read reads the events of jobs.
func (s *server) readEnds(ctx context.Context, _, after string, limit int, block time.Duration) (event.Batch, error) {
	if after == "" {
		after = "$"
	}
	for end := time.Now().Add(block); ; {
		ends, next, gap, err := s.cfg.Client.Inspect().Ended(ctx, after, limit)
		if err != nil {
			return event.Batch{}, err
		}
		b := event.Batch{Gap: gap, Next: next}
		for _, e := range ends {
			data, _ := json.Marshal(e.Workflow) // never fails
			b.Events = append(b.Events, event.Event{ID: e.Position, Type: e.Type, Time: e.Time, Data: data})
		}
		if len(b.Events) > 0 || gap || time.Until(end) <= 0 {
			return b, nil
		}
		after = next
		select {
		case <-ctx.Done():
			return b, context.Cause(ctx)
		case <-time.After(endsEvery):
		}
	}
}

// stream streams the events of a job, or of all, until the client disconnects, its key is revoked or expires, or the server
// shuts down.
func (s *eventStreams) stream(ctx context.Context, id string, at EventPlace) (*streamOutput, error) {
	release, err := s.open.take(ctx)
	if err != nil {
		return nil, err
	}
	return &streamOutput{func(hc huma.Context) {
		defer release()
		r, w := humago.Unwrap(hc)
		ctx, cancel := s.untilShutdown(r.Context())
		defer cancel()
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("X-Accel-Buffering", "no") // a reverse proxy must not buffer events
		w.WriteHeader(http.StatusOK)
		err := s.send(ctx, w, id, at, func() error {
			_, err := s.identify(r)
			return err
		})
		if err != nil && ctx.Err() == nil {
			s.logger.WarnContext(ctx, "a stream of events ended", "job", id, "err", err)
		}
	}}, nil
}

// send sends events until allowed returns a *access.Denied, at least once in each heartbeat.
func (s *eventStreams) send(ctx context.Context, w http.ResponseWriter, id string, at EventPlace, allowed func() error) error {
	after, block := at.after(), heartbeat
	if !at.Follow {
		block = 0
	}
	if err := flush(w, ": events follow\n\n"); err != nil {
		return err
	}
	for ctx.Err() == nil {
		batch, err := s.read(ctx, id, after, maxEvents, block)
		if err != nil {
			return err
		}
		if err := allowed(); errors.As(err, new(*access.Denied)) {
			return err
		}
		var b strings.Builder
		if batch.Gap {
			data, _ := json.Marshal(map[string]string{"after": after}) // never fails
			fmt.Fprintf(&b, "event: gap\ndata: %s\n\n", data)
		}
		for _, e := range batch.Events {
			if err := writeEvent(&b, e); err != nil {
				return err
			}
		}
		after = batch.Next
		if !at.Follow && len(batch.Events) == 0 {
			return nil
		}
		if b.Len() == 0 {
			b.WriteString(": heartbeat\n\n")
		}
		if ctx.Err() != nil {
			return nil
		}
		if err := flush(w, b.String()); err != nil {
			return err
		}
	}
	return nil
}

// writeEvent writes an event in the format of a stream. Line breaks within it are escaped.
func writeEvent(b *strings.Builder, e event.Event) error {
	data, err := json.Marshal(e) // on one line
	if err != nil {
		return fmt.Errorf("event %s: %w", e.ID, err)
	}
	line := strings.NewReplacer("\n", "", "\r", "")
	fmt.Fprintf(b, "id: %s\nevent: %s\ndata: %s\n\n", line.Replace(e.ID), line.Replace(e.Type), data)
	return nil
}

func flush(w http.ResponseWriter, text string) error {
	if _, err := io.WriteString(w, text); err != nil {
		return err
	}
	return http.NewResponseController(w).Flush()
}

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
	disposition := mime.FormatMediaType("attachment", map[string]string{"filename": d.Name})
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
