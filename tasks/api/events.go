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

type outputInput struct {
	Reference
	Node string `query:"node" maxLength:"4000" pattern:"^[0-9][0-9:.]*$" patternDescription:"the ID of a node" doc:"only the output of this node; the stream ends with it"`
}

type eventsOutput struct {
	ContentType string `header:"Content-Type"`
	Buffering   string `header:"X-Accel-Buffering"`
	Body        func(huma.Context)
}

// addEvents adds the streams of the progress and the output of a workflow.
func (s *service) addEvents() {
	route(s, declare[Reference, None](Read, "GET /v1/workflows/{id}/events", "streamWorkflow",
		"Stream the progress of a workflow as server-sent events, until it has ended", http.StatusNotFound).Declaration, s.events)
	route(s, declare[outputInput, None](ReadValues, "GET /v1/workflows/{id}/output", "streamOutput",
		"Stream the output of the tasks of a workflow as server-sent events, until it has ended", http.StatusNotFound).Declaration, s.output)
}

// events streams the progress of a workflow: an event progress after each change, and an event end after the last.
func (s *service) events(ctx context.Context, in *Reference) (*eventsOutput, error) {
	run := s.attach(in)
	if _, err := run.Progress(ctx); err != nil {
		return nil, err
	}
	return s.stream(ctx, in.ID, func(ctx context.Context, put func(event string, data any)) error {
		last := tasktype.Progress{}
		for p, err := range run.Watch(ctx) {
			if err != nil {
				return err
			}
			last = p
			put("progress", p)
		}
		if last.Ended {
			put("end", last)
		}
		return nil
	})
}

// output streams the output of a workflow or node: an event chunk for each chunk, and an event end after the last.
func (s *service) output(ctx context.Context, in *outputInput) (*eventsOutput, error) {
	run := s.attach(&in.Reference)
	var node []string
	_, err := run.Progress(ctx)
	if in.Node != "" && err == nil {
		node = []string{in.Node}
		_, err = run.Node(ctx, in.Node)
	}
	if err != nil {
		return nil, err
	}
	return s.stream(ctx, in.ID, func(ctx context.Context, put func(event string, data any)) error {
		for c, err := range run.Output(ctx, node...) {
			if err != nil {
				return err
			}
			put("chunk", c)
		}
		put("end", struct{}{})
		return nil
	})
}

// stream streams the events that produce puts.
func (s *service) stream(ctx context.Context, workflow string, produce func(ctx context.Context, put func(event string, data any)) error) (*eventsOutput, error) {
	streamed, end, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	return &eventsOutput{"text/event-stream", "no", func(hc huma.Context) {
		defer end()
		_, w := humago.Unwrap(hc)
		w.WriteHeader(http.StatusOK)
		ctx, cancel := context.WithCancel(streamed)
		events, produced := make(chan string), make(chan error, 1)
		go func() {
			defer close(events)
			produced <- produce(ctx, func(event string, data any) {
				raw, _ := json.Marshal(data) // the structs of package tasktype have no error
				select {
				case events <- fmt.Sprintf("event: %s\ndata: %s\n\n", event, raw):
				case <-ctx.Done():
				}
			})
		}()
		err := writeEvents(w, events)
		cancel()
		for range events { // until the goroutine has ended
		}
		if failed := <-produced; err == nil {
			err = failed
		}
		if err != nil && streamed.Err() == nil {
			s.Logger.WarnContext(streamed, "stream of a workflow ended", "workflow", workflow, "err", err)
		}
	}}, nil
}

// writeEvents writes events to a stream until the channel is closed.
func writeEvents(w http.ResponseWriter, events <-chan string) error {
	ticker := time.NewTicker(heartbeat)
	defer ticker.Stop()
	if err := http.NewResponseController(w).Flush(); err != nil {
		return err
	}
	for {
		text, more := ": heartbeat\n\n", true
		select {
		case text, more = <-events:
			if !more {
				return nil
			}
		case <-ticker.C:
		}
		if _, err := io.WriteString(w, text); err != nil {
			return err
		}
		if err := http.NewResponseController(w).Flush(); err != nil {
			return err
		}
	}
}
