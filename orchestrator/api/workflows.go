package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"muster/orchestrator/access"
	"muster/orchestrator/api/client"
	"muster/orchestrator/archive"
	"muster/tasks"
	tasksapi "muster/tasks/api"
)

// addWorkflows adds the operations on workflows of package tasks.
func addWorkflows(s *server) {
	tasksapi.Register(s.api, tasksapi.Config{Client: s.cfg.Client, Logger: s.cfg.Logger, Stream: s.beginStream, Operation: func(op *huma.Operation, kind tasksapi.Access) {
		described := describe(s, op.Method, op.Path, op.OperationID, tagTasks, op.Summary, op.Errors...)
		if op.Method == http.MethodPost {
			s.problems(&described, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType)
		}
		op.Tags, op.Security, op.Responses, op.Errors = described.Tags, described.Security, described.Responses, nil
		for key, value := range described.Metadata {
			op.Metadata[key] = value
		}
		if kind == tasksapi.ReadValues { // they may contain secrets
			needs(op, access.Operator)
		}
		switch op.OperationID {
		case "streamWorkflow":
			answersWith(op, "The events progress and end have the counts of tasks as data. A comment is sent every 15 seconds.", "text/event-stream")
			s.problems(op, http.StatusTooManyRequests)
			op.Metadata[waitsKey] = true
		case "streamOutput":
			answersWith(op, "An event chunk has a chunk as data: its node, its value, and whether a run of the handler begins with it. The event end is the last. A comment is sent every 15 seconds.", "text/event-stream")
			s.problems(op, http.StatusTooManyRequests)
			op.Metadata[waitsKey] = true
		case "getWorkflowResult", "listWorkers":
			op.Metadata[waitsKey] = true
		case "leaseTasks", "beatTask", "completeTask", "failTask":
			op.Metadata[frequentKey], op.Metadata[waitsKey] = true, op.OperationID == "leaseTasks"
		}
	}})
}

// addArchive adds the operations on archived workflows.
func addArchive(s *server) {
	implement(s, client.ListArchive, func(ctx context.Context, in *tasksapi.WorkflowFilter) (client.Page[tasksapi.Workflow], error) {
		f, err := in.Filter()
		if err != nil {
			return client.Page[tasksapi.Workflow]{}, err
		}
		page, next, err := s.cfg.Archive.List(ctx, f)
		if errors.Is(err, tasks.ErrCursor) {
			err = badField("query.cursor", "%v", err)
		}
		return client.Page[tasksapi.Workflow]{Data: orEmpty(page), Next: next}, err
	})
	implement(s, client.GetArchived, func(ctx context.Context, in *tasksapi.Reference) (archive.ArchivedWorkflow, error) {
		return s.cfg.Archive.Get(ctx, in.ID)
	})
}

// beginStream counts a stream or a call for leases of the caller. It ends with the request, with the server, and when the key of the
// caller expires or is revoked.
func (s *server) beginStream(ctx context.Context, r *http.Request) (context.Context, func(), error) {
	open := s.streams
	if r.Method == http.MethodPost {
		open = s.leases
	}
	release, err := open.take(ctx)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := s.untilShutdown(ctx)
	checked := make(chan struct{})
	go func() {
		defer close(checked)
		ticker := time.NewTicker(heartbeat)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			if _, err := s.cfg.identify(r); errors.As(err, new(*access.Denied)) {
				cancel()
			}
		}
	}()
	return ctx, func() { cancel(); <-checked; release() }, nil
}
