package tasks_test

import (
	"context"
	"fmt"
	"testing"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/redistest"
)

// If Redis loses a plan, the planner runs again and may return another plan. Workers and clients that know the lost plan
// use the new one.
func TestPlanThatRedisLost(t *testing.T) {
	t.Parallel()
	rdb := redistest.Server(t).Client() // miniredis dumps no hashes
	plan := tasks.New[int, string]("plan")
	words, charge, refund, hold := tasks.New[[]string, string]("words"), tasks.New[string, string]("charge"), tasks.New[string, string]("refund"), tasks.New[string, string]("hold")
	planning, planned, held, release := make(chan int, 9), make(chan struct{}, 9), make(chan struct{}, 9), make(chan struct{})
	calls := 0
	c, _ := startMux(t, rdb, func(m *tasks.Mux) {
		tasks.HandlePlan(m, plan, func(ctx context.Context, _ int) (tasks.Signature[string], error) {
			calls++
			planning <- calls
			<-planned
			if calls == 1 {
				return tasks.Chain3(hold.S("order"), charge, charge), nil
			}
			return tasks.Chord(tasks.Each([]string{"a", "b", "c", "d"}, refund), words), nil
		})
		tasks.Handle(m, charge, func(_ context.Context, s string) (string, error) { return s + " charged", nil })
		tasks.Handle(m, refund, func(_ context.Context, s string) (string, error) { return s + " refunded", nil })
		tasks.Handle(m, words, func(_ context.Context, s []string) (string, error) {
			return fmt.Sprint(len(s)), nil
		})
		tasks.Handle(m, hold, func(_ context.Context, s string) (string, error) {
			held <- struct{}{}
			<-release
			return s, nil
		})
	})
	run, err := plan.S(1).Send(t.Context(), c)
	testutil.Ok(t, err)
	<-planning
	rollBack := snapshot(t, rdb)
	planned <- struct{}{}
	<-held
	if _, err := c.Nodes(t.Context(), run.ID()); err != nil { // the client knows the plan
		t.Fatal(err)
	}
	rollBack()
	close(release)
	<-planning
	planned <- struct{}{}
	wantValue(t, run, "4")
	testutil.Eventually(t, "the workflow has ended", func() bool {
		p, err := run.Progress(t.Context())
		return err == nil && p.Ended
	})
	if p, err := run.Progress(t.Context()); err != nil || p.Done != p.Total {
		t.Errorf("got progress %+v, %v, want all tasks done", p, err)
	}
	ns, err := c.Nodes(t.Context(), run.ID())
	testutil.Ok(t, err)
	for _, n := range ns {
		if n.Task == "charge" || n.Task == "hold" || !n.Status.Terminal() {
			t.Errorf("got node %s of task %s in state %s, want none of the lost plan", n.ID, n.Task, n.Status)
		}
	}
}
