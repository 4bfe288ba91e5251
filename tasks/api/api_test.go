package api_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/api"
	"muster/tasks/tasktype"
)

var (
	count  = tasks.New[string, int]("text.count")
	broken = tasks.New[int, int]("text.broken")
	talk   = tasks.New[string, int]("text.talk")
)

// served is a handler with a worker that runs its tasks.
type served struct {
	t       *testing.T
	client  *tasks.Client
	url     string
	release chan struct{} // ends the handler of text.slow
}

func serve(t *testing.T) *served {
	t.Helper()
	s := &served{t: t, client: tasks.NewClient(redistest.New(t)), release: make(chan struct{})}
	t.Cleanup(func() { _ = s.client.Close() })
	mux := tasks.NewMux()
	logger := slog.New(tasks.LogHandler(slog.NewTextHandler(io.Discard, nil)))
	tasks.Handle(mux, count, func(ctx context.Context, text string) (int, error) {
		logger.InfoContext(ctx, "count words", "bytes", len(text))
		return len(strings.Fields(text)), nil
	})
	tasks.Handle(mux, tasks.New[string, []string]("text.split"), func(_ context.Context, text string) ([]string, error) { return strings.Fields(text), nil })
	tasks.Handle(mux, tasks.New[[]string, int]("text.size"), func(_ context.Context, list []string) (int, error) { return len(list), nil })
	tasks.Handle(mux, tasks.New[[]int, int]("text.sum"), func(_ context.Context, list []int) (sum int, _ error) {
		for _, n := range list {
			sum += n
		}
		return sum, nil
	})
	tasks.Handle(mux, broken, func(context.Context, int) (int, error) { return 0, tasks.WithCode("odd", errors.New("out of order")) })
	tasks.Handle(mux, talk, func(ctx context.Context, text string) (n int, err error) {
		for _, word := range strings.Fields(text) {
			err = errors.Join(err, tasks.Emit(ctx, word))
		}
		n, serr := tasks.Step(ctx, "count", func(context.Context) (int, error) { return len(strings.Fields(text)), nil })
		if err = errors.Join(err, serr, tasks.Save(ctx, n)); strings.HasSuffix(text, "!") {
			err = errors.New("loud")
		}
		return n, err
	})
	tasks.Handle(mux, tasks.New[int, int]("text.slow"), func(ctx context.Context, n int) (int, error) {
		select {
		case <-s.release:
			return n, nil
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	})
	worker := testutil.Must(tasks.StartWorker(t.Context(), s.client, mux, tasks.WorkerConfig{Grace: time.Second}))(t)
	t.Cleanup(func() { _ = worker.Stop() })
	handler := testutil.Must(api.Handler(api.Config{Client: s.client}))(t)
	server := testutil.Serve(t, handler)
	s.url = server.URL
	return s
}

// call sends a request and decodes its response into out, unless it is nil. It fails the test for another status.
func (s *served) call(method, path, body string, want int, out any) http.Header {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	testutil.Ok(s.t, err)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := http.DefaultClient.Do(req)
	testutil.Ok(s.t, err)
	defer func() { _ = res.Body.Close() }()
	raw, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != want {
		s.t.Fatalf("%s %s: got %d, %v: %s, want %d", method, path, res.StatusCode, err, raw, want)
	}
	if out != nil {
		if err := json.Unmarshal(raw, out); err != nil {
			s.t.Fatalf("%s %s: %s: %v", method, path, raw, err)
		}
	}
	return res.Header
}

func (s *served) send(body string) string {
	s.t.Helper()
	var sent api.SentWorkflow
	head := s.call(http.MethodPost, "/v1/workflows", body, http.StatusCreated, &sent)
	if head.Get("Location") != "/v1/workflows/"+sent.ID {
		s.t.Errorf("got the location %q of workflow %s", head.Get("Location"), sent.ID)
	}
	return sent.ID
}

func (s *served) result(id string) (r api.WorkflowResult) {
	s.t.Helper()
	s.call(http.MethodGet, "/v1/workflows/"+id+"/result?wait=30s", "", http.StatusOK, &r)
	return r
}

func TestTaskIsSentAndItsResultRead(t *testing.T) {
	t.Parallel()
	s := serve(t)
	id := s.send(`{"task": "text.count", "input": "it was dark", "name": "chapter 1", "labels": {"book": "owls"}, "timeout": "5s", "retention": "1h"}`)
	if r := s.result(id); r.Status != "SUCCESS" || string(r.Result) != "3" || r.Failure != nil {
		t.Errorf("got %+v, want the result 3", r)
	}
	var status api.WorkflowStatus
	s.call(http.MethodGet, "/v1/workflows/"+id, "", http.StatusOK, &status)
	if status.Name != "chapter 1" || status.Labels["book"] != "owls" || status.State != "success" || status.Done != 1 || status.CreatedAt.IsZero() || status.EndedAt.IsZero() {
		t.Errorf("got %+v", status)
	}
	var list struct {
		Data []api.Workflow
		Next string
	}
	s.call(http.MethodGet, "/v1/workflows?label=book%3Dowls&state=success&contains=chapter&limit=1", "", http.StatusOK, &list)
	if len(list.Data) != 1 || list.Data[0].ID != id {
		t.Errorf("got %+v, want workflow %s", list, id)
	}
	testutil.Eventually(t, "the log line of the task is stored", func() bool {
		var log pageOf[tasktype.LogLine]
		s.call(http.MethodGet, "/v1/workflows/"+id+"/log", "", http.StatusOK, &log)
		return len(log.Data) == 1 && log.Data[0].Text == "count words bytes=11" && log.Data[0].Task == "text.count"
	})
	s.call(http.MethodGet, "/v1/workflows/none/log", "", http.StatusNotFound, nil)
	var nodes struct{ Data []tasktype.Node }
	s.call(http.MethodGet, "/v1/workflows/"+id+"/nodes", "", http.StatusOK, &nodes)
	if len(nodes.Data) != 1 || nodes.Data[0].Task != "text.count" || nodes.Data[0].Status != "SUCCESS" {
		t.Fatalf("got %+v", nodes)
	}
	var node api.NodeValues
	s.call(http.MethodGet, "/v1/workflows/"+id+"/nodes/"+nodes.Data[0].ID, "", http.StatusOK, &node)
	if string(node.Input) != `"it was dark"` || string(node.Result) != "3" {
		t.Errorf("got the input %s and the result %s", node.Input, node.Result)
	}
	s.call(http.MethodDelete, "/v1/workflows/"+id, "", http.StatusNoContent, nil)
	s.wantProblem(http.MethodGet, "/v1/workflows/"+id, "", http.StatusNotFound, "workflow_not_found")
	if r := s.result(s.send(`{"task": "text.broken", "input": 1}`)); r.Status != "FAILURE" || r.Failure == nil || r.Failure.Code != "odd" || r.Failure.Message != "out of order" {
		t.Errorf("got %+v, want the failure", r)
	}
}

// wantProblem sends a request whose response must be a problem, and returns it.
func (s *served) wantProblem(method, path, body string, status int, code string) (p struct {
	Code, Detail string
	Errors       []struct{ Location string }
}) {
	s.t.Helper()
	head := s.call(method, path, body, status, &p)
	if p.Code != code || head.Get("Content-Type") != "application/problem+json" {
		s.t.Errorf("%s %s: got the code %q of type %s, want %s: %s", method, path, p.Code, head.Get("Content-Type"), code, p.Detail)
	}
	return p
}

func TestRunningWorkflowIsCancelled(t *testing.T) {
	t.Parallel()
	s := serve(t)
	id := s.send(`{"task": "text.slow", "input": 1}`)
	s.call(http.MethodPost, "/v1/workflows/"+id+"/cancel", "", http.StatusNoContent, nil)
	if r := s.result(id); r.Status != "FAILURE" || r.Failure == nil || r.Failure.Code != "cancelled" {
		t.Errorf("got %+v, want a failure with the code cancelled", r)
	}
	s.wantProblem(http.MethodPost, "/v1/workflows/none/cancel", "", http.StatusNotFound, "workflow_not_found")
	id = s.send(`{"task": "text.count", "input": "a"}`)
	s.result(id)
	s.wantProblem(http.MethodPost, "/v1/workflows/"+id+"/cancel", "", http.StatusConflict, "workflow_ended")
}

// changeOwls cancels or retries the three workflows of a book, in two pages.
func (s *served) changeOwls(verb string) {
	s.t.Helper()
	var page, last api.ChangedWorkflows
	s.call(http.MethodPost, "/v1/workflows/"+verb, `{"labels": {"book": "owls"}, "limit": 2}`, http.StatusOK, &page)
	s.call(http.MethodPost, "/v1/workflows/"+verb, `{"labels": {"book": "owls"}, "cursor": "`+page.Next+`"}`, http.StatusOK, &last)
	if page.Changed != 2 || page.Next == "" || last.Changed != 1 || last.Next != "" || len(page.Failed)+len(last.Failed) != 0 {
		s.t.Errorf("%s: got %+v and %+v, want 2 and 1 workflows", verb, page, last)
	}
}

func TestRunningWorkflowsAreCancelled(t *testing.T) {
	t.Parallel()
	s := serve(t)
	other := s.send(`{"task": "text.count", "input": "a", "delay": "1h", "labels": {"book": "jays"}}`)
	for range 3 {
		s.send(`{"task": "text.count", "input": "a", "delay": "1h", "labels": {"book": "owls"}}`)
	}
	s.changeOwls("cancel")
	var w api.WorkflowStatus
	s.call(http.MethodGet, "/v1/workflows/"+other, "", http.StatusOK, &w)
	if w.Ended {
		t.Errorf("got %+v, want a running workflow", w)
	}
}

func TestWorkflowIsCancelledAtItsDeadline(t *testing.T) {
	t.Parallel()
	s := serve(t)
	at := time.Now().Add(2 * time.Second).UTC()
	id := s.send(`{"task": "text.count", "input": "a b", "delay": "1h", "deadline_at": "` + at.Format(time.RFC3339Nano) + `"}`)
	var w api.WorkflowStatus
	s.call(http.MethodGet, "/v1/workflows/"+id, "", http.StatusOK, &w)
	if !w.Deadline.Equal(at.Truncate(time.Millisecond)) {
		t.Errorf("got deadline %s, want %s", w.Deadline, at)
	}
	if r := s.result(id); r.Status != "FAILURE" || r.Failure.Code != "deadline" {
		t.Errorf("got %+v, want a failure", r)
	}
	s.wantProblem(http.MethodPost, "/v1/workflows", `{"task": "text.count", "input": 1, "deadline_at": "2020-01-01T00:00:00Z"}`, http.StatusBadRequest, "invalid_request")
}

func TestWorkflowIsPausedAndResumed(t *testing.T) {
	t.Parallel()
	s := serve(t)
	id := s.send(`{"task": "text.count", "input": "a b", "delay": "1s"}`)
	path := "/v1/workflows/" + id
	for range 2 {
		s.call(http.MethodPost, path+"/pause", "", http.StatusNoContent, nil)
	}
	var w api.WorkflowStatus
	s.call(http.MethodGet, path, "", http.StatusOK, &w)
	var list struct{ Data []api.ListedWorkflow }
	s.call(http.MethodGet, "/v1/workflows", "", http.StatusOK, &list)
	if !w.Paused || w.Status != "PENDING" || len(list.Data) != 1 || !list.Data[0].Paused {
		t.Errorf("got %+v and %+v, want a paused workflow", w, list)
	}
	s.call(http.MethodPost, path+"/resume", "", http.StatusNoContent, nil)
	if r := s.result(id); r.Status != "SUCCESS" || string(r.Result) != "2" {
		t.Errorf("got %+v, want 2", r)
	}
	s.wantProblem(http.MethodPost, path+"/pause", "", http.StatusConflict, "workflow_ended")
	s.wantProblem(http.MethodPost, path+"/resume", "", http.StatusConflict, "workflow_ended")
	s.wantProblem(http.MethodPost, "/v1/workflows/none/pause", "", http.StatusNotFound, "workflow_not_found")
}

func TestFailedWorkflowIsRetried(t *testing.T) {
	t.Parallel()
	s := serve(t)
	id := s.send(`{"task": "text.count", "input": 1, "labels": {"book": "owls"}, "failure_retention": "1h"}`)
	if r := s.result(id); r.Status != "FAILURE" {
		t.Fatalf("got %+v, want a failure", r)
	}
	path := "/v1/workflows/" + id + "/retry"
	s.wantProblem(http.MethodPost, path, `{"inputs": {"7": "a b"}}`, http.StatusBadRequest, "invalid_request")
	s.call(http.MethodPost, path, "", http.StatusNoContent, nil)
	if r := s.result(id); r.Status != "FAILURE" {
		t.Fatalf("got %+v, want a failure", r)
	}
	s.call(http.MethodPost, path, `{"inputs": {"0": "a b"}}`, http.StatusNoContent, nil)
	if r := s.result(id); r.Status != "SUCCESS" || string(r.Result) != "2" {
		t.Errorf("got %+v, want 2", r)
	}
	s.wantProblem(http.MethodPost, path, "", http.StatusConflict, "workflow_succeeded")
	s.wantProblem(http.MethodPost, "/v1/workflows/none/retry", "", http.StatusNotFound, "workflow_not_found")
	running := s.send(`{"task": "text.slow", "input": 1}`)
	s.wantProblem(http.MethodPost, "/v1/workflows/"+running+"/retry", "", http.StatusConflict, "workflow_running")

	for range 3 {
		s.result(s.send(`{"task": "text.broken", "input": 1, "labels": {"book": "owls"}}`))
	}
	s.changeOwls("retry")
}

func TestRunningWorkflowIsRevokedThenDeleted(t *testing.T) {
	t.Parallel()
	s := serve(t)
	id := s.send(`{"task": "text.slow", "input": 1, "id": "only-one"}`)
	s.wantProblem(http.MethodPost, "/v1/workflows", `{"task": "text.slow", "input": 1, "id": "only-one"}`, http.StatusConflict, "duplicate_workflow")
	s.wantProblem(http.MethodDelete, "/v1/workflows/"+id, "", http.StatusConflict, "workflow_running")
	var early api.WorkflowResult
	s.call(http.MethodGet, "/v1/workflows/"+id+"/result", "", http.StatusOK, &early)
	if early.Status.Terminal() || early.Result != nil {
		t.Errorf("got %+v of a running workflow", early)
	}
	s.call(http.MethodPost, "/v1/workflows/"+id+"/revoke", "", http.StatusNoContent, nil)
	if r := s.result(id); r.Status != "REVOKED" || r.Failure == nil {
		t.Errorf("got %+v, want REVOKED", r)
	}
}

func TestExternalTaskIsCompletedByNodeOrToken(t *testing.T) {
	t.Parallel()
	s := serve(t)
	open := func(n int) (list []tasktype.OpenToken) {
		t.Helper()
		testutil.Eventually(t, fmt.Sprintf("%d tasks are open", n), func() bool {
			var page struct{ Data []tasktype.OpenToken }
			s.call(http.MethodGet, "/v1/open-tasks?task=text.review", "", http.StatusOK, &page)
			list = page.Data
			return len(list) == n
		})
		return list
	}
	id := s.send(`{"task": "text.review", "input": "draft", "external": true}`)
	at := open(1)[0]
	if at.Workflow != id || string(at.Input) != `"draft"` {
		t.Errorf("got %+v", at)
	}
	node := "/v1/workflows/" + id + "/nodes/" + at.Node
	token := testutil.Must(s.client.Workflow(id).NewToken(t.Context(), at.Node))(t)
	s.call(http.MethodPost, node+"/extend", `{"for": "1h"}`, http.StatusNoContent, nil)
	s.call(http.MethodPost, "/v1/tokens/extend", `{"token": "`+token+`", "for": "2h"}`, http.StatusNoContent, nil)
	s.call(http.MethodPost, node+"/complete", `{"result": true}`, http.StatusNoContent, nil)
	s.wantProblem(http.MethodPost, node+"/complete", `{"result": true}`, http.StatusConflict, "task_completed")
	if r := s.result(id); string(r.Result) != "true" {
		t.Errorf("got %+v, want true", r)
	}
	id = s.send(`{"task": "text.review", "input": "draft", "external": true}`)
	s.call(http.MethodPost, "/v1/workflows/"+id+"/signals", `{"task": "text.review", "result": [1]}`, http.StatusNoContent, nil)
	if r := s.result(id); string(r.Result) != "[1]" {
		t.Errorf("got %+v, want the value of the signal", r)
	}
	s.wantProblem(http.MethodPost, "/v1/workflows/"+id+"/signals", `{"task": "text.review", "result": 2}`, http.StatusConflict, "workflow_ended")
	id = s.send(`{"task": "text.review", "input": "draft", "external": true}`)
	at = open(1)[0]
	var tokens [2]string
	for i := range tokens {
		token := testutil.Must(s.client.Workflow(id).NewToken(t.Context(), at.Node))(t)
		tokens[i] = token
	}
	s.wantProblem(http.MethodPost, "/v1/tokens/complete", `{"token": "`+tokens[0]+`", "result": 1}`, http.StatusConflict, "stale_token")
	s.call(http.MethodPost, "/v1/tokens/fail", `{"token": "`+tokens[1]+`", "message": "no", "code": "refused", "permanent": true}`, http.StatusNoContent, nil)
	if r := s.result(id); r.Failure == nil || r.Failure.Code != "refused" {
		t.Errorf("got %+v, want the failure refused", r)
	}
}

func TestProgressIsStreamedUntilTheEnd(t *testing.T) {
	t.Parallel()
	s := serve(t)
	id := s.send(`{"task": "text.slow", "input": 1}`)
	req := testutil.Must(http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/v1/workflows/"+id+"/events", nil))(t)
	res := testutil.Must(http.DefaultClient.Do(req))(t)
	defer func() { _ = res.Body.Close() }()
	if media := res.Header.Get("Content-Type"); res.StatusCode != http.StatusOK || media != "text/event-stream" {
		t.Fatalf("got %d, %s", res.StatusCode, media)
	}
	var events []string
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() {
		event, ok := strings.CutPrefix(lines.Text(), "event: ")
		if !ok {
			continue
		}
		if len(events) == 0 {
			close(s.release)
		}
		events = append(events, event)
	}
	if n := len(events); n < 2 || events[0] != "progress" || events[n-1] != "end" {
		t.Errorf("got the events %v, want progress and then end", events)
	}
	s.wantProblem(http.MethodGet, "/v1/workflows/none/events", "", http.StatusNotFound, "workflow_not_found")
}

// The steps and the output of a task can be read, and it can run again.
func TestStepsOutputAndAnotherRun(t *testing.T) {
	t.Parallel()
	s := serve(t)
	id := s.send(`{"task": "text.talk", "input": "it was"}`)
	res := testutil.Must(http.Get(s.url + "/v1/workflows/" + id + "/output?node=0"))(t)
	raw, err := io.ReadAll(res.Body)
	testutil.Ok(t, errors.Join(err, res.Body.Close()))
	if text := string(raw); strings.Count(text, "event: chunk\n") != 2 || !strings.Contains(text, `"begin":true,"`) || !strings.Contains(text, `"value":"was"}`) || !strings.HasSuffix(text, "event: end\ndata: {}\n\n") {
		t.Errorf("got the stream %s", raw)
	}
	var node api.NodeValues
	s.call(http.MethodGet, "/v1/workflows/"+id+"/nodes/0", "", http.StatusOK, &node)
	if len(node.Steps) != 1 || node.Steps[0].Name != "count" || string(node.Steps[0].Value) != "2" || node.Saved == nil || string(node.Saved.Value) != "2" || len(node.Output) != 2 {
		t.Errorf("got %+v, want the step count, the saved value 2 and two chunks", node)
	}
	s.result(id)
	var again api.SentWorkflow
	head := s.call(http.MethodPost, "/v1/workflows/"+id+"/run-again", `{"from": "0", "inputs": {"0": "it was dark"}}`, http.StatusCreated, &again)
	if r := s.result(again.ID); string(r.Result) != "3" || head.Get("Location") != "/v1/workflows/"+again.ID {
		t.Errorf("got %+v at %s, want the result 3", r, head.Get("Location"))
	}
	var list pageOf[api.ListedWorkflow]
	s.call(http.MethodGet, "/v1/workflows?origin="+id, "", http.StatusOK, &list)
	if len(list.Data) != 1 || list.Data[0].ID != again.ID || list.Data[0].Origin != id {
		t.Errorf("got %+v, want workflow %s", list.Data, again.ID)
	}
	failed := s.send(`{"task": "text.talk", "input": "wow!"}`)
	s.result(failed)
	s.call(http.MethodPost, "/v1/workflows/"+failed+"/retry", `{"drop_steps": {"0": ["count"]}}`, http.StatusNoContent, nil)
	s.result(failed)
	s.wantProblem(http.MethodPost, "/v1/workflows/"+failed+"/retry", `{"drop_steps": {"0": ["other"]}}`, http.StatusBadRequest, "invalid_request")
	s.wantProblem(http.MethodPost, "/v1/workflows/"+id+"/run-again", `{"from": "9"}`, http.StatusBadRequest, "invalid_request")
	s.wantProblem(http.MethodPost, "/v1/workflows/none/run-again", `{}`, http.StatusNotFound, "workflow_not_found")
	s.wantProblem(http.MethodGet, "/v1/workflows/none/output", "", http.StatusNotFound, "workflow_not_found")
	s.wantProblem(http.MethodGet, "/v1/workflows/"+id+"/output?node=9", "", http.StatusNotFound, "node_not_found")
}

func TestInvalidRequestsNameTheirField(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for _, c := range []struct{ method, path, body, field string }{
		{http.MethodPost, "/v1/workflows", `{"input": 1}`, "body.task"},
		{http.MethodPost, "/v1/workflows", `{"task": "a"}`, "body.input"},
		{http.MethodPost, "/v1/workflows", `{"task": "a", "input": 1, "odd": 2}`, "body.odd"},
		{http.MethodPost, "/v1/workflows", `{"task": "a", "input": 1, "delay": "soon"}`, "body.delay"},
		{http.MethodPost, "/v1/workflows", `{"task": "a", "input": 1, "delay": "1s", "start_at": "2030-01-01T00:00:00Z"}`, "body.start_at"},
		{http.MethodPost, "/v1/workflows", `{"task": "a", "input": 1, "unique": "x"}`, "body.unique_for"},
		{http.MethodPost, "/v1/workflows", `{"task": "a", "input": 1, "id": "a b"}`, "body.id"},
		{http.MethodPost, "/v1/workflows", `{"task": "a", "input": 1, "queue": "{a}"}`, "body"},
		{http.MethodPost, "/v1/workflows", `{"task": "a", "input": 1, "labels": {"a b": "c"}}`, "body"},
		{http.MethodPut, "/v1/limits/a", `{"key": "", "n": 1, "hold_until": "2199-01-01T00:00:00Z"}`, "body"},
		{http.MethodGet, "/v1/workflows?state=odd", "", "query.state"},
		{http.MethodGet, "/v1/workflows?limit=0", "", "query.limit"},
		{http.MethodGet, "/v1/workflows?label=x", "", "query.label"},
		{http.MethodGet, "/v1/workflows?cursor=x", "", "query.cursor"},
		{http.MethodGet, "/v1/workflows?odd=x", "", "query.odd"},
		{http.MethodGet, "/v1/workflows/a/result?wait=x", "", "query.wait"},
		{http.MethodGet, "/v1/workflows/a%20b", "", "path.id"},
		{http.MethodGet, "/v1/workflows/a/nodes/x", "", "path.node"},
		{http.MethodGet, "/v1/open-tasks?cursor=x", "", "query.cursor"},
		{http.MethodGet, "/v1/tasks?state=odd", "", "query.state"},
		{http.MethodGet, "/v1/workers?ping=x", "", "query.ping"},
		{http.MethodPost, "/v1/workers/concurrency", `{"concurrency": 0}`, "body.concurrency"},
		{http.MethodPost, "/v1/workers/concurrency", `{"concurrency": 9999}`, "body.concurrency"},
		{http.MethodPost, "/v1/task-queues/a%20b/pause", "", "path.queue"},
		{http.MethodGet, "/v1/task-rates?since=2026-01-01T00:00:00Z", "", "query.since"},
		{http.MethodPost, "/v1/tokens/extend", `{"token": "a", "for": "0s"}`, "body.for"},
		{http.MethodPost, "/v1/tasks/lease", `{"tasks": []}`, "body.tasks"},
		{http.MethodPost, "/v1/tasks/lease", `{"tasks": [""]}`, "body"},
		{http.MethodPost, "/v1/tasks/lease", `{"tasks": ["a"], "queue": "a b"}`, "body"},
		{http.MethodPost, "/v1/tasks/lease", `{"tasks": ["a"], "max": 101}`, "body.max"},
		{http.MethodPost, "/v1/tasks/lease", `{"tasks": ["a"], "lease": "10ms"}`, "body.lease"},
		{http.MethodPost, "/v1/tasks/lease", `{"tasks": ["a"], "wait": "soon"}`, "body.wait"},
	} {
		p := s.wantProblem(c.method, c.path, c.body, http.StatusBadRequest, "invalid_request")
		if len(p.Errors) == 0 || p.Errors[0].Location != c.field {
			t.Errorf("%s %s %s: got %+v, want the field %s", c.method, c.path, c.body, p, c.field)
		}
	}
	var limits api.Page[tasktype.Limit]
	if s.call(http.MethodGet, "/v1/limits", "", http.StatusOK, &limits); len(limits.Data) > 0 {
		t.Errorf("got %+v, want no change by an invalid request", limits.Data)
	}
}

func TestRedisThatIsDownIs503(t *testing.T) {
	t.Parallel()
	rdb := redistest.New(t)
	client := tasks.NewClient(rdb)
	handler := testutil.Must(api.Handler(api.Config{Client: client}))(t)
	_ = rdb.Close()
	w := httptest.NewRecorder()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	handler.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/v1/workflows/a", nil))
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
		t.Errorf("got %d, %s, want 503 with Retry-After", w.Code, w.Body)
	}
}

func TestSchedulesAreOperated(t *testing.T) {
	t.Parallel()
	s := serve(t)
	const path = "/v1/schedules/mail%2Fnightly"
	for _, op := range []string{"/pause", "/resume", "/trigger"} {
		s.call(http.MethodPost, path+op, "", http.StatusNotFound, nil)
	}
	for body, want := range map[string]string{
		`{"spec": "0 3 * * *", "send": {"task": "text.count", "input": "it was dark", "id": "mine"}}`:           "drop tasks.ID",
		`{"spec": "0 3 30 2 *", "send": {"task": "text.count", "input": "it was dark"}}`:                        "Spec",
		`{"spec": "0 3 * * *", "send": {"task": "text.count", "input": "it was dark", "timeout": "soon"}}`:      "body.send.timeout",
		`{"spec": "0 3 * * *", "jitter": "soon", "send": {"task": "text.count", "input": "it was dark"}}`:       "body.jitter",
		`{"spec": "0 3 * * *", "send": {"task": "text.count", "input": "` + strings.Repeat("x", 10<<20) + `"}}`: "pass a key",
	} {
		if got := fmt.Sprint(s.wantProblem(http.MethodPut, path, body, http.StatusBadRequest, "invalid_request")); !strings.Contains(got, want) {
			t.Errorf("got %.300s, want a problem with %s", got, want)
		}
	}
	s.call(http.MethodPut, path, `{"spec": "0 3 * * *", "catch_up": 2, "jitter": "5m", "send": {"task": "text.count", "input": "it was dark", "overlap": "queue", "labels": {"k": "v"}}}`, http.StatusNoContent, nil)
	var list struct{ Data []api.Schedule }
	s.call(http.MethodGet, "/v1/schedules?prefix=mail&label=k=v", "", http.StatusOK, &list)
	if len(list.Data) != 1 || list.Data[0].CatchUp != 2 || list.Data[0].Jitter != "5m0s" || list.Data[0].Tasks != "text.count" {
		t.Errorf("got %+v, want the schedule", list.Data)
	}
	s.call(http.MethodPost, path+"/pause", "", http.StatusNoContent, nil)
	var sent api.SentWorkflow
	s.call(http.MethodPost, path+"/trigger", "", http.StatusAccepted, &sent)
	testutil.Eventually(t, "the tick is sent", func() bool {
		var e api.Schedule
		s.call(http.MethodGet, path, "", http.StatusOK, &e)
		return e.Sent == 1 && !e.PausedAt.IsZero() && e.Overlap == "queue"
	})
	if r := s.result(sent.ID); string(r.Result) != "3" {
		t.Errorf("got the result %s of a triggered tick, want 3", r.Result)
	}
	s.call(http.MethodPost, path+"/resume", "", http.StatusNoContent, nil)
	to := time.Now().UTC().Truncate(time.Second)
	var filled api.Backfilled
	s.call(http.MethodPost, path+"/backfill", fmt.Sprintf(`{"from": %q, "to": %q}`, to.Add(-48*time.Hour).Format(time.RFC3339), to.Format(time.RFC3339)), http.StatusOK, &filled)
	if filled.Ticks != 2 {
		t.Errorf("got %d ticks of two days, want 2", filled.Ticks)
	}
	s.call(http.MethodPost, path+"/backfill", `{"from": "2020-01-01T00:00:00Z", "to": "2019-01-01T00:00:00Z"}`, http.StatusBadRequest, nil)
	s.call(http.MethodDelete, path, "", http.StatusNoContent, nil)
	s.call(http.MethodGet, path, "", http.StatusNotFound, nil)
}

// pageOf is the body of a list.
type pageOf[T any] struct{ Data []T }

func TestWorkersAndQueuesAreListedAndControlled(t *testing.T) {
	t.Parallel()
	s := serve(t)
	var workers pageOf[api.Worker]
	s.call(http.MethodGet, "/v1/workers?ping=30s", "", http.StatusOK, &workers)
	if len(workers.Data) != 1 || workers.Data[0].Replied == nil || !*workers.Data[0].Replied || workers.Data[0].Started.IsZero() {
		t.Fatalf("got %+v, want one worker that replied", workers.Data)
	}
	name := workers.Data[0].Name
	s.call(http.MethodPost, "/v1/workers/concurrency", `{"concurrency": 3, "worker": "`+name+`"}`, http.StatusNoContent, nil)
	testutil.Eventually(t, "the worker runs 3 tasks at once", func() bool {
		s.call(http.MethodGet, "/v1/workers", "", http.StatusOK, &workers)
		return workers.Data[0].Concurrency == 3
	})
	s.wantProblem(http.MethodPost, "/v1/workers/concurrency", `{"concurrency": 3, "worker": "odd"}`, http.StatusNotFound, "worker_not_found")

	var queue api.TaskQueue
	s.call(http.MethodPost, "/v1/task-queues/default/pause", "", http.StatusOK, &queue)
	if !queue.Paused || queue.Workers != 1 {
		t.Errorf("got %+v, want a paused queue with a worker", queue)
	}
	s.call(http.MethodPost, "/v1/task-queues/odd/resume", "", http.StatusOK, &queue)
	if queue.Paused || queue.Workers != 0 {
		t.Errorf("got %+v, want a queue without workers", queue)
	}
	var queues pageOf[tasktype.Queue]
	s.call(http.MethodGet, "/v1/task-queues", "", http.StatusOK, &queues)
	if len(queues.Data) == 0 || !queues.Data[0].Paused {
		t.Errorf("got %+v, want the queue paused", queues.Data)
	}
}

func TestTasksAreListedByState(t *testing.T) {
	t.Parallel()
	s := serve(t)
	list := func(state string) []tasktype.Task {
		var page pageOf[tasktype.Task]
		s.call(http.MethodGet, "/v1/tasks?state="+state, "", http.StatusOK, &page)
		return page.Data
	}
	slow := s.send(`{"task": "text.slow", "input": 1}`)
	testutil.Eventually(t, "the task runs for a second, and has a start", func() bool {
		all := list("running")
		return len(all) == 1 && all[0].Workflow == slow && all[0].Worker != "" && !all[0].Started.IsZero() && all[0].Status == tasktype.Started
	})
	close(s.release)
	s.result(slow)
	later := s.send(`{"task": "text.count", "input": "a", "delay": "1h"}`)
	if got := list("scheduled"); len(got) != 1 || got[0].Workflow != later || got[0].Due.IsZero() {
		t.Errorf("scheduled: got %+v", got)
	}
	elsewhere := s.send(`{"task": "text.count", "input": "a", "queue": "elsewhere"}`)
	if got := list("ready"); len(got) != 1 || got[0].Workflow != elsewhere || got[0].Queue != "elsewhere" {
		t.Errorf("ready: got %+v", got)
	}
	testutil.Eventually(t, "the outcome is counted", func() bool {
		var page pageOf[tasktype.RatePoint]
		s.call(http.MethodGet, "/v1/task-rates?task=text.slow&step=hour", "", http.StatusOK, &page)
		return len(page.Data) == 1 && page.Data[0].Succeeded == 1
	})
	for _, name := range []string{"review.one", "review.two"} {
		testutil.Must(tasks.New[string, string](name, tasks.External()).S("x").Send(t.Context(), s.client))(t)
	}
	testutil.Eventually(t, "the open nodes of all tasks are listed", func() bool {
		var page pageOf[tasktype.OpenToken]
		s.call(http.MethodGet, "/v1/open-tasks", "", http.StatusOK, &page)
		var names []string
		for _, o := range page.Data {
			names = append(names, o.Task)
		}
		return strings.Join(names, " ") == "review.one review.two"
	})
}

// reply is an error that Redis replied with.
type reply string

func (r reply) Error() string { return string(r) }
func (reply) RedisError()     {}

var _ redis.Error = reply("")

// The problem of a Redis that rejects writes does not say that Redis is away, and names the remedy.
func TestProblemsOfRedis(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"rejects writes: its memory or disk is full": fmt.Errorf("pause: %w", reply("OOM command not allowed when used memory > 'maxmemory'.")),
		"does not respond":                           redis.ErrClosed,
	} {
		if p := api.RedisProblem(err); p == nil || p.Status != 503 || !strings.Contains(p.Detail, want) {
			t.Errorf("%v: got %v, want 503 with %q", err, p, want)
		}
	}
	if p := api.RedisProblem(errors.New("no")); p != nil {
		t.Errorf("another error: got %v, want none", p)
	}
}
