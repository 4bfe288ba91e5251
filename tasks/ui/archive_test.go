package ui

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"muster/internal/redistest"
	"muster/tasks"
	"muster/tasks/tasktype"
)

// shelf is an archive with one workflow.
type shelf struct{ got tasktype.WorkflowFilter }

func (s *shelf) List(_ context.Context, f tasktype.WorkflowFilter) ([]tasktype.Workflow, string, error) {
	s.got = f
	return []tasktype.Workflow{{ID: "w1", Name: "nightly", State: tasktype.WorkflowFailed}}, "next", nil
}

func (s *shelf) Get(_ context.Context, id string) (json.RawMessage, error) {
	if id != "w1" {
		return nil, nil
	}
	return json.RawMessage(`{"id":"w1","secret":1}`), nil
}

func TestArchivedWorkflows(t *testing.T) {
	t.Parallel()
	client := tasks.NewClient(redistest.New(t))
	s := &shelf{}
	data := true
	h := Handler(client, Config{Prefix: "/tasks", Archive: s, Data: func(*http.Request) bool { return data }})
	wantIn(t, h, "/workflows", `archive=1">Archive</a>`)
	wantIn(t, h, "/workflows?archive=1&start=2026-01-30&end=2026-01-31&name=night", "/tasks/archive/w1", "nightly", "after=next", `value="2026-01-31"`)
	day := time.Date(2026, 1, 30, 0, 0, 0, 0, time.UTC)
	if f := s.got; f.Contains != "night" || !f.After.Equal(day) || !f.Before.Equal(day.AddDate(0, 0, 2)) || f.Limit != pageSize {
		t.Errorf("got the filter %+v", f)
	}
	wantIn(t, h, "/archive/w1", "secret")
	for path, want := range map[string]int{"/workflows?archive=1&start=x": 400, "/workflows?archive=1&error=x": 400, "/archive/w2": 404} {
		if code, _ := get(t, h, path); code != want {
			t.Errorf("%s: got %d, want %d", path, code, want)
		}
	}
	data = false
	if code, _ := get(t, h, "/archive/w1"); code != http.StatusNotFound {
		t.Errorf("without access to data: got %d", code)
	}
}
