package api

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"muster/tasks/tasktype"
)

// heartbeat is the interval of comments in a stream without events, by which both sides notice a lost connection.
const heartbeat = 15 * time.Second

type eventsInput struct {
	Reference

	r *http.Request
}

// Resolve stores the request, for [Config.Stream].
func (in *eventsInput) Resolve(ctx huma.Context) []error {
	in.r, _ = humago.Unwrap(ctx)
	return nil
}

type eventsOutput struct {
	ContentType string `header:"Content-Type"`
	Buffering   string `header:"X-Accel-Buffering"`
	Body        func(huma.Context)
}

// addEvents adds the stream of the progress of a workflow.
func (s *service) addEvents() {
	route(s, declare[eventsInput, None](Read, "GET /v1/workflows/{id}/events", "streamWorkflow",
		"Stream the progress of a workflow as server-sent events, until it has ended", http.StatusNotFound).Declaration, s.events)
}

// events streams the progress of a workflow: an event progress after each change, and an event end after the last.
func (s *service) events(ctx context.Context, in *eventsInput) (*eventsOutput, error) {
	run := s.attach(&in.Reference)
	if _, err := run.Progress(ctx); err != nil {
		return nil, err
	}
	streamed, end, err := s.Stream(ctx, in.r)
	if err != nil {
		return nil, err
	}
	return &eventsOutput{"text/event-stream", "no", func(hc huma.Context) {
		defer end()
		_, w := humago.Unwrap(hc)
		w.WriteHeader(http.StatusOK)
		ctx, cancel := context.WithCancel(streamed)
		changes := make(chan tasktype.Progress)
		watched := make(chan error, 1)
		go func() {
			defer close(changes)
			for p, err := range run.Watch(ctx) {
				if err != nil {
					watched <- err
					return
				}
				select {
				case changes <- p:
				case <-ctx.Done():
				}
			}
		}()
		err := writeProgress(w, changes)
		cancel()
		for range changes { // until the goroutine has ended
		}
		select {
		case failed := <-watched:
			err = failed
		default:
		}
		if err != nil && streamed.Err() == nil {
			s.Logger.WarnContext(streamed, "stream of a workflow ended", "workflow", in.ID, "err", err)
		}
	}}, nil
}

// writeProgress writes changes to a stream until the channel is closed.
func writeProgress(w http.ResponseWriter, changes <-chan tasktype.Progress) error {
	ticker := time.NewTicker(heartbeat)
	defer ticker.Stop()
	last := tasktype.Progress{}
	for {
		text := ": heartbeat\n\n"
		select {
		case p, more := <-changes:
			event := "progress"
			if !more {
				if !last.Ended {
					return nil
				}
				event, p = "end", last
			}
			data, err := json.Marshal(p)
			if err != nil {
				return err
			}
			text, last = fmt.Sprintf("event: %s\ndata: %s\n\n", event, data), p
			if !more {
				return send(w, text)
			}
		case <-ticker.C:
		}
		if err := send(w, text); err != nil {
			return err
		}
	}
}

func send(w http.ResponseWriter, text string) error {
	if _, err := io.WriteString(w, text); err != nil {
		return err
	}
	return http.NewResponseController(w).Flush()
}
