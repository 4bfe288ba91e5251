//go:build e2e && unix

package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"muster/internal/testutil"
)

// TestAgentsDoAJob follows the first page of docs/how-to/jobs.md, with agents in Python and Node.js and the command line.
func TestAgentsDoAJob(t *testing.T) {
	t.Parallel()
	interpreter(t, "python3")
	f := newFleet(t, nil)
	document := filepath.Join(f.dir, "requirements.txt")
	text := "Invoices must be kept for ten years. Hello there.\n\n- Personal data shall be erased on request.\n"
	testutil.Ok(t, os.WriteFile(document, []byte(text), 0o600))
	main := f.start(t)
	waiting := muster(t, os.Environ(), "jobs", "start", "--config", f.conf, "--document", document, "--prompt", "List the requirements", "--wait")

	// Without an agent it waits and shows the missing role.
	var id string
	waiting.until(t, "a waiting job", func() bool {
		var page struct{ Jobs []agentJob }
		if err := f.get("/jobs", &page); err != nil || len(page.Jobs) != 1 {
			return false
		}
		id = page.Jobs[0].ID
		return strings.Contains(page.Jobs[0].Waiting, "creator")
	})
	if got := f.muster(t, "jobs", "status", id); !strings.Contains(got, "no agent of role creator") {
		t.Errorf("jobs status: got %s, want the role creator in it", got)
	}

	creator := f.agent(t, "python3", "creator.py")
	var j agentJob
	testutil.Eventually(t, "waiting items", func() bool {
		return f.get("/jobs/"+id, &j) == nil && j.Items.Pending == 3 && strings.Contains(j.Waiting, "validator")
	})
	validator := f.agent(t, "python3", "validator.py")
	waiting.wait(t, 0)

	if err := f.get("/jobs/"+id+"/progress", &j); err != nil || j.Status != "completed" || j.Percent != 100 || j.Items.Integrated != 2 || j.Items.Rejected != 1 {
		t.Errorf("got the progress %+v, %v, want completed, 100 %%, 2 integrated and 1 rejected", j, err)
	}
	labels := map[string]string{}
	for _, it := range f.items(t, id) {
		labels[it.Text] = fmt.Sprintf("%s gobd %v gdpr %v", it.Status, it.Labels["gobd"], it.Labels["gdpr"])
	}
	for text, want := range map[string]string{
		"Invoices must be kept for ten years.": "integrated gobd true gdpr false", "Hello there.": "rejected gobd false gdpr false",
		"Personal data shall be erased on request.": "integrated gobd false gdpr true",
	} {
		if labels[text] != want {
			t.Errorf("%s: got %q, want %q", text, labels[text], want)
		}
	}
	report := f.muster(t, "jobs", "status", "--report", id)
	for _, want := range []string{`Integrated\s+2`, `Rejected\s+1`, `gobd\s+1`, `gdpr\s+1`, `Status\s+completed`} {
		if !regexp.MustCompile(want).MatchString(report) {
			t.Errorf("the report has no %s:\n%s", want, report)
		}
	}

	// The agents stop on a signal and unregister.
	for _, a := range []*run{creator, validator} {
		a.end(syscall.SIGTERM)
		if code := a.cmd.ProcessState.ExitCode(); code != 0 {
			t.Errorf("an agent exited with %d after SIGTERM, want 0", code)
		}
	}
	var left struct{ Data []struct{ Name string } }
	if err := f.get("/v1/agents", &left); err != nil || len(left.Data) > 0 {
		t.Errorf("got the agents %v, %v, want none", left.Data, err)
	}
	main.interrupt(t)
	main.wait(t, 130)
}

// TestNodeAgentDoesAJob validates the items of a prompt with the agent in Node.js.
func TestNodeAgentDoesAJob(t *testing.T) {
	t.Parallel()
	interpreter(t, "node")
	f := newFleet(t, nil)
	f.start(t)
	f.agent(t, "python3", "creator.py")
	f.agent(t, "node", "validator.js")
	var j agentJob
	f.do(t, http.MethodPost, "/jobs", map[string]any{"prompt": sentences("n", 9)}, &j)
	testutil.Eventually(t, "the end of the job", func() bool { return f.get("/jobs/"+j.ID, &j) == nil && j.Status == "completed" })
	if j.Items.Integrated != 6 || j.Items.Rejected != 3 {
		t.Errorf("got %+v, want 6 integrated and 3 rejected", j.Items)
	}
}

// work is an assignment of the test itself.
type work struct {
	ID    string
	Fence int64
	Item  agentItem
}

// register registers the test as an agent.
func (f *fleet) register(t *testing.T, name, role string) (id string) {
	t.Helper()
	var me struct{ ID string }
	f.do(t, http.MethodPost, "/v1/agents", map[string]any{"name": name, "roles": []string{role}}, &me)
	return me.ID
}

// lease waits for an assignment.
func (f *fleet) lease(t *testing.T, agent string) (w work) {
	t.Helper()
	testutil.Eventually(t, "an assignment for "+agent, func() bool {
		var got struct{ Assignments []work }
		f.do(t, http.MethodPost, "/v1/agents/"+agent+"/lease", map[string]any{"wait_seconds": 5}, &got)
		if len(got.Assignments) == 1 {
			w = got.Assignments[0]
		}
		return len(got.Assignments) == 1
	})
	return w
}

// TestLateResultsAreRejected settles an assignment after its deadline, despite heartbeats. The result of the agent with the new
// assignment counts.
func TestLateResultsAreRejected(t *testing.T) {
	t.Parallel()
	f := newFleet(t, nil)
	pipelines := filepath.Join(f.dir, "data", "pipelines")
	testutil.Ok(t, os.MkdirAll(pipelines, 0o700))
	late := "stages:\n  - {name: make, role: maker, takes: job}\n  - {name: check, role: checker, takes: item, timeout: 2s}\n"
	testutil.Ok(t, os.WriteFile(filepath.Join(pipelines, "late.yaml"), []byte(late), 0o600))
	f.start(t)
	var j agentJob
	f.do(t, http.MethodPost, "/jobs", map[string]any{"pipeline": "late", "prompt": "one item"}, &j)

	maker := f.register(t, "maker", "maker")
	w := f.lease(t, maker)
	f.do(t, http.MethodPost, "/v1/assignments/"+w.ID+"/complete", map[string]any{
		"agent": maker, "fence": w.Fence, "items": []any{map[string]any{"key": "k", "text": "an item"}},
	}, nil)

	slow, other := f.register(t, "slow", "checker"), f.register(t, "other", "checker")
	first := f.lease(t, slow)
	status := 0
	testutil.Eventually(t, "the deadline", func() bool { // heartbeats do not extend it
		status, _ = f.call(http.MethodPost, "/v1/assignments/"+first.ID+"/heartbeat", map[string]any{"agent": slow, "fence": first.Fence}, nil)
		return status != http.StatusOK
	})
	if status != http.StatusConflict {
		t.Errorf("a heartbeat after the deadline: got %d, want 409", status)
	}
	answer := func(agent string, w work, by string) int {
		status, _ := f.call(http.MethodPost, "/v1/assignments/"+w.ID+"/complete", map[string]any{
			"agent": agent, "fence": w.Fence, "item": map[string]any{"external_id": by},
		}, nil)
		return status
	}
	if got := answer(slow, first, "slow"); got != http.StatusConflict {
		t.Errorf("a result after the deadline: got %d, want 409", got)
	}
	second := f.lease(t, other)
	if second.Fence <= first.Fence {
		t.Errorf("the second lease has the fence %d, want more than %d", second.Fence, first.Fence)
	}
	if got := answer(slow, first, "slow"); got != http.StatusConflict {
		t.Errorf("a result while another agent has the assignment: got %d, want 409", got)
	}
	if got := answer(slow, work{ID: second.ID, Fence: second.Fence}, "slow"); got != http.StatusForbidden {
		t.Errorf("a result for the assignment of another agent: got %d, want 403", got)
	}
	for range 2 { // a repetition is accepted
		if got := answer(other, second, "other"); got != http.StatusOK {
			t.Errorf("the result of the other agent: got %d, want 200", got)
		}
	}
	if got := answer(slow, first, "slow"); got != http.StatusConflict {
		t.Errorf("a result after the result of another agent: got %d, want 409", got)
	}
	testutil.Eventually(t, "the end of the job", func() bool { return f.get("/jobs/"+j.ID, &j) == nil && j.Status == "completed" })
	if got := f.items(t, j.ID); len(got) != 1 || got[0].ExternalID != "other" || got[0].Agent != other || got[0].Status != "integrated" {
		t.Errorf("got the items %+v, want one that %s integrated as other", got, other)
	}
}
