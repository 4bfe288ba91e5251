package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"muster/internal/testutil"
	"muster/jobs"
	"muster/orchestrator/api/client"
	"muster/orchestrator/event"
	"muster/tasks/tasktype"
)

// quiet is an environment with standard input, and its output.
func quiet(in string) (env environment, out, errs *bytes.Buffer) {
	out, errs = &bytes.Buffer{}, &bytes.Buffer{}
	return environment{stdin: strings.NewReader(in), stdout: out, stderr: errs}, out, errs
}

// unset is a command without flags.
func unset(env environment) scope {
	return scope{Context: cli.NewContext(nil, flag.NewFlagSet("", flag.ContinueOnError), nil), env: env}
}

// wrote writes facts.
func wrote(t *testing.T, env environment, add func(facts)) {
	t.Helper()
	f := newFacts(env)
	add(f)
	testutil.Ok(t, f.Flush())
}

func TestListOfJobsFitsATerminal(t *testing.T) {
	t.Parallel()
	env, _, _ := quiet("")
	terminal, out := terminalOf(80)
	env.stdout = terminal
	jobs := []client.Job{
		{Job: jobs.Job{ID: "0b5c9a3e-8a55-4f6f-9d38-5c2a5a0f3f10", Name: "a-pipeline-with-quite-a-long-name", Status: jobs.Processing, CreatedAt: time.Now().Add(-90 * time.Minute),
			Items: jobs.Counts{Total: 120, Integrated: 80, Rejected: 10, Failed: 1}, Waiting: "no agent of role " + strings.Repeat("x", 100)}},
		{Job: jobs.Job{ID: "scrape_shop_example_0123abcd", Name: "shop.example", Status: jobs.Completed, CreatedAt: time.Now().Add(-72 * time.Hour)}},
	}
	testutil.Ok(t, showPage(unset(env), jobs, "", jobColumns, jobRow))
	text := out.String()
	for line := range strings.Lines(text) {
		if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > 80 {
			t.Errorf("%d characters: %q", n, line)
		}
	}
	for _, want := range []string{"JOB ", "a-pipeline-", "…", "processing  91/120  1h ago\n  waiting: no agent of role xxx", "shop.example ", "completed   0/0     3d ago"} {
		if !strings.Contains(text, want) {
			t.Errorf("got\n%s\nwant %q in it", text, want)
		}
	}
	if strings.Contains(text, "\x1b") {
		t.Errorf("got colours without a terminal: %q", text)
	}
}

func TestStuckJobsAreListedWithTheReason(t *testing.T) {
	t.Parallel()
	env, out, _ := quiet("")
	list := []jobs.Stuck{{JobID: "0b5c9a3e-8a55-4f6f-9d38-5c2a5a0f3f10", Name: "default", Stage: "validate", Reason: "no agent of role validator",
		Since: time.Now().Add(-2 * time.Hour), Recoveries: 1}}
	testutil.Ok(t, showPage(unset(env), list, "", "JOB NAME STAGE RECOVERIES SINCE", stuckRow))
	if got, want := out.String(), "default  validate  1           2h ago\n  no agent of role validator\n"; !strings.Contains(got, want) {
		t.Errorf("got %q, want %q in it", got, want)
	}
}

func TestStatusNamesTheStagesOfTheDefaultPipelineByRole(t *testing.T) {
	t.Parallel()
	j := jobs.Job{ID: "j1", Kind: jobs.KindPipeline, Name: "default", Status: jobs.Processing, Prompt: strings.Repeat("p", 100), Waiting: "no agent of role validator",
		Stages: []jobs.Stage{
			{Name: "create", Role: "creator", Status: jobs.StageCompleted, Agent: "a1"},
			{Name: "validate", Role: "validator", Status: jobs.StageProcessing, Pending: 3, Processing: 1},
		},
		Items: jobs.Counts{Total: 10, Integrated: 4, Pending: 3, Validating: 1, Rejected: 1, Failed: 1}, ErrorMessage: "none"}
	env, out, _ := quiet("")
	wrote(t, env, func(f facts) { f.job(j) })
	for _, want := range []string{
		"Job ID:           j1\n", "Status:           processing\n", "Waiting:          no agent of role validator\n", "Creator Status:   completed (agent a1)\n",
		"Validator Status: processing (3 items pending, 1 in work)\n", "Prompt:           " + strings.Repeat("p", 79) + "…\n",
		"Items:\n  Total:      10\n  Integrated: 4\n  Pending:    3\n", "  Progress:   60.0%\n", "\nError: none\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("got\n%s\nwant %q in it", out, want)
		}
	}
	j.Name = "compliance"
	env, out, _ = quiet("")
	wrote(t, env, func(f facts) { f.job(j) })
	if !strings.Contains(out.String(), "Create Status:   completed") {
		t.Errorf("another pipeline: got\n%s\nwant its stages by name", out)
	}
}

// Texts of agents and sites do not control the terminal.
func TestTextsOfOthersAreMadePrintable(t *testing.T) {
	t.Parallel()
	const evil = "\x1b]0;title\a\x1b[31mred\u009b\r\nnext"
	env, out, _ := quiet("")
	wrote(t, env, func(f facts) {
		f.job(jobs.Job{ID: "j1", Name: evil, Waiting: evil, Prompt: evil, ErrorMessage: evil, Labels: []string{evil}, Document: &jobs.Document{Name: evil},
			Stages: []jobs.Stage{{Name: evil, Status: jobs.StageFailed, Agent: evil, Error: evil}}})
	})
	for name, text := range map[string]string{"status": out.String(), "error": printableLines(evil)} {
		if strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }) {
			t.Errorf("%s: got %q, want printable characters only", name, text)
		}
	}
}

func TestProgressHasAnEstimate(t *testing.T) {
	t.Parallel()
	eta := 5400.0
	for want, p := range map[string]jobs.Progress{
		"ETA:          1.5 hours\n": {Status: jobs.Processing, ETASeconds: &eta, Percent: 12.34, ElapsedSeconds: 61},
		"ETA:          unknown\n":   {Status: jobs.Processing},
		"Elapsed:      2.0 hours\n": {Status: jobs.Completed, ElapsedSeconds: 7200},
	} {
		env, out, _ := quiet("")
		wrote(t, env, func(f facts) { f.progress(p) })
		if !strings.Contains(out.String(), want) {
			t.Errorf("got\n%s\nwant %q in it", out, want)
		}
	}
	if got, want := trackOf(jobs.Progress{Percent: 12.3, Items: jobs.Counts{Integrated: 1, Pending: 6, Rejected: 2}}).Note, "Progress: 12.3% | Integrated: 1 | Pending: 6 | Rejected: 2"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestConfirmWantsAYes(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]bool{"y\n": true, "YES\n": true, "y": true, "n\n": false, "\n": false, "maybe\n": false} {
		env, _, errs := quiet(in)
		got, err := scope{env: env}.confirm(bufio.NewReader(env.stdin), "Are you sure you want to cancel this job?")
		if err != nil || got != want {
			t.Errorf("%q: got %v, %v, want %v", in, got, err, want)
		}
		if q := "Are you sure you want to cancel this job? [y/N] "; errs.String() != q {
			t.Errorf("got the question %q, want %q", errs, q)
		}
	}
	env, _, _ := quiet("")
	_, err := scope{env: env}.confirm(bufio.NewReader(env.stdin), "?")
	wantUsage(t, "no answer", err, "--force")
}

func TestComparisonCountsTheDifferences(t *testing.T) {
	t.Parallel()
	for want, list := range map[string][]jobs.Difference{
		"1 new, 2 gone, 0 changed, 3 same\n": nil,
		"CHANGE  ITEM  TEXT\nnew     a     x\ngone    b     y\n\n1 new, 2 gone, 0 changed, 3 same\n": {
			{Key: "a", Change: "new", B: &jobs.Item{NewItem: jobs.NewItem{Key: "a", Text: "x"}}}, {Key: "b", Change: "gone", A: &jobs.Item{NewItem: jobs.NewItem{Key: "b", Text: "y"}}},
		},
	} {
		env, out, _ := quiet("")
		compared := client.Comparison{A: "j1", B: "j2", Differences: list, Counts: map[string]int64{"new": 1, "gone": 2, "changed": 0, "same": 3}}
		if err := (scope{env: env}).printComparison(compared); err != nil || out.String() != want {
			t.Errorf("got %v and %q, want %q", err, out, want)
		}
	}
}

// serving returns a scope whose API serves a job and its events: stored ones, and new ones.
func serving(t *testing.T, env environment, status jobs.Status, stored, added string) scope {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/jobs/j1", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"id": "j1", "status": %q}`, status)
	})
	mux.HandleFunc("GET /v1/jobs/j1/events", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		switch q := r.URL.Query(); {
		case q.Get("follow") != "false":
			fmt.Fprint(w, stored, ": heartbeat\n\n", added)
		default:
			fmt.Fprint(w, stored)
		}
	})
	api := testutil.Must(client.New(client.Config{URL: "http://localhost", Transport: client.Handler(mux)}))(t)
	return scope{ctx: t.Context(), api: api, env: env}
}

func eventText(e event.Event) string {
	data, _ := json.Marshal(e) // never fails
	return fmt.Sprintf("id: %s\nevent: %s\ndata: %s\n\n", e.ID, e.Type, data)
}

func TestEventsAreFollowedUntilTheJobHasEnded(t *testing.T) {
	t.Parallel()
	env, out, errs := quiet("")
	stored := "event: gap\ndata: {}\n\n" + eventText(event.Event{ID: "1-0", Type: "job.created", Job: "j1"})
	added := eventText(event.Event{ID: "2-0", Type: "job.completed", Job: "j1", Data: json.RawMessage(`{"n": 1}`)}) + eventText(event.Event{ID: "3-0", Type: "job.deleted"})
	s := serving(t, env, jobs.Processing, stored, added)
	testutil.Ok(t, s.events(client.Job{Job: jobs.Job{ID: "j1"}}, "", true, true))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 2 || !strings.Contains(lines[1], `"type":"job.completed"`) {
		t.Errorf("got %q, want two events, each on a line", lines)
	}
	if !strings.Contains(errs.String(), "have been deleted") {
		t.Errorf("got %q, want a message about the gap", errs)
	}
}

func TestEventsOfAJobFitATerminal(t *testing.T) {
	t.Parallel()
	env, out, _ := quiet("")
	long := json.RawMessage(`{"error": "` + strings.Repeat("x", 200) + `"}`)
	stored := eventText(event.Event{ID: "1-0", Type: "job.started", Job: "j1"}) + eventText(event.Event{ID: "2-0", Type: "stage.completed", Job: "j1", Data: long})
	s := serving(t, env, jobs.Completed, stored, "")
	testutil.Ok(t, s.events(client.Job{Job: jobs.Job{ID: "j1", Status: jobs.Completed}}, "", true, false))
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(lines) != 2 || !strings.HasSuffix(lines[1], "…") {
		t.Errorf("got %q, want two events, the data of the second cut", lines)
	}
	for _, line := range lines {
		if utf8.RuneCountInString(line) > 80 || strings.TrimRight(line, " ") != line {
			t.Errorf("got %q, want at most 80 characters, the last no space", line)
		}
	}
}

func TestStageSaysWhyItFailed(t *testing.T) {
	t.Parallel()
	for want, st := range map[string]jobs.Stage{
		"failed (broken)":                   {Status: jobs.StageFailed, Error: "broken"},
		"failed (attempt 2 failed: broken)": {Status: jobs.StageFailed, Error: "broken", Attempts: 2},
		"processing (agent a1, 3 in work)":  {Status: jobs.StageProcessing, Agent: "a1", Processing: 3},
		"processing (7 items pending)":      {Status: jobs.StageProcessing, Pending: 7},
		"pending":                           {Status: jobs.StagePending},
	} {
		if got := stageText(st, &screen{}); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// wantUsage checks that err is a usage error that contains the given texts.
func wantUsage(t *testing.T, what string, err error, text string) {
	t.Helper()
	if !errors.As(err, new(usageError)) || !strings.Contains(err.Error(), text) {
		t.Errorf("%s: got %v, want wrong usage with %q", what, err, text)
	}
}

func TestPriorityIsANameOrANumber(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{"high": 100, "normal": 0, "low": -100, "7": 7, "-100": -100, "100": 100, "+5": 5} {
		if got, err := priorityOf(text); err != nil || got != want {
			t.Errorf("%q: got %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "urgent", "101", "-101", "1.5", "9999999999999999999"} {
		_, err := priorityOf(text)
		wantUsage(t, text, err, "high, normal, low or a number")
	}
}

func TestTimeIsATimeOrADuration(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"2h":                        now.Add(2 * time.Hour),
		"0s":                        now,
		"90m":                       now.Add(90 * time.Minute),
		"2027-01-31T15:04:05Z":      time.Date(2027, 1, 31, 15, 4, 5, 0, time.UTC),
		"2027-01-31":                time.Date(2027, 1, 31, 0, 0, 0, 0, time.UTC),
		"2027-01-31T15:04:05+02:00": time.Date(2027, 1, 31, 13, 4, 5, 0, time.UTC),
	} {
		if got, err := timeOf("--at", text, now); err != nil || !got.Equal(want) {
			t.Errorf("%q: got %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "2", "-2h", "tomorrow", "2027-01", "15:04"} {
		_, err := timeOf("--at", text, now)
		wantUsage(t, text, err, "--at "+`"`+text+`": use a time such as 2026-11-23T12:00:00Z, a date, or a duration`)
	}
}

func TestContextIsAnObject(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "context.json")
	testutil.Ok(t, os.WriteFile(file, []byte(" {\"a\": 1}\n"), 0o600))
	for text, want := range map[string]string{`{"a":{"b":[1]}}`: `{"a":{"b":[1]}}`, "{}": "{}", "@" + file: `{"a": 1}`} {
		if got, err := objectOf(environment{}, "context", text); err != nil || string(got) != want {
			t.Errorf("%q: got %s, %v, want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"{", "[]", "null", `"a"`, "1", "{}x", "context.json"} {
		_, err := objectOf(environment{}, "context", text)
		wantUsage(t, text, err, "the context is not")
	}
	if _, err := objectOf(environment{}, "context", "@"+file+".none"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is missing: got %v, want %v", err, os.ErrNotExist)
	}
}

// A node within another one is below it. Of many nodes with the same name and state, the first are printed with the number
// of the others; those in another state are all printed.
func TestNodesOfAWorkflowAreIndentedAndCounted(t *testing.T) {
	t.Parallel()
	at := time.UnixMilli(1_000_000).UTC()
	nodes := []tasktype.Node{
		{ID: "0", Task: "fetch", Status: tasktype.Success, Started: at, Ended: at.Add(120 * time.Millisecond)},
		{ID: "1", Task: "(map)", Status: tasktype.Started, Needs: []string{"0"}},
		{ID: "2", Task: "merge", Status: tasktype.Pending, Needs: []string{"1"}},
	}
	for i := range 1000 {
		nodes = append(nodes, tasktype.Node{ID: fmt.Sprintf("1:%d", i), Task: "check", Within: "1", Status: tasktype.Success})
	}
	nodes[700].Status, nodes[700].Attempts, nodes[700].Failure = tasktype.Failed, 3, &tasktype.Failure{Message: "status\n503"}
	var out bytes.Buffer
	testutil.Ok(t, writeNodes(&out, nodes, false))
	want := strings.Join([]string{
		"TASK     NODE      STATUS   TOOK   AFTER  ",
		"fetch    0         SUCCESS  120ms  -      ",
		"(map)    1         STARTED  -      0      ",
		"  check  1:0       SUCCESS  -      -      ",
		"  check  1:1       SUCCESS  -      -      ",
		"  check  1:2       SUCCESS  -      -      ",
		"  check  1:3       SUCCESS  -      -      ",
		"  check  1:4       SUCCESS  -      -      ",
		"  check  1:697     FAILURE  -      -      3 attempts, status?503",
		"  check  994 more  SUCCESS                ",
		"merge    2         PENDING  -      1      ",
		"",
	}, "\n")
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
	out.Reset()
	if err := writeNodes(&out, nodes, true); err != nil || strings.Count(out.String(), "\n") != 1004 {
		t.Errorf("all: got %d lines, %v, want 1004", strings.Count(out.String(), "\n"), err)
	}
}
