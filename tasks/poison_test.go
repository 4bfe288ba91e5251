package tasks_test

import (
	"fmt"
	"slices"
	"testing"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/redistest"
	"muster/tasks/tasktype"
)

// A task that takes its worker with it fails in the end, and its workflow with it.
func TestTaskThatKillsItsWorkersFails(t *testing.T) {
	t.Parallel()
	url := redistest.URL(t)
	c := connect(t, url)
	run, err := tasks.Chain(dieTask.S("x"), stepTask).Send(t.Context(), c)
	testutil.Ok(t, err)
	ended := func() bool {
		s, err := run.Status(t.Context())
		return err == nil && s.Terminal()
	}
	deaths := killWorkers(t, url, c, ended)
	if deaths < 11 {
		t.Errorf("failed after %d deaths, want at least 11", deaths)
	}
	_, err = run.Wait(limited(t))
	if f := wantFailure(t, err, "its worker died"); f.Code != tasktype.CodeLost {
		t.Fatalf("got %+v", f)
	}
	d, err := c.Node(t.Context(), run.ID(), "0")
	testutil.Ok(t, err)
	victims := map[string]bool{}
	for _, a := range d.Tried {
		if a.Outcome == tasktype.OutcomeLost && !a.Started.IsZero() && !a.Ended.Before(a.Started) {
			victims[a.Worker] = true
		}
	}
	if len(victims) != deaths || d.Runs != deaths || d.First.IsZero() || d.Worker == "" {
		t.Errorf("got the workers %v, %d runs, first start %s; want %d workers that died", victims, d.Runs, d.First, deaths)
	}
}

// killWorkers starts one worker after the other, each once the one before has died, until ended. It returns how many have
// died before that.
func killWorkers(t *testing.T, url string, c *tasks.Client, ended func() bool) (deaths int) {
	t.Helper()
	for ; !ended(); deaths++ {
		if deaths > 40 {
			t.Fatal("workers die without end")
		}
		name := fmt.Sprintf("victim%d", deaths)
		cmd := childCommand(url, name)
		testutil.Ok(t, cmd.Start())
		died := make(chan struct{})
		go func() {
			_ = cmd.Wait()
			close(died)
		}()
		testutil.Eventually(t, "the worker dies, or all is done", func() bool {
			select {
			case <-died:
				return true
			default:
				return ended()
			}
		})
		_ = cmd.Process.Kill()
		<-died
		testutil.Ok(t, tasks.ExpireLeases(t.Context(), c, name))
	}
	return deaths - 1
}

// Tasks that ran beside a task that kills its worker, or were taken together with it, are not blamed for that.
func TestNeighboursOfAKillerAreNotBlamed(t *testing.T) {
	t.Parallel()
	url := redistest.URL(t)
	c := connect(t, url)
	innocent := started(t, c, tasks.Each(ints(7), slowTask))
	guilty, err := dieTask.S("x").Send(t.Context(), c)
	testutil.Ok(t, err)
	ended := func() bool {
		g, gerr := guilty.Status(t.Context())
		i, ierr := innocent.Status(t.Context())
		return gerr == nil && ierr == nil && g.Terminal() && i.Terminal()
	}
	killWorkers(t, url, c, ended)
	if got, err := innocent.Wait(limited(t)); err != nil || !slices.Equal(got, ints(7)) {
		t.Errorf("those beside it came to %v, %v", got, err)
	}
	_, err = guilty.Wait(limited(t))
	if f := wantFailure(t, err, "its worker died"); f.Code != tasktype.CodeLost {
		t.Errorf("got %+v", f)
	}
}
