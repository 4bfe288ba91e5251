package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"muster/tasks/api"
	"muster/tasks/tasktype"
)

func TestWorkIsSent(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for _, c := range []struct{ work, want string }{
		{`{"task": "text.count", "input": "it was dark"}`, `3`},
		{`{"chain": [{"task": "text.split", "input": "it was dark"}, {"task": "text.size"}]}`, `3`},
		{`{"group": [{"task": "text.count", "input": "a"}, {"chain": [{"task": "text.split", "input": "a b"}, {"task": "text.size"}]}], "at_most": 1}`, `[1,2]`},
		{`{"chord": {"header": {"map": {"list": {"task": "text.split", "input": "it was dark"}, "each": {"task": "text.count"}}}, "body": {"task": "text.sum"}}}`, `3`},
		{`{"group": [{"task": "text.count", "input": "a", "timeout": "1m"}, {"task": "text.count", "input": null}], "queue": "default", "max_retry": 1, "fail_fast": true}`, `[1,0]`},
	} {
		if r := s.result(s.send(`{"require_handlers": true, "name": "test", "work": ` + c.work + `}`)); string(r.Result) != c.want {
			t.Errorf("%s: got %+v, want %s", c.work, r, c.want)
		}
	}
	id := s.send(`{"work": {"max_retry": 2, "queue": "elsewhere", "group": [{"task": "a", "input": 1}, {"task": "b", "input": 1, "queue": "py"}]}}`)
	var nodes api.Page[tasktype.Node]
	s.call(http.MethodGet, "/v1/workflows/"+id+"/nodes", "", http.StatusOK, &nodes)
	if nodes.Data[0].Queue != "elsewhere" || nodes.Data[1].Queue != "py" {
		t.Errorf("got %+v, want the queues of the group and of the second task", nodes.Data)
	}
}

func TestInvalidWorkNamesItsPlace(t *testing.T) {
	t.Parallel()
	s := serve(t)
	deep := `{"task": "text.count", "input": "a"}`
	for range 200 {
		deep = `{"group": [` + deep + `]}`
	}
	for _, c := range []struct{ work, field, message string }{
		{`{}`, "body.work", "exactly one"},
		{`{"task": "a", "input": 1, "group": [{"task": "b", "input": 1}]}`, "body.work", "exactly one"},
		{`{"chain": [{"task": "text.count"}]}`, "body.work.chain[0].input", "input of task text.count"},
		{`{"chain": [{"task": "text.split", "input": "a"}, {"task": "text.size", "input": 1}]}`, "body.work.chain[1].input", "leave it out"},
		{`{"chain": [{"task": "text.split", "input": "a"}, {"group": [{"task": "text.size"}]}]}`, "body.work.chain[1]", "expected a task"},
		{`{"group": [{"task": "a", "input": 1}, {"chord": {"header": {"task": "a", "input": 1}, "body": {"map": {"list": {}, "each": {}}}}}]}`, "body.work.group[1].chord.body", "expected a task"},
		{`{"map": {"list": {"task": "a", "input": 1, "timeout": "soon"}, "each": {"task": "b"}}}`, "body.work.map.list.timeout", "duration"},
		{`{"chain": [{"task": "text.split", "input": "a"}], "at_most": 2}`, "body.work", "group or a map"},
		{`{"chain": [{"task": "text.split", "input": "a"}, {"task": "text.sise"}]}`, "body.work.chain[1].task", "no live worker"},
		{`{"task": "text.count", "input": "a", "queue": "elsewhere"}`, "body.work.task", "queue elsewhere"},
		{`{"chain": [{"odd": 1}]}`, "body.work.chain[0].odd", "unexpected"},
		{`{"chain": [{"task": "a", "input": 1}], "task": 5}`, "body.work.task", "string"},
		{deep, "body.work" + strings.Repeat(".group[0]", 100), "100 deep"},
	} {
		p := s.wantProblem(http.MethodPost, "/v1/workflows", `{"require_handlers": true, "work": `+c.work+`}`, http.StatusBadRequest, "invalid_request")
		if len(p.Errors) == 0 || p.Errors[0].Location != c.field || !strings.Contains(fmt.Sprint(p), c.message) {
			t.Errorf("%.100s: got %.1000v, want %q at %.1000s", c.work, p, c.message, c.field)
		}
	}
	p := s.wantProblem(http.MethodPost, "/v1/workflows", `{"task": "a", "work": {"task": "a", "input": 1}}`, http.StatusBadRequest, "invalid_request")
	if p.Errors[0].Location != "body.work" {
		t.Errorf("got %+v, want body.work", p)
	}
}

func TestLargeWorkIsSent(t *testing.T) {
	t.Parallel()
	s := serve(t)
	many := func(n int) string {
		return `{"work": {"group": [` + strings.Repeat(`{"task": "a", "queue": "elsewhere", "input": 1},`, n-1) + `{"task": "a", "queue": "elsewhere", "input": 1}]}}`
	}
	var status api.WorkflowStatus
	s.call(http.MethodGet, "/v1/workflows/"+s.send(many(100_000)), "", http.StatusOK, &status)
	if status.Total < 100_000 {
		t.Errorf("got %+v, want 100,000 tasks", status)
	}
	p := s.wantProblem(http.MethodPost, "/v1/workflows", many(200_001), http.StatusBadRequest, "invalid_request")
	if !strings.Contains(fmt.Sprint(p), "more than 200000 nodes") {
		t.Errorf("got %+v, want the limit", p)
	}
}
