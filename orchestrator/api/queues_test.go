package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"muster/internal/testutil"
	"muster/orchestrator/api/client"
	"muster/tasks/workqueue"
)

// apiClient returns a client of a handler.
func apiClient(t *testing.T, cfg Config) *client.Client {
	t.Helper()
	c := testutil.Must(client.New(client.Config{URL: "http://localhost", Transport: client.Handler(handler(t, cfg))}))(t)
	return c
}

// withQueues is a config with artifact queues.
func withQueues(t *testing.T) Config {
	t.Helper()
	cfg := setup(t)
	cfg.Write = true
	cfg.Queue = func(name string) *workqueue.Queue {
		return workqueue.New(cfg.Client.Redis(), name, workqueue.Config{MaxAttempts: 1})
	}
	return cfg
}

func TestQueuesOverHTTP(t *testing.T) {
	t.Parallel()
	cfg := withQueues(t)
	c, ctx, files := apiClient(t, cfg), t.Context(), client.QueuePath{Queue: "files"}
	for _, want := range []bool{true, false} {
		if e, err := client.EnqueueArtifact.Call(ctx, c, client.Enqueue{QueuePath: files, Body: client.NewArtifact{ID: "a", Data: []byte(`{"url": "http://x.example/"}`)}}); err != nil || e.New != want {
			t.Errorf("got %+v, %v, want new: %v", e, err, want)
		}
	}
	if e, err := client.EnqueueArtifact.Call(ctx, c, client.Enqueue{QueuePath: files, Body: client.NewArtifact{ID: "b", Data: []byte(`{"url": "http://x.example:99999/"}`)}}); err != nil || !strings.Contains(e.Warning, "99999") {
		t.Errorf("got %+v, %v, want a warning about the port", e, err)
	}
	rep, err := c.Import(ctx, "files", strings.NewReader("{\"id\":\"a\"}\n\n{bad\n{\"id\":\"c\"}\n"), 0)
	if err != nil || rep.New != 1 || rep.Duplicate != 1 || rep.Errors != 1 || len(rep.Problems) != 1 || rep.Problems[0].Line != 3 {
		t.Errorf("got %+v, %v, want one new, one duplicate, and line 3 as an error", rep, err)
	}
	if rep, err := c.Import(ctx, "limited", strings.NewReader("{\"id\":\"a\"}\n{\"id\":\"b\"}\n"), 1); err != nil || rep.New != 1 {
		t.Errorf("with a limit: got %+v, %v, want one artifact", rep, err)
	}
	if p, err := client.PauseQueue.Call(ctx, c, client.QueueChange{QueuePath: files}); err != nil || !p.Paused || !p.Changed {
		t.Errorf("got %+v, %v, want a pause", p, err)
	}
	if s, err := client.GetQueue.Call(ctx, c, files); err != nil || s.Queued != 3 || !s.Paused {
		t.Errorf("got %+v, %v, want three paused items", s, err)
	}
	if p, err := client.ResumeQueue.Call(ctx, c, client.QueueChange{QueuePath: files}); err != nil || p.Paused || !p.Changed {
		t.Errorf("got %+v, %v, want a resumed queue", p, err)
	}
	q := cfg.Queue("files")
	leased, err := q.Lease(ctx, "w", 3)
	if err != nil || len(leased) != 3 {
		t.Fatalf("got %v, %v", leased, err)
	}
	for _, l := range leased {
		testutil.Ok(t, q.Settle(ctx, l, workqueue.Failed(errors.New("broken"))))
	}
	for _, r := range []struct {
		retry client.ItemRetry
		want  string
	}{
		{client.ItemRetry{DryRun: true}, "3 0 3"},
		{client.ItemRetry{MaxRetried: 1}, "3 3 0"},
		{client.ItemRetry{}, "0 0 0"},
	} {
		done, err := client.RetryItems.Call(ctx, c, client.QueueRetry{QueuePath: files, Body: r.retry})
		if got := fmt.Sprint(done.Found, done.Retried, done.Left); err != nil || got != r.want || len(done.Items) != done.Found {
			t.Errorf("%+v: got %+v, %v, want %s", r.retry, done, err, r.want)
		}
	}
	if done, err := client.ForgetItems.Call(ctx, c, client.QueueForget{QueuePath: files, Body: client.ItemForget{IDs: []string{"a", "unknown"}}}); err != nil || done.Forgotten != 1 {
		t.Errorf("got %+v, %v, want the unknown item only: a is queued", done, err)
	}
	if done, err := client.ForgetItems.Call(ctx, c, client.QueueForget{QueuePath: files, Body: client.ItemForget{EndedFor: "1h"}}); err != nil || done.Forgotten != 0 {
		t.Errorf("got %+v, %v, want none", done, err)
	}
	if _, err := client.ForgetItems.Call(ctx, c, client.QueueForget{QueuePath: files, Body: client.ItemForget{EndedFor: "soon"}}); err == nil || !strings.Contains(err.Error(), "body.ended_for") {
		t.Errorf("got %v, want the field of the invalid duration", err)
	}
	if leased, err = q.Lease(ctx, "w", 1); err != nil || len(leased) != 1 {
		t.Fatalf("got %v, %v", leased, err)
	}
	if _, err := client.DeleteQueue.Call(ctx, c, files); err == nil || !strings.Contains(err.Error(), "1 items of the queue are in progress") {
		t.Errorf("got %v, want an error about the item in progress", err)
	}
	testutil.Ok(t, q.Settle(ctx, leased[0], workqueue.Done()))
	if _, err := client.DeleteQueue.Call(ctx, c, files); err != nil {
		t.Error(err)
	}
	if _, err := client.DeleteQueue.Call(ctx, c, files); err == nil || !strings.Contains(err.Error(), "no such queue") {
		t.Errorf("got %v, want no such queue", err)
	}
	if s, err := q.Stats(ctx); err != nil || s.Total != 0 {
		t.Errorf("got %+v, %v, want no items", s, err)
	}
	if _, err := client.GetQueue.Call(ctx, c, client.QueuePath{Queue: "a:b"}); err == nil || !strings.Contains(err.Error(), "path.queue") {
		t.Errorf("got %v, want the field of the invalid name", err)
	}
	if _, err := client.EnqueueArtifact.Call(ctx, c, client.Enqueue{QueuePath: files, Body: client.NewArtifact{ID: "d", Data: []byte(`[1]`)}}); err == nil || !strings.Contains(err.Error(), "body.data") {
		t.Errorf("got %v, want the field of the invalid data", err)
	}
	if w := ask(t, handler(t, cfg), "POST", "/v1/queues/files/import"); w.Code != 415 {
		t.Errorf("without a media type: got %d, want 415", w.Code)
	}
}

// broken is a reader that fails after some lines, as a file of a disk that has gone.
type broken struct{ lines io.Reader }

func (b broken) Read(p []byte) (int, error) {
	n, err := b.lines.Read(p)
	if err == io.EOF {
		err = errors.New("input/output error")
	}
	return n, err
}

func TestInterruptedImportKeepsTheLinesThatItRead(t *testing.T) {
	t.Parallel()
	cfg := withQueues(t)
	c := apiClient(t, cfg)
	var lines strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&lines, "{\"id\": \"a%d\"}\n", i)
	}
	if _, err := c.Import(t.Context(), "files", broken{strings.NewReader(lines.String())}, 0); err == nil {
		t.Error("got no error of a file that cannot be read")
	}
	rep, err := c.Import(context.WithoutCancel(t.Context()), "files", strings.NewReader(lines.String()), 0)
	if err != nil || rep.New+rep.Duplicate != 3000 || rep.Duplicate < 1000 {
		t.Errorf("got %+v, %v, want the lines of the first import as duplicates", rep, err)
	}
}
