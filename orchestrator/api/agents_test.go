package api

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"muster/jobs/agent"
)

func TestAgents(t *testing.T) {
	t.Parallel()
	cfg, f := faked(t)
	h := handler(t, cfg)
	w := post(t, h, "POST", "/v1/agents", fieldsOf{"name": "one", "roles": []string{"creator"}, "url": "https://one.example/", "labels": fieldsOf{"rack": "a"}})
	if got := decode(t, w); w.Code != http.StatusCreated || got["id"] != "agent-1" || got["secret"] != "s3cret" || got["heartbeat_seconds"] != 10.0 || got["lease_seconds"] != 30.0 {
		t.Errorf("register: got %d %v, want 201 with id, secret and times", w.Code, got)
	}
	if r := f.agents.registration; r.Name != "one" || r.Capacity != 1 || r.URL != "https://one.example/" || r.Labels["rack"] != "a" {
		t.Errorf("register: got %+v, want what was sent, and capacity 1", r)
	}
}

func TestAgentsHealth(t *testing.T) {
	t.Parallel()
	cfg, _ := faked(t)
	w := ask(t, handler(t, cfg), "GET", "/agents/health")
	var health struct{ Agents []fieldsOf }
	if err := json.Unmarshal(w.Body.Bytes(), &health); err != nil || len(health.Agents) != 1 {
		t.Fatalf("health: got %s (%v), want one agent", w.Body, err)
	}
	if a := health.Agents[0]; a["name"] != "one" || a["role"] != "creator" || a["status"] != "healthy" || a["message"] != "" || a["current_job_id"] != aJob {
		t.Errorf("health: got %v, want name, role, status, message and job", a)
	}
}

func TestStatusesOfAgents(t *testing.T) {
	t.Parallel()
	cfg, f := faked(t)
	h := handler(t, cfg)
	for _, c := range []struct {
		method, path string
		body         string
		want         int
		says         string
	}{
		{"GET", "/v1/agents", ``, 200, `"held":1`},
		{"GET", "/v1/agents/agent-1", ``, 200, `"name":"one"`},
		{"GET", "/v1/agents/agent-2", ``, 404, "register it again"},
		{"POST", "/v1/agents/agent-1/heartbeat", ``, 200, `"state":"healthy"`},
		{"POST", "/v1/agents/agent-1/heartbeat", `{}`, 200, `"state":"healthy"`},
		{"POST", "/v1/agents/agent-2/heartbeat", `{}`, 404, ""},
		{"DELETE", "/v1/agents/agent-1", ``, 204, ""},
		{"DELETE", "/v1/agents/agent-2", ``, 404, ""},
		{"POST", "/v1/agents/agent-1/lease", `{"wait_seconds": 31}`, 400, "body.wait_seconds"},
		{"POST", "/v1/agents/agent-1/lease", `{"max": 101}`, 400, "body.max"},
		{"POST", "/v1/agents/agent-2/lease", `{}`, 404, ""},
	} {
		w := post(t, h, c.method, c.path, []byte(c.body))
		if w.Code != c.want || !strings.Contains(w.Body.String(), c.says) {
			t.Errorf("%s %s %s: got %d %s, want %d and %q", c.method, c.path, c.body, w.Code, w.Body, c.want, c.says)
		}
	}
	post(t, h, "POST", "/v1/agents/agent-1/pause", []byte(``))
	if !f.agents.draining {
		t.Error("pause: nothing happened")
	}
	post(t, h, "POST", "/v1/agents/agent-1/resume", []byte(``))
	if f.agents.draining {
		t.Error("resume: nothing happened")
	}
	f.agents.err = agent.ErrNotAllowed
	if w := post(t, h, "POST", "/v1/agents", fieldsOf{"name": "one", "roles": []string{"a"}}); w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "agents.allow") {
		t.Errorf("a URL that is not allowed: got %d %s, want 403 and the setting", w.Code, w.Body)
	}
	f.agents.err = agent.ErrTooMany
	if w := post(t, h, "POST", "/v1/agents/agent-1/lease", fieldsOf{}); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" {
		t.Errorf("too many polls: got %d, Retry-After %q; want 429 and a time", w.Code, w.Header().Get("Retry-After"))
	}
}

func TestAssignments(t *testing.T) {
	t.Parallel()
	cfg, f := faked(t)
	h := handler(t, cfg)
	w := post(t, h, "POST", "/v1/agents/agent-1/lease", fieldsOf{"max": 3})
	var got struct{ Assignments []agent.Body }
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || len(got.Assignments) != 1 {
		t.Fatalf("lease: got %s (%v), want one assignment", w.Body, err)
	}
	a := got.Assignments[0]
	if a.ID != "as-1" || a.Fence != 7 || a.Role != "creator" || a.Job.ID != aJob || string(a.Job.Context) != "{}" || a.Job.Document.URL != "/v1/jobs/"+aJob+"/document" || a.Item != nil {
		t.Errorf("lease: got %+v, want the work of the job", a)
	}
	holder := func(more fieldsOf) fieldsOf {
		out := fieldsOf{"agent": "agent-1", "fence": 7}
		for k, v := range more {
			out[k] = v
		}
		return out
	}
	for _, c := range []struct {
		call string
		body fieldsOf
		want int
		says string
	}{
		{"heartbeat", holder(fieldsOf{"usage": fieldsOf{"tokens": 5}}), 200, "lease_until"},
		{"heartbeat", holder(fieldsOf{"usage": fieldsOf{"tokens": -5}}), 400, "body.usage.tokens"},
		{"heartbeat", fieldsOf{"agent": "agent-1", "fence": 6}, 409, "no longer yours"},
		{"heartbeat", fieldsOf{"agent": "agent-2", "fence": 7}, 403, "another agent"},
		{"items", holder(fieldsOf{"items": []any{fieldsOf{"key": "k", "text": "t", "confidence_score": 0.5}}}), 200, `"added":1`},
		{"items", holder(fieldsOf{"items": []any{fieldsOf{"key": "k", "text": "t"}, fieldsOf{"text": "t"}}}), 400, "body.items[1].key"},
		{"items", holder(fieldsOf{"items": []any{}}), 400, "body.items"},
		{"complete", holder(fieldsOf{"verdict": "reject", "reason": "no", "item": fieldsOf{"external_id": "x"}, "usage": fieldsOf{"tokens": 5}}), 200, "{}"},
		{"complete", holder(fieldsOf{"item": fieldsOf{}, "result": 1}), 400, "body.result"},
		{"fail", holder(fieldsOf{"error": "broken", "retry_after_seconds": 1.5, "permanent": true}), 200, "{}"},
		{"fail", holder(fieldsOf{"error": " "}), 400, "body.error"},
		{"release", holder(nil), 200, "{}"},
		{"release", fieldsOf{"agent": "agent-1", "fence": 6}, 409, "no longer yours"},
	} {
		w := post(t, h, "POST", "/v1/assignments/as-1/"+c.call, c.body)
		if w.Code != c.want || !strings.Contains(w.Body.String(), c.says) {
			t.Errorf("%s %v: got %d %s, want %d and %q", c.call, c.body, w.Code, w.Body, c.want, c.says)
		}
	}
	if len(f.agents.items) != 1 || f.agents.items[0].Key != "k" || *f.agents.items[0].Confidence != 0.5 {
		t.Errorf("items: got %+v, want k", f.agents.items)
	}
	if a := f.agents.answer; a.Verdict != "reject" || a.Reason != "no" || string(a.Patch) != `{"external_id":"x"}` || a.Usage["tokens"] != 5 {
		t.Errorf("complete: got %+v, want what was sent", a)
	}
	if x := f.agents.failure; x.message != "broken" || x.after == nil || *x.after != 1500*time.Millisecond || !x.permanent {
		t.Errorf("fail: got %+v, want what was sent", x)
	}
}

func TestActivityOfAgents(t *testing.T) {
	t.Parallel()
	cfg, _ := faked(t)
	h := handler(t, cfg)
	for query, want := range map[string]string{"": `"assignments":24,`, "?hours=3": `"assignments":3,`} {
		if w := ask(t, h, "GET", "/v1/agents/activity"+query); w.Code != 200 || !strings.Contains(w.Body.String(), want) {
			t.Errorf("activity%s: got %d %s, want %s", query, w.Code, w.Body, want)
		}
	}
	if w := ask(t, h, "GET", "/v1/agents/activity?hours=25"); w.Code != 400 || !strings.Contains(w.Body.String(), "query.hours") {
		t.Errorf("25 hours: got %d %s, want 400 with query.hours", w.Code, w.Body)
	}
}
