package tasks_test

import (
	"maps"
	"strings"
	"testing"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/tasktype"
)

// Workflows are found by their names and labels while they run and after they have ended.
func TestWorkflowsAreFoundByNameAndLabels(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		acme, zen := map[string]string{"customer": "acme", "release": "1.2 → é"}, map[string]string{"customer": "zen"}
		ended := sent(t, w, ID.S(1), tasks.Name("Nightly import"), tasks.Labels(acme))
		failed := sent(t, w, Fail.S(1), tasks.Name("Nightly import"), tasks.Labels(zen), tasks.Labels(map[string]string{"empty": ""}))
		other := sent(t, w, ID.S(2))
		for _, r := range []*tasks.AsyncResult[int]{ended, failed, other} {
			testutil.Ok(t, r.WaitAll(t.Context()))
		}
		running := sent(t, w, Hold.S("labels"), tasks.Labels(acme))
		defer w.open("labels")
		for _, c := range []struct {
			filter tasktype.WorkflowFilter
			want   []string
		}{
			{tasktype.WorkflowFilter{Name: "Nightly import"}, []string{failed.ID(), ended.ID()}},
			{tasktype.WorkflowFilter{Name: "t.id"}, []string{other.ID(), ended.ID()}},
			{tasktype.WorkflowFilter{Contains: "night"}, []string{failed.ID(), ended.ID()}},
			{tasktype.WorkflowFilter{Contains: "T.FAIL"}, []string{failed.ID()}},
			{tasktype.WorkflowFilter{Labels: acme}, []string{running.ID(), ended.ID()}},
			{tasktype.WorkflowFilter{Labels: map[string]string{"customer": "acme"}, State: tasktype.WorkflowRunning}, []string{running.ID()}},
			{tasktype.WorkflowFilter{Labels: map[string]string{"empty": ""}}, []string{failed.ID()}},
			{tasktype.WorkflowFilter{Labels: map[string]string{"customer": "acm"}}, nil},
			{tasktype.WorkflowFilter{Labels: map[string]string{"customer": "acme", "none": "x"}}, nil},
			{tasktype.WorkflowFilter{Name: "Nightly"}, nil},
		} {
			page, _, err := w.client.Workflows(t.Context(), c.filter)
			testutil.Ok(t, err)
			got := map[string]bool{}
			for _, found := range page {
				got[found.ID] = true
			}
			want := map[string]bool{}
			for _, id := range c.want {
				want[id] = true
			}
			if !maps.Equal(got, want) {
				t.Errorf("%+v: got %+v, want %v", c.filter, page, c.want)
			}
		}
		d, err := ended.Detail(t.Context())
		if err != nil || d.Name != "Nightly import" || !maps.Equal(d.Labels, acme) {
			t.Errorf("detail: got %q, %v, %v, want the name and the labels", d.Name, d.Labels, err)
		}
	})
}

func TestNamesAndLabelsOutOfRangeAreErrorsOfSend(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		label := func(k, v string) tasks.SendOption { return tasks.Labels(map[string]string{k: v}) }
		for want, o := range map[string]tasks.SendOption{
			"Name(\"\")":          tasks.Name(""),
			"Name(\"a\\tb\")":     tasks.Name("a\tb"),
			"Name(\"xxx":          tasks.Name(strings.Repeat("x", 201)),
			"key \"\"":            label("", "v"),
			"key \"a b\"":         label("a b", "v"),
			"key \"a=b\"":         label("a=b", "v"),
			"value of k":          label("k", "a\nb"),
			"more than 1024":      label("k", strings.Repeat("x", 1<<20)),
			"labels have 1028":    label("long", strings.Repeat("x", 1024)),
			"key \"xxxxxxxxxxxxx": label(strings.Repeat("x", 64), ""),
		} {
			if err := refusal(t, w, ID.S(1), o); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want an error with %q", err, want)
			}
		}
	})
}
