package api

import (
	"cmp"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"muster/orchestrator/api/client"
	"muster/orchestrator/artifact"
	"muster/tasks/workqueue"
)

// Bounds of imports.
const (
	maxImport         = 64 << 30 // bytes of a body
	importTime        = 24 * time.Hour
	maxImportProblems = 1000
)

type importInput struct {
	client.QueuePath
	Limit int `query:"limit" minimum:"0" maximum:"1000000000" doc:"artifacts to read. Defaults to all."`

	w http.ResponseWriter
	r *http.Request
}

// Resolve keeps the request: its body is read by the handler.
func (in *importInput) Resolve(ctx huma.Context) []error {
	in.r, in.w = humago.Unwrap(ctx)
	return nil
}

// addQueues adds the operations on artifact queues.
func addQueues(s *server) {
	queue := s.cfg.Queue
	implement(s, client.GetQueue, func(ctx context.Context, in *client.QueuePath) (workqueue.Stats, error) {
		return queue(in.Queue).Stats(ctx)
	})
	route(s, s.operationOf(client.EnqueueArtifact.Declaration), maxItemsBody, body(func(ctx context.Context, in *client.Enqueue) (out client.EnqueuedArtifact, err error) {
		data := []byte(in.Body.Data)
		if len(data) == 0 {
			data = []byte("{}")
		}
		q := queue(in.Queue)
		item, err := artifact.Item(in.Body.ID, data)
		if err == nil {
			err = q.Check(item)
		}
		if err != nil {
			return out, badField("body", "%v", err)
		}
		added, err := q.Enqueue(ctx, item)
		out = client.EnqueuedArtifact{ID: in.Body.ID, New: added == 1}
		if doubt := artifact.Doubt(item); doubt != nil {
			out.Warning = doubt.Error()
		}
		return out, err
	}))
	op := describe(s, http.MethodPost, "/v1/queues/{queue}/import", "importArtifacts", tagQueues, "Add the artifacts of a file to a queue",
		http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType)
	op.Description = "The body has one JSON object with an id a line, plain or gzip. Invalid lines are reported and skipped. " +
		"An interrupted import can be repeated: the artifacts already read stay in the queue."
	register(s, op, "body.", body(func(ctx context.Context, in *importInput) (client.ImportReport, error) {
		return importLines(ctx, queue(in.Queue), in)
	}))
	s.api.OpenAPI().Paths["/v1/queues/{queue}/import"].Post.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
		jsonLines: {Schema: &huma.Schema{Type: huma.TypeString, Description: "one JSON object a line"}},
	}}
	implement(s, client.RetryItems, func(ctx context.Context, in *client.QueueRetry) (client.RetriedItems, error) {
		return retryItems(ctx, queue(in.Queue), in.Body)
	})
	implement(s, client.ForgetItems, func(ctx context.Context, in *client.QueueForget) (out client.ForgottenItems, err error) {
		if in.Body.EndedFor != "" {
			age, err := time.ParseDuration(in.Body.EndedFor)
			if err != nil || age < 0 {
				return out, badField("body.ended_for", "%q is not a duration, as in 168h", in.Body.EndedFor)
			}
			if out.Forgotten, err = queue(in.Queue).ForgetEnded(ctx, age); err != nil {
				return out, err
			}
		}
		gone, err := queue(in.Queue).Forget(ctx, in.Body.IDs...)
		out.Forgotten += len(gone)
		return out, err
	})
	implementNone(s, client.DeleteQueue, func(ctx context.Context, in *client.QueuePath) error {
		q := queue(in.Queue)
		paused, err := q.Pause(ctx) // until it is deleted, no item starts
		if err != nil {
			return err
		}
		st, err := q.Stats(ctx)
		if err == nil && st.InProgress == 0 {
			return q.Delete(ctx)
		}
		if paused {
			_, resumeErr := q.Resume(ctx)
			err = cmp.Or(err, resumeErr)
		}
		return cmp.Or(err, error(problem(http.StatusConflict, "%d items of the queue are in progress; pause it and wait for them", st.InProgress)))
	})
	implement(s, client.PauseQueue, func(ctx context.Context, in *client.QueueChange) (client.PausedQueue, error) {
		changed, err := queue(in.Queue).Pause(ctx)
		return client.PausedQueue{Queue: in.Queue, Paused: true, Changed: changed}, err
	})
	implement(s, client.ResumeQueue, func(ctx context.Context, in *client.QueueChange) (client.PausedQueue, error) {
		changed, err := queue(in.Queue).Resume(ctx)
		return client.PausedQueue{Queue: in.Queue, Changed: changed}, err
	})
}

const jsonLines = "application/jsonl"

func importLines(ctx context.Context, q *workqueue.Queue, in *importInput) (client.ImportReport, error) {
	media, _, err := mime.ParseMediaType(in.r.Header.Get("Content-Type"))
	if err != nil || media != jsonLines {
		return client.ImportReport{}, problem(http.StatusUnsupportedMediaType, "the body must be %s: one JSON object a line", jsonLines)
	}
	body := &slowReader{r: http.MaxBytesReader(in.w, in.r.Body, maxImport), control: http.NewResponseController(in.w), until: time.Now().Add(importTime)}
	var problems []client.ImportLine
	note := func(warning bool) func(int64, error) {
		return func(line int64, err error) {
			if len(problems) < maxImportProblems {
				problems = append(problems, client.ImportLine{Line: line, Message: err.Error(), Warning: warning})
			}
		}
	}
	rep, err := artifact.Import(ctx, q, body, artifact.ImportConfig{Limit: in.Limit, BadLine: note(false), Doubtful: note(true)})
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, artifact.ErrGzip) {
		err = badField("body", "%v", err)
	}
	return client.ImportReport{New: rep.New, Duplicate: rep.Duplicate, Errors: rep.Errors, Lines: rep.Lines, Problems: problems}, err
}

func retryItems(ctx context.Context, q *workqueue.Queue, r client.ItemRetry) (client.RetriedItems, error) {
	found, err := q.Requeue(ctx, workqueue.RequeueOptions{MaxRetried: r.MaxRetried, DryRun: true})
	if err != nil {
		return client.RetriedItems{}, err
	}
	done := client.RetriedItems{Found: len(found), Items: []client.FailedItem{}}
	items, err := q.Get(ctx, found[:min(20, len(found))]...)
	if err != nil {
		return done, err
	}
	for _, it := range items {
		done.Items = append(done.Items, client.FailedItem{ID: it.ID, Note: it.Note})
	}
	if !r.DryRun && len(found) > 0 {
		retried, err := q.Requeue(ctx, workqueue.RequeueOptions{IDs: found, MaxRetried: r.MaxRetried})
		if err != nil {
			return done, err
		}
		done.Retried = len(retried)
	}
	stats, err := q.Stats(ctx)
	done.Left = stats.Error
	return done, err
}
