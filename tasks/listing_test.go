package tasks_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"muster/tasks"
	"muster/tasks/redistest"
	"muster/tasks/tasktype"
)

func TestListingsRefuseWhatTheyCannotHave(t *testing.T) {
	t.Parallel()
	c := tasks.NewClient(redistest.New(t))
	workflows := func(f tasktype.WorkflowFilter) func(context.Context) error {
		return func(ctx context.Context) error {
			page, next, err := c.Workflows(ctx, f)
			if len(page) != 0 || next != "" {
				t.Errorf("%+v: got %v, cursor %q, want none", f, page, next)
			}
			return err
		}
	}
	rates := func(f tasktype.RateFilter) func(context.Context) error {
		return func(ctx context.Context) error {
			points, err := c.Rates(ctx, f)
			if len(points) != 0 {
				t.Errorf("%+v: got %v, want none", f, points)
			}
			return err
		}
	}
	for _, r := range []struct {
		ask  func(context.Context) error
		want string // in the error; none if empty
	}{
		{workflows(tasktype.WorkflowFilter{}), ""},
		{workflows(tasktype.WorkflowFilter{State: tasktype.WorkflowRunning, Name: "a", After: time.Now(), Before: time.Now(), Limit: 1000}), ""},
		{workflows(tasktype.WorkflowFilter{State: "PENDING"}), "not a state"},
		{workflows(tasktype.WorkflowFilter{Limit: 1001}), "1 to 1000"},
		{workflows(tasktype.WorkflowFilter{Limit: -1}), "1 to 1000"},
		{workflows(tasktype.WorkflowFilter{Cursor: "x"}), "not a cursor"},
		{rates(tasktype.RateFilter{}), ""},
		{rates(tasktype.RateFilter{Queue: "q", Task: "t", Since: time.Now().Add(-99 * time.Hour), Step: time.Minute}), ""},
		{rates(tasktype.RateFilter{Step: time.Hour}), ""},
		{rates(tasktype.RateFilter{Step: time.Second}), "minute or an hour"},
	} {
		err := r.ask(t.Context())
		if r.want == "" && err != nil || r.want != "" && (err == nil || !strings.Contains(err.Error(), r.want)) {
			t.Errorf("got error %v, want one with %q", err, r.want)
		}
	}
}
