package backup_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/testutil"
	"muster/orchestrator/agent"
	"muster/orchestrator/backup"
	"muster/orchestrator/document"
	"muster/orchestrator/job"
	"muster/orchestrator/pipeline"
	"muster/orchestrator/report"
	"muster/orchestrator/store"
	"muster/tasks"
	"muster/tasks/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// site is an orchestrator, as far as a backup sees it.
type site struct {
	t      *testing.T
	ctx    context.Context
	jobs   *job.Service
	store  backup.Store
	paused *paused
	docs   *document.Store
	folder string
}

// paused are sites that are paused.
type paused struct {
	mu    sync.Mutex // guards names
	names []string
}

func (p *paused) PausedSites(context.Context) ([]string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.names), nil
}

func (p *paused) PauseSite(_ context.Context, name string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !slices.Contains(p.names, name) {
		p.names = append(p.names, name)
	}
	return nil
}

const limit = 1 << 20

// newSite returns a site on a Redis; with run its workflows run.
func newSite(t *testing.T, rdb redis.UniversalClient, dir string, run bool) *site {
	t.Helper()
	s := &site{t: t, ctx: t.Context(), paused: &paused{}, folder: filepath.Join(dir, "pipelines")}
	client := tasks.NewClient(rdb)
	t.Cleanup(func() { _ = client.Close() })
	var err error
	if s.docs, err = document.Open(filepath.Join(dir, "documents"), "test"); err != nil {
		t.Fatal(err)
	}
	registry, err := pipeline.Load("")
	if err != nil {
		t.Fatal(err)
	}
	s.jobs, err = job.New(job.Config{
		Client: client, Pipelines: registry.Get, Documents: s.docs, Limits: job.Limits{MaxRetries: 5, Dedupe: job.DedupeAllow, CheckEvery: 100 * time.Millisecond}, Backoff: time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	agents, err := agent.New(agent.Config{Client: client, Jobs: s.jobs, Allow: []string{"http://127.0.0.1:1/"}})
	if err != nil {
		t.Fatal(err)
	}
	s.store = backup.Store{
		Schema: store.New(rdb, nil, nil), Jobs: job.NewArchive(s.jobs), Agents: agents, Sites: s.paused, Files: s.docs, PipelineDir: s.folder,
		Pipelines: func() (map[string]string, error) {
			text, err := os.ReadFile(filepath.Join(s.folder, "mine.yaml"))
			if errors.Is(err, fs.ErrNotExist) {
				return nil, nil
			}
			return map[string]string{"mine": string(text)}, err
		},
	}
	if !run {
		return s
	}
	mux := tasks.NewMux()
	s.jobs.Register(mux)
	worker, err := tasks.NewWorker(client, mux, tasks.WorkerConfig{Queues: map[string]int{job.Queue: 1}})
	if err != nil {
		t.Fatal(err)
	}
	testutil.Background(t, worker.Run)
	testutil.Background(t, s.jobs.Run)
	return s
}

// take takes work, as soon as there is some.
func (s *site) take(role string) job.Work {
	s.t.Helper()
	var got []job.Work
	testutil.Eventually(s.t, "work for "+role, func() bool {
		var err error
		if got, _, err = s.jobs.Take(s.ctx, role, "agent-"+role, 1); err != nil {
			s.t.Fatal(err)
		}
		return len(got) == 1
	})
	return got[0]
}

func (s *site) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// fill makes a job that has ended with a document, one that is at work, a schedule, one that waits, and settings.
func (s *site) fill() (ended, open string) {
	s.t.Helper()
	doc, err := s.docs.Put(s.ctx, "a.txt", strings.NewReader("the document"), limit)
	s.must(err)
	create := func(req job.Request) string {
		j, _, err := s.jobs.Create(s.ctx, req)
		s.must(err)
		return j.ID
	}
	ended = create(job.Request{Prompt: "ended", Document: &doc, Labels: []string{"red"}, Context: json.RawMessage(`{"a":"<b>"}`)})
	var items []job.Item
	for i := range 20 {
		items = append(items, job.Item{Key: fmt.Sprint("item ", i), Text: "text <&> of it", Citations: []string{fmt.Sprint("c", i%3)}})
	}
	s.must(s.jobs.Complete(s.ctx, s.take("creator"), job.Answer{Items: items}))
	for i := range items {
		work := s.take("validator")
		s.must(s.jobs.SetUsage(s.ctx, ended, map[string]map[string]int64{"agent-validator": {"tokens": 3, "items": 1}}))
		a := job.Answer{Patch: json.RawMessage(`{"external_id":"` + work.Key + `"}`)}
		if i%3 == 0 {
			a = job.Answer{Verdict: "reject", Reason: "third"}
		}
		s.must(s.jobs.Complete(s.ctx, work, a))
	}
	s.until(ended, job.Completed)
	open = create(job.Request{Prompt: "open"})
	s.must(s.jobs.Complete(s.ctx, s.take("creator"), job.Answer{Items: items[:3]}))
	s.must(s.jobs.Complete(s.ctx, s.take("validator"), job.Answer{}))
	create(job.Request{Prompt: "waits", After: []string{open}})
	create(job.Request{Prompt: "hourly", Cron: "@hourly"})
	_, _, err = s.store.Agents.Register(s.ctx, agent.Registration{Name: "pusher", Roles: []string{"creator"}, URL: "http://127.0.0.1:1/x"})
	s.must(err)
	s.must(s.paused.PauseSite(s.ctx, "shop"))
	s.must(os.MkdirAll(s.folder, 0o700))
	s.must(os.WriteFile(filepath.Join(s.folder, "mine.yaml"), []byte("stages:\n  - {name: create, role: creator, takes: job}\n"), 0o600))
	return ended, open
}

func (s *site) until(id string, want job.Status) {
	s.t.Helper()
	testutil.Eventually(s.t, fmt.Sprintf("job %s is %s", id, want), func() bool {
		j, err := s.jobs.Get(s.ctx, id)
		s.must(err)
		return j.Status == want
	})
}

// report returns the report on a job as JSON, without the order of its items.
func (s *site) report(id string) map[string]any {
	s.t.Helper()
	var b bytes.Buffer
	s.must(report.WriteJSON(s.ctx, &b, s.jobs, id))
	var out map[string]any
	s.must(json.Unmarshal(b.Bytes(), &out))
	citations, _ := out["citations"].(map[string]any)
	for _, list := range []any{out["item_list"], out["integrated_ids"], citations["ids"]} {
		all, _ := list.([]any)
		slices.SortFunc(all, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	}
	return out
}

func (s *site) export(opts backup.ExportOptions) (string, backup.Exported) {
	s.t.Helper()
	var b bytes.Buffer
	done, err := backup.Export(s.ctx, s.store, &b, opts)
	s.must(err)
	return b.String(), done
}

func (s *site) load(text string, opts backup.ImportOptions) (backup.Imported, error) {
	opts.Put = func(ctx context.Context, name string, r io.Reader) (job.Document, error) {
		return s.docs.Put(ctx, name, r, limit)
	}
	return backup.Import(s.ctx, s.store, strings.NewReader(text), opts)
}

// A job is not replaced by one that the export does not have whole.
func TestJobsAreReplacedByWholeOnesOnly(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Mini(t), t.TempDir(), true)
	ended, _ := s.fill()
	text, _ := s.export(backup.ExportOptions{})
	want := s.report(ended)
	lines := strings.SplitAfter(text, "\n")
	item := slices.IndexFunc(lines, func(l string) bool { return strings.Contains(l, `"kind":"item"`) })
	for name, broken := range map[string]string{
		"an item is missing":     strings.Join(slices.Delete(slices.Clone(lines), item, item+1), ""),
		"it ends within the job": strings.Join(lines[:item+1], ""),
	} {
		if _, err := s.load(broken, backup.ImportOptions{Replace: true}); err == nil {
			t.Errorf("%s: got no error", name)
		}
		if got := s.report(ended); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got report\n%v\nwant that of the job that was there\n%v", name, got, want)
		}
	}
}

// An import into an empty Redis returns what was exported: jobs that had ended as they were, the others at work.
func TestImportReturnsWhatWasExported(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		from := newSite(t, rdb, t.TempDir(), true)
		ended, open := from.fill()
		docs := t.TempDir()
		text, out := from.export(backup.ExportOptions{Documents: docs})
		if out.Jobs != 4 || out.Items != 21+4 || out.Agents != 1 || out.Pipelines != 1 || out.Sites != 1 || out.Documents != 1 || len(out.Broken) != 0 {
			t.Errorf("export: got %+v", out)
		}
		if strings.Contains(text, "secret") {
			t.Error("the export has the secret of an agent, want none without --secrets")
		}
		to := newSite(t, redistest.Mini(t), t.TempDir(), true)
		in, err := to.load(text, backup.ImportOptions{Documents: docs})
		want := backup.Imported{Jobs: 4, Items: 25, Agents: 1, Pipelines: 1, Sites: 1, Documents: 1, Refused: []string{}}
		if err != nil || !reflect.DeepEqual(in, want) {
			t.Errorf("import:\ngot  %+v, %v\nwant %+v", in, err, want)
		}
		if got, want := to.report(ended), from.report(ended); !reflect.DeepEqual(got, want) {
			t.Errorf("report:\ngot  %v\nwant %v", got, want)
		}
		again, err := to.load(text, backup.ImportOptions{Documents: docs})
		if want := (backup.Imported{Sites: 1, Kept: 6, Refused: []string{}}); err != nil || !reflect.DeepEqual(again, want) {
			t.Errorf("again:\ngot  %+v, %v\nwant %+v", again, err, want)
		}
		for range 2 {
			to.must(to.jobs.Complete(to.ctx, to.take("validator"), job.Answer{}))
		}
		to.until(open, job.Completed)
		agents, err := to.store.Agents.List(to.ctx)
		if err != nil || len(agents) != 1 || agents[0].Name != "pusher" || agents[0].URL == "" {
			t.Errorf("agents: got %+v, %v, want the one that was exported", agents, err)
		}
		page, err := to.jobs.List(to.ctx, job.Filter{})
		var prompts []string
		for _, j := range page.Jobs {
			prompts = append(prompts, j.Prompt)
		}
		if got, want := strings.Join(prompts, " "), "hourly waits open ended"; err != nil || got != want {
			t.Errorf("list: got %q, %v, want %q", got, err, want)
		}
		if f, err := to.docs.Open(strings.Repeat("0", 64)); err == nil {
			_ = f.Close()
			t.Error("got a document that was not stored, want an error")
		}
	})
}

func TestSecretsAreExportedWhenAsked(t *testing.T) {
	t.Parallel()
	from := newSite(t, redistest.Mini(t), t.TempDir(), false)
	_, secret, err := from.store.Agents.Register(from.ctx, agent.Registration{Name: "pusher", Roles: []string{"creator"}, URL: "http://127.0.0.1:1/x"})
	from.must(err)
	text, _ := from.export(backup.ExportOptions{Secrets: true})
	if !strings.Contains(text, secret) {
		t.Error("the secret is not in the export")
	}
	to := newSite(t, redistest.Mini(t), t.TempDir(), false)
	if _, err := to.load(text, backup.ImportOptions{}); err != nil {
		t.Fatal(err)
	}
	if again, _ := to.export(backup.ExportOptions{Secrets: true}); !strings.Contains(again, secret) {
		t.Error("the secret was not restored")
	}
}

// Wherever an import is killed, repeating it completes it, and nothing is there twice.
func TestKilledImportIsRepeated(t *testing.T) {
	t.Parallel()
	from := newSite(t, redistest.Mini(t), t.TempDir(), true)
	ended, _ := from.fill()
	text, out := from.export(backup.ExportOptions{})
	want := from.report(ended)
	for calls, done := 1, false; !done; calls += 2 {
		address, dir := redistest.MiniURL(t), t.TempDir()
		dying := newSite(t, redistest.NewMortal(t, address, calls), dir, false)
		dying.store.Schema.Lease = 50 * time.Millisecond // so that the next one need not wait for long
		_, err := dying.load(text, backup.ImportOptions{})
		if done = err == nil; !done && !errors.Is(err, redistest.ErrDead) && !errors.Is(err, store.ErrLost) && !errors.Is(err, context.Canceled) {
			t.Fatalf("after %d calls: got %v, want that the process is dead", calls, err)
		}
		to := newSite(t, redistest.NewMortal(t, address, -1), dir, false)
		if _, err := to.load(text, backup.ImportOptions{}); err != nil {
			t.Fatalf("after %d calls: repeat: %v", calls, err)
		}
		page, err := to.jobs.List(to.ctx, job.Filter{})
		if err != nil || int(page.Total) != out.Jobs || len(page.Jobs) != out.Jobs {
			t.Fatalf("after %d calls: got %d jobs of %d, %v, want %d", calls, len(page.Jobs), page.Total, err, out.Jobs)
		}
		if got := to.report(ended); !reflect.DeepEqual(got, want) {
			t.Fatalf("after %d calls:\ngot  %v\nwant %v", calls, got, want)
		}
	}
}

// An import that was frozen while another took over adds nothing any more.
func TestFrozenImportAddsNothingAfterAnother(t *testing.T) {
	t.Parallel()
	from := newSite(t, redistest.Mini(t), t.TempDir(), true)
	ended, _ := from.fill()
	text, _ := from.export(backup.ExportOptions{})
	lines := strings.SplitAfter(text, "\n")
	end := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, `{"kind":"end"`) })
	address := redistest.MiniURL(t)
	frozen := redistest.NewMortal(t, address, -1)
	slow := newSite(t, frozen, t.TempDir(), false)
	slow.store.Schema.Lease = time.Second
	read, write := io.Pipe()
	result := make(chan error, 1)
	go func() {
		_, err := backup.Import(slow.ctx, slow.store, read, backup.ImportOptions{})
		_ = read.Close() // so that no write waits for it
		result <- err
	}()
	if _, err := io.WriteString(write, strings.Join(lines[:end], "")); err != nil {
		t.Fatal(err)
	}
	thaw := frozen.Freeze()
	to := newSite(t, redistest.NewMortal(t, address, -1), t.TempDir(), false)
	if _, err := to.load(text, backup.ImportOptions{}); err != nil {
		t.Fatal(err)
	}
	to.must(to.jobs.Delete(to.ctx, ended)) // the frozen import would bring it back
	go func() {
		_, _ = io.WriteString(write, strings.Join(lines[end:], "")) // the import may have ended
		_ = write.Close()
	}()
	thaw()
	if err := <-result; !errors.Is(err, store.ErrLost) {
		t.Errorf("got %v, want %v", err, store.ErrLost)
	}
	if _, err := to.jobs.Get(to.ctx, ended); !errors.Is(err, job.ErrNotFound) {
		t.Errorf("got %v, want that the job stays deleted", err)
	}
}

func TestImportNamesTheLineThatIsWrong(t *testing.T) {
	t.Parallel()
	const head = `{"kind":"muster-export","format":1}` + "\n"
	record := `"kind":"pipeline","name":"p","status":"completed","version":1,"created":"2026-01-01T00:00:00Z","ended":"2026-01-01T00:00:00Z",` +
		`"pipeline":{"name":"p","stages":[{"name":"create","role":"creator","takes":"job"}]}`
	begin := `{"kind":"job","id":"a","record":{` + record + `}}` + "\n"
	for text, want := range map[string]string{
		"":                                    "the file is empty",
		"{}":                                  "line 1: this is no export",
		"a: b\n":                              "line 1: this is no export",
		`{"kind":"muster-export","format":2}`: "written by a newer release; this one knows 1: upgrade this program",
		head + "\n\nnonsense":                 "line 4: it is no JSON object",
		head + `{"kind":"jobs"}`:              `line 2: no kind of lines is called "jobs"`,
		head + `{"kind":"request","id":"a","promt":"x"}`:           `line 2: json: unknown field "promt"`,
		head + `{"kind":"request","prompt":"x"}`:                   "line 2: a request needs an id",
		head + `{"kind":"request","id":"a"}`:                       "line 2: prompt: must not be empty",
		head + `{"kind":"request","id":"a b","prompt":"x"}`:        "is not the id of a job",
		head + `{"kind":"pipeline","name":"../x","yaml":""}`:       "is no name of a pipeline",
		head + `{"kind":"pipeline","name":"x","yaml":"stages: 1"}`: "line 2: x.yaml:1",
		head + `{"kind":"item","job":"a","id":"item/x"}`:           "line 2: an item of job",
		head + `{"kind":"end","job":"a","items":0}`:                "line 2: the end of job",
		head + begin + head:                                        "line 3: a line of kind",
		head + begin:                                               "line 3: the export ends here, and is not whole",
		head + begin + `{"kind":"end","job":"a","items":1}`:        "line 3: job a has 0 items here, and should have 1",
		head + begin + `{"kind":"item","job":"b","id":"item/x"}`:   "line 3: an item of job",
		head + begin + `{"kind":"item","job":"a","id":"item/x","stage":"none","state":"done","since":"2026-01-01T00:00:00Z"}` + "\n" + `{"kind":"end","job":"a","items":1}`: "the pipeline has no stage",
		head + strings.Replace(begin, `"completed"`, `"gone"`, 1):                                                 `"gone" is no state of a job`,
		head + strings.Replace(begin, `"id":"a"`, `"id":"a/*"`, 1):                                                "is not the id of a job",
		head + strings.Replace(begin, `"2026-01-01T`, `"2026-1T`, 1):                                              "is no time",
		`{"kind":"muster-export","format":1,"created":"2026-01-01T00:00:00Z"}`:                                    "is not whole",
		head + `{"kind":"agent","id":"x","name":"x","roles":[],"capacity":1,"registered":"2026-01-01T00:00:00Z"}`: "line 2: roles: give 1 to 20 roles",
	} {
		s := newSite(t, redistest.Mini(t), t.TempDir(), false)
		if _, err := s.load(text, backup.ImportOptions{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.200s:\ngot  %v\nwant %s", text, err, want)
		}
	}
}

// A seed is a file in the format of exports that people write; what it says is created once.
func TestSeedCreatesJobsOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Mini(t), t.TempDir(), true)
	const text = `{"kind":"muster-export","format":1}
{"kind":"pipeline","name":"mine","yaml":"stages: [{name: create, role: creator, takes: job}]"}
{"kind":"request","id":"welcome","prompt":"say hello","labels":["demo"],"priority":3}
{"kind":"request","id":"nightly","prompt":"each night","cron":"@daily"}
{"kind":"request","id":"second","prompt":"then","after":["welcome"]}
`
	for i, want := range []backup.Imported{{Requests: 3, Pipelines: 1, Refused: []string{}}, {Kept: 4, Refused: []string{}}} {
		if got, err := s.load(text, backup.ImportOptions{}); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("time %d: got %+v, %v, want %+v", i+1, got, err, want)
		}
	}
	if j, err := s.jobs.Get(s.ctx, "welcome"); err != nil || j.Priority != 3 || j.Pipeline.Name != "default" {
		t.Errorf("got %+v, %v, want the job of the seed", j, err)
	}
	s.until("welcome", job.Processing)
}

// A job that cannot be read is named, and the others are exported.
func TestBrokenJobDoesNotStopAnExport(t *testing.T) {
	t.Parallel()
	rdb := redistest.Mini(t)
	from := newSite(t, rdb, t.TempDir(), true)
	ended, open := from.fill()
	from.must(rdb.HSet(from.ctx, "muster:wq:{job:"+ended+"}:spec", "item/item 3", "damaged").Err())
	text, out := from.export(backup.ExportOptions{})
	if out.Jobs != 3 || len(out.Broken) != 1 || !strings.Contains(out.Broken[0], ended) {
		t.Errorf("export: got %+v, want that one job is broken", out)
	}
	to := newSite(t, redistest.Mini(t), t.TempDir(), false)
	in, err := to.load(text, backup.ImportOptions{})
	if err != nil || in.Jobs != 3 || len(in.Refused) != 1 {
		t.Errorf("import: got %+v, %v, want all but that job", in, err)
	}
	if _, err := to.jobs.Get(to.ctx, open); err != nil {
		t.Error(err)
	}
	if _, err := to.jobs.Get(to.ctx, ended); !errors.Is(err, job.ErrNotFound) {
		t.Errorf("the broken job: got %v, want %v", err, job.ErrNotFound)
	}
}
