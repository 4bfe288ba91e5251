package api

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"muster/internal/testutil"
	"muster/jobs/agent"
)

func TestAgents(t *testing.T) {
	t.Parallel()
	cfg := served(t)
	h := handler(t, cfg)
	w := post(t, h, "POST", "/v1/agents", fieldsOf{"name": "one", "roles": []string{"creator"}, "url": "https://one.example/", "labels": fieldsOf{"rack": "a"}})
	got := decode(t, w)
	if w.Code != http.StatusCreated || got["secret"] == "" || got["heartbeat_seconds"] != 10.0 || got["lease_seconds"] != 30.0 {
		t.Errorf("register: got %d %v, want 201 with a secret and times", w.Code, got)
	}
	id, _ := got["id"].(string)
	a, err := cfg.Agents.Get(t.Context(), id)
	if err != nil || a.Name != "one" || a.Capacity != 1 || a.URL != "https://one.example" || a.Labels["rack"] != "a" {
		t.Errorf("register: got %+v, %v, want the fields of the request, and capacity 1", a, err)
	}
	w = post(t, h, "POST", "/v1/agents", fieldsOf{"name": "two", "roles": []string{"a"}, "url": "https://two.example/"})
	if w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "agents.allow") {
		t.Errorf("a URL that is not allowed: got %d %s, want 403 and the setting", w.Code, w.Body)
	}
	for _, name := range []string{"three", "four", "five"} {
		w = post(t, h, "POST", "/v1/agents", fieldsOf{"name": name, "roles": []string{"a"}})
	}
	if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" {
		t.Errorf("an agent too many: got %d, Retry-After %q; want 429 and a time", w.Code, w.Header().Get("Retry-After"))
	}
}

func TestStatusesOfAgents(t *testing.T) {
	t.Parallel()
	cfg := served(t)
	h, f := handler(t, cfg), populate(t, cfg, "")
	one := "/v1/agents/" + f.agent
	for _, c := range []struct {
		method, path string
		body         string
		want         int
		says         string
	}{
		{"GET", "/v1/agents", ``, 200, `"held":2`},
		{"GET", one, ``, 200, `"name":"one"`},
		{"GET", "/v1/agents/agent-2", ``, 404, "register it again"},
		{"GET", "/agents/health", ``, 200, `{"agents":[{"name":"one","role":"creator","roles":["creator","validator"],"status":"healthy","message":""}]}`},
		{"GET", "/v1/agents/activity", ``, 200, `"assignments":1,`},
		{"GET", "/v1/agents/activity?hours=3", ``, 200, `"assignments":1,`},
		{"GET", "/v1/agents/activity?hours=25", ``, 400, "query.hours"},
		{"POST", one + "/heartbeat", ``, 200, `"state":"healthy"`},
		{"POST", one + "/heartbeat", `{}`, 200, `"state":"healthy"`},
		{"POST", "/v1/agents/agent-2/heartbeat", `{}`, 404, ""},
		{"POST", one + "/lease", `{"wait_seconds": 31}`, 400, "body.wait_seconds"},
		{"POST", one + "/lease", `{"max": 101}`, 400, "body.max"},
		{"POST", one + "/lease", `{"roles": ["writer"]}`, 400, "body.roles[0]"},
		{"POST", "/v1/agents/agent-2/lease", `{}`, 404, ""},
		{"POST", one + "/pause", ``, 200, `"state":"draining"`},
		{"POST", one + "/resume", ``, 200, `"state":"healthy"`},
		{"DELETE", one, ``, 204, ""},
		{"DELETE", one, ``, 404, ""},
	} {
		w := post(t, h, c.method, c.path, []byte(c.body))
		if w.Code != c.want || !strings.Contains(w.Body.String(), c.says) {
			t.Errorf("%s %s %s: got %d %s, want %d and %q", c.method, c.path, c.body, w.Code, w.Body, c.want, c.says)
		}
	}
}

func TestAssignmentsAreLeasedAndSettled(t *testing.T) {
	t.Parallel()
	cfg := served(t)
	h, f := handler(t, cfg), populate(t, cfg, "")
	w := post(t, h, "POST", "/v1/agents/"+f.agent+"/lease", fieldsOf{"roles": []string{"validator"}, "max": 3})
	var got struct{ Assignments []agent.Body }
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || len(got.Assignments) != 3 {
		t.Fatalf("lease: got %s (%v), want three assignments", w.Body, err)
	}
	at := slices.IndexFunc(got.Assignments, func(a agent.Body) bool { return a.Job.ID == f.job })
	if at < 0 {
		t.Fatalf("lease: got %s, want one of job %s", w.Body, f.job)
	}
	v, a := got.Assignments[at], got.Assignments[(at+1)%3]
	if a.Fence == 0 || a.Role != "validator" || a.Job.ID != f.other || string(a.Job.Context) != "{}" || a.Item == nil {
		t.Errorf("lease: got %+v, want the work of the job", a)
	}
	holder := func(fence int64, more fieldsOf) fieldsOf {
		out := fieldsOf{"agent": f.agent, "fence": fence}
		for k, v := range more {
			out[k] = v
		}
		return out
	}
	for _, c := range []struct {
		id, call string
		body     fieldsOf
		want     int
		says     string
	}{
		{f.assignment, "heartbeat", holder(f.fence, fieldsOf{"usage": fieldsOf{"tokens": 5}}), 200, "lease_until"},
		{f.assignment, "heartbeat", holder(f.fence, fieldsOf{"usage": fieldsOf{"tokens": -5}}), 400, "body.usage.tokens"},
		{f.assignment, "heartbeat", holder(f.fence+1, nil), 409, "assignment was lost"},
		{f.assignment, "heartbeat", fieldsOf{"agent": "agent-2", "fence": f.fence}, 403, "another agent"},
		{"none", "heartbeat", holder(1, nil), 404, "no such assignment"},
		{f.assignment, "items", holder(f.fence, fieldsOf{"items": []any{fieldsOf{"key": "k", "text": "t", "confidence_score": 0.5}}}), 200, `"added":1`},
		{f.assignment, "items", holder(f.fence, fieldsOf{"items": []any{fieldsOf{"key": "k", "text": "t"}, fieldsOf{"text": "t"}}}), 400, "body.items[1].key"},
		{f.assignment, "items", holder(f.fence, fieldsOf{"items": []any{}}), 400, "body.items"},
		{v.ID, "complete", holder(v.Fence, fieldsOf{"item": fieldsOf{}, "result": 1}), 400, "body.result"},
		{v.ID, "complete", holder(v.Fence, fieldsOf{"verdict": "reject", "reason": "no", "item": fieldsOf{"external_id": "x"}, "usage": fieldsOf{"tokens": 5}}), 200, "{}"},
		{a.ID, "release", holder(a.Fence+1, nil), 409, "assignment was lost"},
		{a.ID, "release", holder(a.Fence, nil), 200, "{}"},
		{f.assignment, "fail", holder(f.fence, fieldsOf{"error": " "}), 400, "body.error"},
		{f.assignment, "fail", holder(f.fence, fieldsOf{"error": "broken", "retry_after_seconds": 0}), 200, "{}"},
	} {
		w := post(t, h, "POST", "/v1/assignments/"+c.id+"/"+c.call, c.body)
		if w.Code != c.want || !strings.Contains(w.Body.String(), c.says) {
			t.Errorf("%s %v: got %d %s, want %d and %q", c.call, c.body, w.Code, w.Body, c.want, c.says)
		}
	}
	for key, want := range map[string][]string{"k": {`"confidence_score":0.5`}, "s": {`"status":"rejected"`, `"rejection_reason":"no"`, `"external_id":"x"`}} {
		w := ask(t, h, "GET", "/v1/jobs/"+f.job+"/items/"+key)
		for _, part := range want {
			if !strings.Contains(w.Body.String(), part) {
				t.Errorf("item %s: got %s, want %s", key, w.Body, part)
			}
		}
	}
	w = post(t, h, "POST", "/v1/agents/"+f.agent+"/lease", fieldsOf{"roles": []string{"creator"}})
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || len(got.Assignments) != 1 || got.Assignments[0].Attempt != 2 {
		t.Fatalf("lease after a failure: got %s (%v), want a second attempt immediately", w.Body, err)
	}
	a = got.Assignments[0]
	post(t, h, "POST", "/v1/assignments/"+a.ID+"/fail", holder(a.Fence, fieldsOf{"error": "hopeless", "permanent": true}))
	testutil.Ok(t, cfg.Jobs.Sweep(t.Context()))
	if got := decode(t, ask(t, h, "GET", "/jobs/"+f.job)); got["status"] != "failed" || !strings.Contains(got["error_message"].(string), "hopeless") {
		t.Errorf("a permanent failure: got %v, want a failed job", got)
	}
}
