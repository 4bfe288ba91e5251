package pipeline

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"muster/internal/catalog"
	"muster/internal/testutil"
)

func TestParseFillsInDefaults(t *testing.T) {
	t.Parallel()
	got, err := Parse("/etc/pipelines/papers.yaml", []byte(`
name: papers
description: Reads papers.
stuck_after: 30m
timeout: 24h
labels: [gobd]
context: [customer, year]
stages:
  - {name: read, task: "papers:read", takes: job}
  - name: check
    role: checker
    takes: item
    states: {ok: integrated, no: rejected}
    timeout: 30s
    max_retries: 2
    review: true
  - {name: file, role: filer, takes: item}
`))
	testutil.Ok(t, err)
	want := &Pipeline{
		Name: "papers", Description: "Reads papers.", StuckAfter: 30 * time.Minute, Timeout: 24 * time.Hour,
		Labels: []string{"gobd"}, Context: []string{"customer", "year"},
		Stages: []Stage{
			{Name: "read", Task: "papers:read", Takes: TakesJob, Timeout: time.Hour},
			{Name: "check", Role: "checker", Takes: TakesItem, States: map[string]string{"ok": Integrated, "no": Rejected},
				Timeout: 30 * time.Second, MaxRetries: new(2), Review: true},
			{Name: "file", Role: "filer", Takes: TakesItem, States: map[string]string{"accept": Integrated, "reject": Rejected}, Timeout: 10 * time.Minute},
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

const stage = "stages:\n  - {name: a, role: r, takes: job}\n"

// Parse finds all mistakes at once, each with its place.
func TestParseNamesAllProblems(t *testing.T) {
	t.Parallel()
	many := func(n int, form string) string {
		var list strings.Builder
		for i := range n {
			fmt.Fprintf(&list, form+", ", i)
		}
		return "[" + list.String() + "]"
	}
	for _, c := range []struct{ name, text, want string }{
		{"too much", "description: " + strings.Repeat("ä", 1001) + "\nlabels: " + many(51, "n%d") + "\ncontext: " + many(21, "n%d") + "\nstages: " + many(21, "{name: n%d, role: r, takes: job}"),
			"p.yaml:1:14: description: has 1001 characters; write at most 1000\np.yaml:2:9: labels: has 51 names; a pipeline may have 50\n" +
				"p.yaml:3:10: context: has 21 names; a pipeline may have 20\np.yaml:4:9: stages: has 21 stages; a pipeline may have 20"},
		{"unknown keys", "stagse: []\n" + stage + "  - {name: b, role: r, takes: item, time_out: 3s}\n",
			`p.yaml:1:1: unknown key "stagse"; did you mean "stages"?` + "\n" +
				`p.yaml:4:37: stages[1]: unknown key "time_out"; did you mean "timeout"?`},
		{"empty", "", "p.yaml:1:1: the file is empty"},
		{"no stages", "description: x", "p.yaml:1:1: stages: is missing; list at least one stage"},
		{"syntax", "stages: [", "p.yaml:1:9: not valid YAML"},
		{"a key twice", "labels: [a]\nlabels: [b]\n" + stage, "p.yaml:2:1: not valid YAML"},
		{"everything missing", "stages:\n  - timeout: 5m\n", "p.yaml:2:5: stages[0].name: is missing; give the stage a name\n" +
			"p.yaml:2:5: stages[0].role: is missing; write role: and the role of the agents that do the work, or task: and a task in Go\n" +
			"p.yaml:2:5: stages[0].takes: is missing; write takes: job or takes: item"},
		{"role and task", "stages: [{name: a, role: r, task: t, takes: job}]", "p.yaml:1:35: stages[0].task: role and task exclude each other; take one out"},
		{"first takes items", "stages: [{name: a, role: r, takes: item}]", "p.yaml:1:36: stages[0].takes: is item, but no stage before this one makes items; the first stage takes the job"},
		{"takes", "stages: [{name: a, role: r, takes: jobs}]", `p.yaml:1:36: stages[0].takes: want job or item, got "jobs", did you mean "job"?`},
		{"same name", stage + "  - {name: a, role: r, takes: item}\n", `p.yaml:3:12: stages[1].name: "a" is the name of stages[0] already; rename one`},
		{"names", "stages: [{name: A b, role: 'r:', takes: job}]", `p.yaml:1:17: stages[0].name: "A b" cannot be used here; write up to 40 of a-z, 0-9, _ and -` + "\n" +
			`p.yaml:1:28: stages[0].role: "r:" cannot be used here; write up to 40 of a-z, 0-9, _ and -`},
		{"times", "timeout: 169h\nstuck_after: 0\n" + strings.Replace(stage, "}", ", timeout: 10ms}", 1),
			"p.yaml:1:10: timeout: want a time from 1s to 168h, got 169h0m0s\n" +
				"p.yaml:2:14: stuck_after: want a time from 1s to 168h, got 0s\n" +
				"p.yaml:4:45: stages[0].timeout: want a time from 1s to 168h, got 10ms"},
		{"timeout above stuck_after", "stuck_after: 1m\n" + strings.Replace(stage, "}", ", timeout: 30m}", 1),
			"p.yaml:3:45: stages[0].timeout: 30m0s is above stuck_after, which is 1m0s; lower it, or write stuck_after: 30m0s"},
		{"timeout above the default of stuck_after", strings.Replace(stage, "}", ", timeout: 4h}", 1),
			"p.yaml:2:45: stages[0].timeout: 4h0m0s is above stuck_after, which is 1h0m0s; lower it, or write stuck_after: 4h0m0s"},
		{"retries", strings.Replace(stage, "}", ", max_retries: -1}", 1), "p.yaml:2:49: stages[0].max_retries: must be between 0 and 100, got -1; omit the key to use the setting jobs.max_retries"},
		{"more retries", strings.Replace(stage, "}", ", max_retries: 101}", 1), "p.yaml:2:49: stages[0].max_retries: must be between 0 and 100, got 101; omit the key to use the setting jobs.max_retries"},
		{"job only", strings.Replace(stage, "}", ", review: true, states: {accept: integrated}}", 1),
			"p.yaml:2:44: stages[0].review: only items can wait for review; take the key out, or write takes: item\n" +
				"p.yaml:2:58: stages[0].states: verdicts are given on items; take the key out, or write takes: item"},
		{"states", stage + "  - {name: b, role: r, takes: item, states: {accept: integrate, YES: rejected}}\n",
			`p.yaml:3:54: stages[1].states.accept: want integrated or rejected, which a verdict leads to, got "integrate", did you mean "integrated"?; only the name of the verdict is free` + "\n" +
				`p.yaml:3:70: stages[1].states.YES: "YES" cannot be used here; write up to 40 of a-z, 0-9, _ and -`},
		{"decoded and checked once", strings.Replace(stage, "}", ", timeout: soon}", 1), `p.yaml:2:45: stages[0].timeout: want a duration such as 1.5s, 200ms or 2m, got "soon"`},
		{"lists", "labels: [a, b, a]\ncontext: [a b]\n" + stage, `p.yaml:1:16: labels[2]: "a" is in the list already; take one out` + "\n" +
			`p.yaml:2:11: context[0]: "a b" cannot be used here; write up to 100 of A-Z, a-z, 0-9, _, . and -`},
		{"another name", "name: q\n" + stage, `p.yaml:1:7: name: is "q", but the pipeline has the name of its file, "p"; take the key out or rename the file`},
		{"large", "# " + strings.Repeat("x", maxFile), "p.yaml:1:1: longer than the limit of 64 KiB"},
	} {
		p, err := Parse("p.yaml", []byte(c.text))
		if p != nil || !errors.As(err, new(*Problem)) || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: got %v and\n%v\nwant\n%v", c.name, p, err, c.want)
		}
		if got, want := strings.Count(fmt.Sprint(err), "\n"), strings.Count(c.want, "\n"); got != want {
			t.Errorf("%s: got %d problems, want %d:\n%v", c.name, got+1, want+1, err)
		}
	}
	if _, err := Parse("my pipeline.yaml", []byte(stage)); err == nil || !strings.HasPrefix(err.Error(), `my pipeline.yaml:1:1: name: "my pipeline" cannot be the name of a pipeline`) {
		t.Errorf("a bad file name: got %v", err)
	}
}

// A job keeps its pipeline as JSON.
func TestPipelineSurvivesJSON(t *testing.T) {
	t.Parallel()
	full := testutil.Must(Parse("p.yaml", []byte("timeout: 2h\nstuck_after: 1h\nlabels: [l]\ncontext: [c]\n"+stage+"  - {name: b, task: t, takes: item, max_retries: 0}\n")))(t)
	for _, want := range append(testutil.Must(Load(""))(t).List(), full) {
		text := testutil.Must(json.Marshal(want))(t)
		got := &Pipeline{}
		if err := json.Unmarshal(text, got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, %v, want %+v", text, got, err, want)
		}
	}
}

func TestDefaultPipelineIsShipped(t *testing.T) {
	t.Parallel()
	r := testutil.Must(Load(filepath.Join(t.TempDir(), "missing")))(t)
	got, err := r.Get("")
	want := &Pipeline{Name: "default", Description: "Create items from a document, then validate each of them.", Labels: []string{"gobd", "gdpr"}, Context: []string{AnyContext}, Stages: []Stage{
		{Name: "create", Role: "creator", Takes: TakesJob, Timeout: time.Hour},
		{Name: "validate", Role: "validator", Takes: TakesItem, Timeout: 10 * time.Minute, States: map[string]string{"accept": Integrated, "reject": Rejected}},
	}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	if got := r.File("default"); got != "" {
		t.Errorf("the file of a shipped pipeline: got %q, want none", got)
	}
}

// write writes the files of a folder.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		testutil.Ok(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
}

// A file with mistakes breaks its own pipeline, and no other.
func TestBrokenFilesDoNotStopTheOthers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"good.yaml": stage, "other.yml": stage, "bad.yaml": "stages: 3\nnmae: x\n", "default.yaml": "stages: []\n",
		"twice.yaml": stage, "twice.yml": stage, "notes.txt": "not read", ".hidden.yaml": "not read",
	})
	testutil.Ok(t, os.Mkdir(filepath.Join(dir, "folder.yaml"), 0o700))
	r := testutil.Must(Load(dir))(t)
	var names []string
	for _, p := range r.List() {
		names = append(names, p.Name)
	}
	if got, want := strings.Join(names, " "), "good other"; got != want {
		t.Errorf("got the pipelines %q, want %q", got, want)
	}
	var broken []string
	for _, b := range r.Broken() {
		broken = append(broken, b.Name)
	}
	if got, want := strings.Join(broken, " "), "bad default folder twice"; got != want {
		t.Errorf("got the broken pipelines %q, want %q", got, want)
	}
	for name, want := range map[string]string{"bad": `:2:1: unknown key "nmae"; did you mean "name"?`, "folder": ": cannot be read: not a regular file"} {
		if _, err := r.Get(name); !errors.As(err, new(*catalog.BrokenError)) || !strings.Contains(err.Error(), filepath.Join(dir, name)+".yaml"+want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	// An invalid file that replaces a shipped pipeline does not restore the shipped one.
	if _, err := r.Get("default"); !errors.As(err, new(*catalog.BrokenError)) {
		t.Errorf("a broken default: got %v, want a *catalog.BrokenError", err)
	}
	if got, want := r.File("good"), filepath.Join(dir, "good.yaml"); got != want {
		t.Errorf("got the file %q, want %q", got, want)
	}
}

func TestUnknownNameSuggestsTheNearest(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, map[string]string{"papers.yaml": stage})
	r := testutil.Must(Load(dir))(t)
	for name, want := range map[string]string{
		"paper":    `no pipeline "paper"; did you mean "papers"?`,
		"whatever": `no pipeline "whatever"; see muster pipelines list`,
	} {
		if _, err := r.Get(name); !errors.As(err, new(*catalog.UnknownError)) || err.Error() != want {
			t.Errorf("%s: got %v, want %s", name, err, want)
		}
	}
}

// Readers see either the old or the new pipelines, and can modify their copies.
func TestReplaceIsAtomicAndPipelinesAreCopies(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := testutil.Must(Load(dir))(t)
	write(t, dir, map[string]string{"a.yaml": stage, "b.yaml": stage})
	next := testutil.Must(Load(dir))(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for len(r.List()) != 3 {
		}
	}()
	r.Replace(next)
	<-done

	p := testutil.Must(r.Get("default"))(t)
	p.Stages[1].States["accept"], p.Labels[0], p.Stages[0].Name = Rejected, "x", "x"
	again, err := r.Get("default")
	if err != nil || again.Stages[1].States["accept"] != Integrated || again.Labels[0] != "gobd" || again.Stages[0].Name != "create" {
		t.Errorf("got %+v, %v, want the pipeline as it was", again, err)
	}
}

func TestFolderThatCannotBeReadIsAnError(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	write(t, filepath.Dir(file), map[string]string{"file": ""})
	if _, err := Load(file); err == nil || !strings.Contains(err.Error(), "read the folder of pipelines "+file) {
		t.Errorf("got %v, want an error that names the folder", err)
	}
}

// Parse returns a valid pipeline or problems with places, whatever it reads.
func FuzzParse(f *testing.F) {
	shipped := testutil.Must(shipped.ReadFile("shipped/default.yaml"))(f)
	for _, s := range []string{string(shipped), stage, "stages: &a [*a]", "stages: [{}]", "<<: {}", "a: [", "labels: {a: b}\n" + stage, "- - -"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := Parse("fuzz.yaml", data)
		if err != nil {
			var ps Problems
			if !errors.As(err, &ps) || len(ps) == 0 {
				t.Fatalf("got %T, want Problems", err)
			}
			for _, q := range ps {
				if q.At.Line < 1 || q.At.Col < 1 {
					t.Errorf("got %v without a place", q)
				}
			}
			return
		}
		text := testutil.Must(json.Marshal(p))(t)
		var back Pipeline
		if err := json.Unmarshal(text, &back); err != nil {
			t.Errorf("%s: got %v after JSON", text, err)
		}
	})
}
