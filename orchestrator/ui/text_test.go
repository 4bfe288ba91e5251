package ui

import (
	"slices"
	"testing"

	"muster/internal/webui"
	"muster/jobs"
	"muster/jobs/pipeline"
	"muster/sites"
	"muster/sites/report"
)

func TestErrorsAreGroupedByTheirText(t *testing.T) {
	t.Parallel()
	got := grouped([]jobs.ItemError{{Key: "a", Error: "x"}, {Key: "b", Error: "y\nz"}, {Key: "c", Error: "y z"}, {Key: "d"}})
	want := []webui.Group[jobs.ItemError]{{Key: "y z", First: jobs.ItemError{Key: "b", Error: "y\nz"}, Count: 2}, {Key: "x", First: jobs.ItemError{Key: "a", Error: "x"}, Count: 1}, {First: jobs.ItemError{Key: "d"}, Count: 1}}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// The completed items of a stage are the items that need neither it nor an earlier stage.
func TestStagesCountWhatIsBehindThem(t *testing.T) {
	t.Parallel()
	steps := stepsOf(jobs.Job{Status: jobs.Processing, Items: jobs.Counts{Total: 10}, Stages: []jobs.Stage{
		{Name: "create", Takes: pipeline.TakesJob, Status: jobs.StageCompleted},
		{Name: "enrich", Takes: pipeline.TakesItem, Status: jobs.StageProcessing, Pending: 3, Processing: 1},
		{Name: "validate", Takes: pipeline.TakesItem, Status: jobs.StageProcessing, Pending: 2},
	}})
	if steps[0].Bar || steps[0].Open || steps[1].Done != 6 || steps[2].Done != 4 || steps[2].Total != 10 || !steps[2].Open {
		t.Errorf("got %+v, want 6 and 4 of 10 items completed by the stages", steps)
	}
}

func TestPartsOfABarFillIt(t *testing.T) {
	t.Parallel()
	got := byState(jobs.Counts{Total: 4, Integrated: 1, Pending: 3})
	if len(got) != 2 || got[0] != (part{"integrated", 1, 0, 250}) || got[1] != (part{"pending", 3, 250, 750}) {
		t.Errorf("got %+v", got)
	}
	if got := byState(jobs.Counts{}); len(got) != 0 {
		t.Errorf("got %+v, want none", got)
	}
}

func TestOutcomeShowsFailedItems(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status jobs.Status
		items  jobs.Counts
		want   string
	}{
		{jobs.Completed, jobs.Counts{}, "SUCCESS"},
		{jobs.Completed, jobs.Counts{Total: 2, Integrated: 1, Rejected: 1}, "SUCCESS"},
		{jobs.Completed, jobs.Counts{Total: 121, Failed: 121}, "FAILURE"},
		{jobs.Completed, jobs.Counts{Total: 121, Failed: 84, Rejected: 37}, "RETRY"},
		{jobs.Processing, jobs.Counts{Total: 2, Failed: 1}, "STARTED"},
		{jobs.Failed, jobs.Counts{Total: 2, Integrated: 1, Failed: 1}, "FAILURE"},
	} {
		if got := outcome(jobs.Job{Status: c.status, Items: c.items}); got != c.want {
			t.Errorf("%s %+v: got %s, want %s", c.status, c.items, got, c.want)
		}
	}
}

// The state of a complete scrape has the colour of the health of its data.
func TestQualityShowsHealth(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		job  sites.Job
		want string
	}{
		{sites.Job{Status: report.StatusComplete}, "SUCCESS"},
		{sites.Job{Status: report.StatusComplete, Summary: &report.Summary{Health: report.Health{Status: report.Healthy}}}, "SUCCESS"},
		{sites.Job{Status: report.StatusComplete, Summary: &report.Summary{Health: report.Health{Status: report.Degraded}}}, "RETRY"},
		{sites.Job{Status: report.StatusComplete, Summary: &report.Summary{Health: report.Health{Status: report.Critical}}}, "FAILURE"},
		{sites.Job{Status: report.StatusIncomplete, Summary: &report.Summary{Health: report.Health{Status: report.Healthy}}}, "RETRY"},
	} {
		if got := quality(c.job); got != c.want {
			t.Errorf("%+v: got %s, want %s", c.job, got, c.want)
		}
	}
}
