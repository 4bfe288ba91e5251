package report

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"muster/internal/testutil"
	"muster/jobs"
	"muster/jobs/pipeline"
)

// fake is a Source with one job, whose items are made one by one.
type fake struct {
	job   jobs.Job
	n     int
	item  func(i int) jobs.Item
	after error // returned after the items
}

func (f fake) Get(_ context.Context, id string) (jobs.Job, error) {
	if id != f.job.ID {
		return jobs.Job{}, jobs.ErrNotFound
	}
	return f.job, nil
}

func (f fake) EachItem(ctx context.Context, _ string, yield func(jobs.Item) error) error {
	for i := range f.n {
		if err := yield(f.item(i)); err != nil {
			return err
		}
	}
	return f.after
}

var (
	created = time.Date(2025, 3, 4, 5, 6, 7, 0, time.UTC)
	ended   = created.Add(time.Hour + 2*time.Minute + 3*time.Second)
)

// ordinary returns a job of the default pipeline with 60 items.
func ordinary() fake {
	states := []jobs.ItemStatus{jobs.ItemIntegrated, jobs.ItemIntegrated, jobs.ItemRejected, jobs.ItemIntegrated, jobs.ItemFailed, jobs.ItemReview}
	priorities := []string{"high", "medium", "low", ""}
	confidence := 0.75
	return fake{
		n: 60,
		job: jobs.Job{
			ID: "0b0c8a4e-6a7b-4f43-9d5e-3f1d2c4b5a69", Kind: jobs.KindPipeline, Name: "default", Status: jobs.Completed,
			Prompt:   "Find all requirements for the retention of invoices, with the place in the document that each of them is from.",
			Document: &jobs.Document{Name: "invoices.pdf"}, CreatedAt: created, CompletedAt: ended,
			Stages: []jobs.Stage{
				{Name: "create", Role: "creator", Takes: pipeline.TakesJob, Status: jobs.StageCompleted},
				{Name: "validate", Role: "validator", Takes: pipeline.TakesItem, Status: jobs.StageFailed, Error: "the graph cannot be reached"},
			},
			Items:        jobs.Counts{Total: 60, Integrated: 30, Rejected: 10, Failed: 10, Review: 10},
			Usage:        map[string]int64{"requests": 90, "tokens": 123456},
			AgentUsage:   map[string]map[string]int64{"creator-1": {"requests": 30, "tokens": 100000, "assignments": 1}, "validator-1": {"requests": 60, "tokens": 23456, "assignments": 50}},
			Pipeline:     &pipeline.Pipeline{Labels: []string{"gobd", "gdpr"}},
			ErrorMessage: "10 items have failed for the last time; see their errors with muster jobs items --status failed.",
		},
		item: func(i int) jobs.Item {
			it := jobs.Item{ID: fmt.Sprintf("id-%d", i), Status: states[i%6], RetryCount: i % 3, CreatedAt: created, LastError: "-5", NewItem: jobs.NewItem{
				Key: fmt.Sprintf("REQ-%03d", i), Text: "=1+1", Name: fmt.Sprintf("name, %d", i), Priority: priorities[i%4],
				Labels: map[string]bool{"gobd": i%2 == 0, "gdpr": false}, Citations: []string{fmt.Sprintf("doc-%d", i%25), "law-1"},
				Confidence: &confidence, Data: json.RawMessage(`{"n":1}`),
			}}
			if it.Status != jobs.ItemReview {
				it.Agent = "validator-1"
			}
			if it.Status == jobs.ItemIntegrated && i > 0 {
				it.ExternalID = fmt.Sprintf("graph:%d", i)
			}
			return it
		},
	}
}

func TestSummarizeCounts(t *testing.T) {
	t.Parallel()
	f := ordinary()
	s := testutil.Must(Summarize(t.Context(), f, f.job.ID))(t)
	// Of 60 items, the state repeats every 6 and the priority every 4.
	wantPriority := Priorities{
		High:   jobs.Counts{Total: 15, Integrated: 5, Rejected: 5, Failed: 5},
		Medium: jobs.Counts{Total: 30, Integrated: 20, Review: 10},
		Low:    jobs.Counts{Total: 15, Integrated: 5, Rejected: 5, Failed: 5},
	}
	if s.ByPriority != wantPriority {
		t.Errorf("by priority: got %+v, want %+v", s.ByPriority, wantPriority)
	}
	for what, c := range map[string]struct{ got, want any }{
		"items":      {s.Items, f.job.Items},
		"labels":     {s.ByLabel, map[string]int64{"gobd": 30, "gdpr": 0}},
		"agents":     {s.ByAgent, map[string]jobs.Counts{"validator-1": {Total: 50, Integrated: 30, Rejected: 10, Failed: 10}}},
		"usage":      {s.Usage, f.job.Usage},
		"duration":   {s.DurationSeconds, 3723.0},
		"creator":    {s.CreatorStatus, jobs.StageCompleted},
		"validator":  {s.ValidatorStatus, jobs.StageFailed},
		"document":   {s.DocumentPath, "invoices.pdf"},
		"citations":  {[]any{s.Citations.Total, s.Citations.Unique, s.Citations.AtLeast, s.Citations.IDs[:3], len(s.Citations.IDs)}, []any{int64(120), int64(26), false, []string{"doc-0", "law-1", "doc-1"}, 26}},
		"integrated": {s.IntegratedIDs[:3], []string{"REQ-000", "graph:1", "graph:3"}},
		"percent":    {math.Round(s.Percent*100) / 100, 83.33},
	} {
		if !reflect.DeepEqual(c.got, c.want) {
			t.Errorf("%s: got %+v, want %+v", what, c.got, c.want)
		}
	}
}

func TestTextOfASummary(t *testing.T) {
	t.Parallel()
	f := ordinary()
	s := testutil.Must(Summarize(t.Context(), f, f.job.ID))(t)
	var got bytes.Buffer
	testutil.Ok(t, s.Text(&got))
	want := testutil.Must(os.ReadFile("testdata/summary.txt"))(t)
	if got.String() != string(want) {
		t.Errorf("got\n%s\nwant testdata/summary.txt:\n%s", got.String(), want)
	}
}

// The terms of the document pipeline do not appear in other pipelines.
func TestTextOfAnotherPipeline(t *testing.T) {
	t.Parallel()
	s := Summary{
		Kind: jobs.KindPipeline, Name: "letters", Items: jobs.Counts{Total: 4, Integrated: 4}, ByLabel: map[string]int64{"urgent": 2},
		ByPriority: Priorities{Medium: jobs.Counts{Total: 4, Integrated: 4}},
	}
	var got strings.Builder
	testutil.Ok(t, s.Text(&got))
	for text, want := range map[string]bool{
		"\nITEMS\n": true, "\nLabels\n": true, "\nBy Priority\n": true, "REQUIREMENTS": false, "Compliance": false, "Citations": false,
	} {
		if strings.Contains(got.String(), text) != want {
			t.Errorf("got\n%s\nwant %q in it: %v", got.String(), text, want)
		}
	}
}

// Whatever users, agents and documents are called, the text keeps its width and does not control the terminal.
func TestTextKeepsItsWidth(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("word ", 30) + strings.Repeat("ä", 300) + " \x1b[31mred\r\n\tend"
	s := Summary{
		JobID: long, Kind: jobs.KindPipeline, Name: long, Prompt: long, DocumentPath: long, ErrorMessage: long,
		Stages: []jobs.Stage{{Name: long, Status: jobs.StageFailed, Error: long}}, IntegratedIDs: []string{long, strings.Repeat("x", 78), strings.Repeat("y", 79)},
		ByLabel: map[string]int64{long: 1}, Usage: map[string]int64{long: math.MaxInt64},
		ByAgent: map[string]jobs.Counts{long: {Total: math.MaxInt64, Integrated: math.MaxInt64}}, UsageByAgent: map[string]map[string]int64{},
		Items: jobs.Counts{Total: 10_000_000, Integrated: 10_000_000}, ByPriority: Priorities{High: jobs.Counts{Total: 10_000_000, Validating: 10_000_000}},
	}
	for i := range 50 {
		s.UsageByAgent[fmt.Sprint("agent-", i)] = map[string]int64{"tokens": 1}
	}
	var got strings.Builder
	testutil.Ok(t, s.Text(&got))
	for line := range strings.Lines(got.String()) {
		line = strings.TrimSuffix(line, "\n")
		if n := utf8.RuneCountInString(line); n > width || strings.TrimRight(line, " ") != line || strings.ContainsAny(line, "\x1b\r\t") {
			t.Errorf("got a line of %d characters: %q", n, line)
		}
	}
	for _, want := range []string{"and 31 agents more", "\n  " + strings.Repeat("x", 78) + "\n", "\n  " + strings.Repeat("y", 78) + "\n  y\n"} {
		if !strings.Contains(got.String(), want) {
			t.Errorf("got\n%s\nwant it to have %q", got.String(), want)
		}
	}
}

func TestSummaryOfAJobThatRuns(t *testing.T) {
	t.Parallel()
	f := fake{job: jobs.Job{ID: "j", Kind: jobs.KindPipeline, Status: jobs.Processing, CreatedAt: time.Now().Add(-time.Minute)}}
	s, err := Summarize(t.Context(), f, "j")
	if err != nil || s.DurationSeconds < 60 || s.DurationSeconds > 600 || s.Percent != 0 {
		t.Errorf("got %g s, %g %%, %v, want about 60 s and 0 %%", s.DurationSeconds, s.Percent, err)
	}
	text, err := json.Marshal(s)
	if err != nil || strings.Contains(string(text), "null") {
		t.Errorf("got %s, %v, want lists and objects without null", text, err)
	}
	var out strings.Builder
	if err := s.Text(&out); err != nil || strings.Contains(out.String(), "Completed") || strings.Contains(out.String(), "USAGE") || strings.Contains(out.String(), "By Priority") {
		t.Errorf("got\n%s%v, want no sections without content", out.String(), err)
	}
}

func TestJSONHasTheSummaryAndAllItems(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 60} {
		f := ordinary()
		f.n = n
		var out bytes.Buffer
		testutil.Ok(t, WriteJSON(t.Context(), &out, f, f.job.ID))
		var got struct {
			Summary
			List []jobs.Item `json:"item_list"`
		}
		if err := json.Unmarshal(out.Bytes(), &got); err != nil {
			t.Fatalf("%d items: %v in\n%s", n, err, out.String())
		}
		want := testutil.Must(Summarize(t.Context(), f, f.job.ID))(t)
		if !reflect.DeepEqual(got.Summary, want) {
			t.Errorf("%d items: got %+v, want %+v", n, got.Summary, want)
		}
		if len(got.List) != n || n > 0 && !reflect.DeepEqual(got.List[n-1], f.item(n-1)) {
			t.Errorf("got %d items, want %d as they are", len(got.List), n)
		}
	}
}

func TestCSVHasARowForEachItem(t *testing.T) {
	t.Parallel()
	f := ordinary()
	var out bytes.Buffer
	testutil.Ok(t, WriteCSV(t.Context(), &out, f, f.job.ID))
	if got := strings.Count(out.String(), "\r\n"); got != 61 {
		t.Errorf("got %d lines that end in CRLF, want 61", got)
	}
	rows, err := csv.NewReader(&out).ReadAll()
	if err != nil || len(rows) != 61 {
		t.Fatalf("got %d rows, %v, want 61", len(rows), err)
	}
	want := map[string]string{
		"key": "REQ-004", "id": "id-4", "status": "failed", "priority": "high", "name": "name, 4", "text": "'=1+1", "labels": "gobd",
		"citations": "doc-4; law-1", "confidence_score": "0.75", "retry_count": "1", "data": `{"n":1}`, "created_at": "2025-03-04T05:06:07Z",
		"agent": "validator-1", "last_error": "-5",
	}
	for i, name := range rows[0] {
		if got := rows[5][i]; got != want[name] {
			t.Errorf("%s: got %q, want %q", name, got, want[name])
		}
		delete(want, name)
	}
	if len(want) > 0 {
		t.Errorf("columns for %v are missing", want)
	}
}

func TestFormulasAreGuarded(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "", "a": "a", "=1": "'=1", "+1+1": "'+1+1", "-a": "'-a", "@a": "'@a", "\t=1": "\t'=1", "\r=1": "\r'=1", "\n=1": "\n'=1",
		"x;=cmd|a": "x;'=cmd|a", "x; +1\t@b\r\n-c": "x; '+1\t'@b\r\n'-c", ";;=": ";;'=", "  =1": "  '=1", "==1": "'==1", "a-b; c=d": "a-b; c=d",
		"-1.5": "-1.5", "+2": "+2", "a=1": "a=1",
	} {
		if got := escapeFormula(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

// broken is a writer that fails.
type broken struct{}

var errBroken = errors.New("broken")

func (broken) Write([]byte) (int, error) { return 0, errBroken }

func TestErrorsAreReturned(t *testing.T) {
	t.Parallel()
	f, lost := ordinary(), errors.New("redis is gone")
	bad := f
	bad.after = lost
	for name, write := range map[string]func(context.Context, io.Writer, Source, string) error{
		"JSON": WriteJSON,
		"CSV":  WriteCSV,
		"text": func(ctx context.Context, w io.Writer, src Source, id string) error {
			s, err := Summarize(ctx, src, id)
			if err != nil {
				return err
			}
			return s.Text(w)
		},
	} {
		var out bytes.Buffer
		if err := write(t.Context(), &out, f, "other"); !errors.Is(err, jobs.ErrNotFound) || out.Len() > 0 {
			t.Errorf("%s of an unknown job: got %v and %q, want job.ErrNotFound and nothing written", name, err, out.String())
		}
		if err := write(t.Context(), &out, bad, f.job.ID); !errors.Is(err, lost) {
			t.Errorf("%s: got %v, want %v", name, err, lost)
		}
		many := f
		many.n = 10_000 // more than is buffered
		if err := write(t.Context(), broken{}, many, f.job.ID); !errors.Is(err, errBroken) {
			t.Errorf("%s to a broken writer: got %v, want %v", name, err, errBroken)
		}
	}
}

// A report needs no more memory for more items: here 60,000 of 1 KB, each with citations, labels and agents of its
// own. The test is not parallel, as it measures the heap.
func TestMemoryIsBounded(t *testing.T) {
	const items, most = 60_000, 24 << 20 // bytes; all items would be more than 90 MB
	var before uint64
	var peak uint64
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	f := fake{n: items, job: jobs.Job{ID: "j", Kind: jobs.KindPipeline, Items: jobs.Counts{Total: items}}, item: func(i int) jobs.Item {
		if i%30_000 == 29_999 {
			peak = max(peak, heap())
		}
		return jobs.Item{Status: jobs.ItemIntegrated, Agent: fmt.Sprint("agent-", i), NewItem: jobs.NewItem{
			Key: fmt.Sprint("k", i), Text: strings.Repeat("x", 1024),
			Labels:    map[string]bool{fmt.Sprint("label-", i): true},
			Citations: []string{fmt.Sprint("a", i, strings.Repeat("y", 200)), fmt.Sprint("b", i)},
		}}
	}}
	for name, write := range map[string]func() error{
		"summary": func() error {
			s, err := Summarize(t.Context(), f, "j")
			want := Citations{Total: 2 * items, Unique: maxUnique, AtLeast: true, IDs: s.Citations.IDs}
			if !reflect.DeepEqual(s.Citations, want) || len(want.IDs) != maxCitations || len(s.IntegratedIDs) != maxIDs {
				t.Errorf("got %d, %d citations and %d ids, want bounds", s.Citations.Total, s.Citations.Unique, len(s.IntegratedIDs))
			}
			if len(s.ByAgent) != maxNames+1 || s.ByAgent[otherNames].Total != items-maxNames || s.ByLabel[otherNames] != items-maxNames {
				t.Errorf("got %d agents, %d others, want %d", len(s.ByAgent), s.ByAgent[otherNames].Total, maxNames+1)
			}
			return err
		},
		"JSON": func() error { return WriteJSON(t.Context(), io.Discard, f, "j") },
		"CSV":  func() error { return WriteCSV(t.Context(), io.Discard, f, "j") },
	} {
		before, peak = heap(), 0
		testutil.Ok(t, write())
		if grown := int64(peak) - int64(before); grown > most {
			t.Errorf("%s: got %d MB of heap, want at most %d MB", name, grown>>20, most>>20)
		} else {
			t.Logf("%s: %d MB", name, grown>>20)
		}
	}
}
