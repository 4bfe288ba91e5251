package main

import (
	"context"
	"errors"
	"strings"
	"testing"

	"muster/internal/testutil"
)

// A command stopped by Ctrl-C prints the state of its work and how to continue.
func TestInterruptedCommandsSayHowToContinue(t *testing.T) {
	t.Parallel()
	c := newCommand(t)
	id := strings.TrimSpace(c.run("workflows", "send", "approve", "1", "--external"))
	if id == "" {
		t.Fatal("send printed no id")
	}
	job := c.run("jobs", "start", "--prompt", "find duties", "--json")
	_, job, _ = strings.Cut(job, `"job_id": "`)
	job, _, _ = strings.Cut(job, `"`)
	kept := t.TempDir()
	for _, r := range []struct {
		args  []string
		ready string // part of its output while it waits
		want  string
	}{
		{[]string{"jobs", "status", job, "--wait"}, "default", "muster: interrupted: the job is not cancelled; wait again with muster jobs status " + job},
		{[]string{"start"}, "running; Ctrl-C stops", "muster: interrupted: unfinished work is kept; resume with muster start"},
		{[]string{"jobs", "events", "all", "--follow", "--after", "0"}, "job.created", "muster: interrupted\n"},
		{[]string{"demo", "--dir", kept}, "demo: started", "muster: interrupted: the demo was stopped; its data is in " + kept},
		{[]string{"demo"}, "demo: started", "muster: interrupted: the demo was stopped and its data removed"},
	} {
		cmd, out := c.start(r.args...)
		if !testutil.Becomes(func() bool { return strings.Contains(out.String(), r.ready) }) {
			t.Fatalf("%v does not wait:\n%s", r.args, out)
		}
		finish(t, cmd, out)
		if !strings.Contains(out.String(), r.want) {
			t.Errorf("%v: got\n%s\nwant %q in it", r.args, out, r.want)
		}
	}
}

func TestOnlyInterruptionsSayWhatIsLeft(t *testing.T) {
	t.Parallel()
	failed := errors.New("failed")
	ctx, cancel := context.WithCancelCause(t.Context())
	if got := withState(ctx, failed, "more"); !errors.Is(got, failed) {
		t.Errorf("while it runs: got %v, want the error", got)
	}
	cancel(errInterrupted)
	if got := withState(ctx, failed, "continue with %s", "this"); got.Error() != "interrupted: continue with this" || !errors.Is(got, errInterrupted) {
		t.Errorf("after Ctrl-C: got %v", got)
	}
}
