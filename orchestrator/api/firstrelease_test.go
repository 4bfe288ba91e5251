package api

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// The operations without a version have the fields and statuses of the first release.
func TestOperationsOfTheFirstRelease(t *testing.T) {
	t.Parallel()
	cfg := everything(t)
	h := handler(t, cfg)
	f := populate(t, cfg, "")
	job := "/jobs/" + f.job
	for _, c := range []struct {
		method, path, body string
		status             int
		fields             string // of the response, and of the first element of its list
	}{
		{"GET", "/health", ``, 200, "component status uptime_seconds"},
		{"GET", "/ready", ``, 200, "message ready redis"},
		{"POST", "/jobs", `{"prompt": "p", "context": {"a": 1}}`, 201, "id job_id status prompt creator_status validator_status"},
		{"POST", "/jobs", `{"prompt": "p", "context": [1]}`, 400, "status detail errors"},
		{"GET", "/jobs?status=created&limit=10&offset=0", ``, 200, "jobs total limit offset"},
		{"GET", "/jobs?limit=101", ``, 400, "status detail errors"},
		{"GET", "/jobs/stuck", ``, 200, "jobs"},
		{"GET", job, ``, 200, "id job_id status creator_status validator_status total_tokens total_requests progress_percent"},
		{"GET", "/jobs/" + noJob, ``, 404, "status detail"},
		{"GET", "/jobs/no%20id", ``, 400, "status detail errors"},
		{"GET", job + "/progress", ``, 200, "job_id status progress_percent eta_seconds"},
		{"GET", job + "/report?format=text", ``, 200, ""},
		{"DELETE", job + "?cleanup=true", ``, 200, "success job_id status cleanup"},
		{"POST", "/jobs/" + f.other + "/cancel", ``, 200, "success job_id status cleanup"},
		{"GET", "/agents/health", ``, 200, "agents"},
		{"GET", "/stats/daily?days=7", ``, 200, "days"},
		{"GET", "/stats/daily?days=31", ``, 400, "status detail errors"},
		{"GET", "/status", ``, 200, "jobs stuck total uptime_seconds"},
	} {
		w := post(t, h, c.method, c.path, []byte(c.body))
		if w.Code != c.status {
			t.Errorf("%s %s: got %d %s, want %d", c.method, c.path, w.Code, w.Body, c.status)
			continue
		}
		if c.fields == "" {
			continue
		}
		got := slices.Sorted(maps.Keys(decode(t, w)))
		for _, want := range strings.Fields(c.fields) {
			if !slices.Contains(got, want) {
				t.Errorf("%s %s: got the fields %q, want %s among them", c.method, c.path, got, want)
			}
		}
	}
	var days struct{ Days []map[string]json.RawMessage }
	if err := json.Unmarshal(ask(t, h, http.MethodGet, "/stats/daily").Body.Bytes(), &days); err != nil || len(days.Days) == 0 {
		t.Fatalf("got %v, %v, want days", days, err)
	}
	for _, want := range []string{"date", "jobs_created", "jobs_completed", "jobs_failed"} {
		if days.Days[0][want] == nil {
			t.Errorf("got the fields %v of a day, want %s among them", slices.Collect(maps.Keys(days.Days[0])), want)
		}
	}
}
