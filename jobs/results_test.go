package jobs_test

import (
	"encoding/json"
	"strings"
	"testing"

	"muster/jobs"
	"muster/jobs/pipeline"
)

func init() {
	pipelines["summary"] = &pipeline.Pipeline{Name: "summary", Stages: []pipeline.Stage{
		{Name: "create", Role: "creator", Takes: pipeline.TakesJob},
		{Name: "validate", Role: "validator", Takes: pipeline.TakesItem},
		{Name: "summarise", Role: "writer", Takes: pipeline.TakesJob},
		{Name: "load", Role: "loader", Takes: pipeline.TakesJob},
	}}
}

// The result of a stage is in its job, also after its end, in later assignments, and not in lists. The last stage can emit
// items, which are integrated.
func TestResultsOfStages(t *testing.T) {
	both(t, nil, func(t *testing.T, w *world) {
		j := w.create(jobs.Request{Pipeline: "summary"})
		w.complete(w.take("creator", "c"), jobs.Answer{Items: items("a"), Patch: json.RawMessage(`{"pages":12}`)})
		item := w.take("validator", "v")
		if got := string(item.Results["create"]); got != `{"pages":12}` {
			t.Errorf("results in the assignment of an item: got %v, want the results of create", item.Results)
		}
		w.complete(item, jobs.Answer{})
		large := `{"text":"` + strings.Repeat("x", jobs.MaxInline) + `"}`
		w.complete(w.take("writer", "s"), jobs.Answer{Patch: json.RawMessage(large)})
		work := w.take("loader", "l")
		if len(work.Results) != 1 || len(work.Results["create"]) == 0 {
			t.Errorf("results in the last assignment: got %d, want the result of create without the large one", len(work.Results))
		}
		if n, err := w.Add(w.ctx, work, items("summary")); n != 1 || err != nil {
			t.Fatalf("items of the last stage: got %d, %v, want 1", n, err)
		}
		for _, at := range []string{"running", "ended"} {
			got, err := w.Get(w.ctx, j.ID)
			if err != nil || string(got.Stages[0].Result) != `{"pages":12}` || string(got.Stages[2].Result) != large || len(got.Stages[1].Result) != 0 {
				t.Errorf("stages of the %s job: got %+v, %v", at, got.Stages, err)
			}
			if want := (jobs.Counts{Total: 2, Integrated: 2}); got.Items != want {
				t.Errorf("items of the %s job: got %+v, want %+v", at, got.Items, want)
			}
			page, err := w.List(w.ctx, jobs.Filter{})
			if err != nil || len(page.Jobs) != 1 || len(page.Jobs[0].Stages[0].Result) != 0 {
				t.Errorf("list: got %+v, %v, want no results", page.Jobs, err)
			}
			if at == "running" {
				w.complete(work, jobs.Answer{Items: items("summary", "index")[:1]})
				w.until(j.ID, jobs.Completed)
			}
		}
		it, err := w.Item(w.ctx, j.ID, "summary")
		if err != nil || it.Status != jobs.ItemIntegrated || it.Agent != "l" || it.Stage != "load" || it.Text != "text of summary" {
			t.Errorf("an item of the last stage: got %+v, %v", it, err)
		}
	})
}
