package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/sites/internal/store"
	"muster/sites/report"
	"muster/tasks"
	"muster/tasks/workqueue"
)

func testRecorder(rdb redis.UniversalClient, dir string, sinks []string) (*Recorder, error) {
	return New(Config{Client: tasks.NewClient(rdb), OutDir: dir, Sinks: sinks})
}

// testJob is a job with records from the test.
type testJob struct {
	*writer
	t    *testing.T
	next int
	keys map[string]map[string]bool // by type
}

// give settles a page with records, some of them larger than the write buffer.
func (j *testJob) give(n int, version string) {
	j.t.Helper()
	ctx := j.t.Context()
	_, err := j.queue.Enqueue(ctx, workqueue.Item{ID: fmt.Sprint("page-", j.next), Kind: "detail"})
	testutil.Ok(j.t, err)
	leases, err := j.queue.Lease(ctx, "test", 1)
	if err != nil || len(leases) != 1 {
		j.t.Fatalf("got leases %v, error %v, want one", leases, err)
	}
	var outputs [][]byte
	for range n {
		typ, key := []string{"item", "teaser"}[j.next%2], fmt.Sprint("k", j.next)
		size := 100
		if j.next%30 == 0 {
			size = 70 << 10
		}
		j.next++
		outputs = append(outputs, fmt.Appendf(nil, `{"_type":%q,"_key":%q,"_url":"http://shop.example","name":%q,"price":%q}`, typ, key, strings.Repeat("x", size), version))
		if j.keys[typ] == nil {
			j.keys[typ] = map[string]bool{}
		}
		j.keys[typ][key] = true
	}
	testutil.Ok(j.t, j.queue.Settle(ctx, leases[0], workqueue.Done().With(nil, outputs...)))
}

// audit counts every record of the job.
func (j *testJob) audit() {
	j.t.Helper()
	total := 0
	for typ, want := range j.keys {
		keys := j.lines(j.files.path(typ))
		total += len(want)
		for key := range want {
			if keys[key] != 1 {
				j.t.Errorf("%s.jsonl has record %s %d times, want once", typ, key, keys[key])
			}
		}
		if len(keys) != len(want) {
			j.t.Errorf("%s.jsonl has %d records, want %d", typ, len(keys), len(want))
		}
		if byType, trouble, err := store.Written(j.t.Context(), j.out); err != nil || byType[typ] != len(want) || trouble != "" {
			j.t.Errorf("Redis counts %d records of type %s, trouble %q, %v; want %d", byType[typ], typ, trouble, err, len(want))
		}
	}
	changes := j.lines(j.files.changesPath())
	for id, n := range changes {
		if n != 1 {
			j.t.Errorf("changes.jsonl has %s %d times, want once", id, n)
		}
	}
	if len(changes) != total {
		j.t.Errorf("changes.jsonl has %d lines, want %d", len(changes), total)
	}
	if n, _, err := j.out.Backlog(j.t.Context()); err != nil || n != 0 {
		j.t.Errorf("%d records wait in Redis, %v; want none", n, err)
	}
	entries, err := os.ReadDir(j.files.dir)
	testutil.Ok(j.t, err)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			j.t.Errorf("got a temporary file %s, want none", e.Name())
		}
	}
}

// lines counts the lines of a file by key. Each must be complete.
func (j *testJob) lines(path string) map[string]int {
	j.t.Helper()
	data, err := os.ReadFile(path)
	testutil.Ok(j.t, err)
	keys := map[string]int{}
	for line := range strings.Lines(string(data)) {
		var h head
		if err := json.Unmarshal([]byte(line), &h); err != nil || !strings.HasSuffix(line, "\n") {
			j.t.Errorf("%s: got line %.80q, error %v, want a complete record", filepath.Base(path), line, err)
		}
		keys[h.Key]++
	}
	return keys
}

// jobYAML defines a site with two types of records.
const jobYAML = `site: shop.example
base_url: http://shop.example
start: [/]
listing: {links: a}
records:
  item: {key: [name], fields: {name: {css: h1, required: true}, price: b}}
  teaser: {from: listing, each: li, fields: {name: a}}
`

// newTestJob stores a job like the start of a scrape.
func newTestJob(t *testing.T, r *Recorder, id string, req store.Request) *testJob {
	t.Helper()
	home := testutil.Must(FolderName(req.OutDir))(t)
	req.Site, req.File, req.YAML, req.Home = "shop.example", "shop.yaml", jobYAML, home
	data := testutil.Must(json.Marshal(req))(t)
	testutil.Ok(t, errors.Join(r.rdb.Set(t.Context(), store.RequestKey(id), data, store.Keep).Err(), r.rdb.SAdd(t.Context(), store.OpenJobsKey, id).Err()))
	w := testutil.Must(r.writer(t.Context(), id))(t)
	return &testJob{writer: w, t: t, keys: map[string]map[string]bool{}}
}

// isClosed audits a job whose files are closed.
func (j *testJob) isClosed() {
	j.t.Helper()
	sum, ok, err := store.ReadJSON[report.Summary](j.t.Context(), j.rdb, store.SummaryKey(j.run))
	if err != nil || !ok || sum.Records != j.next || sum.Changes.New+sum.Changes.Changed != j.next || len(sum.Files) != 4 {
		j.t.Errorf("got %+v, closed %v, %v; want %d records, all of them changes", sum, ok, err, j.next)
	}
	j.audit()
	names := []string{}
	entries, err := os.ReadDir(j.files.dir)
	testutil.Ok(j.t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if want := []string{"changes.jsonl", "item.csv", "item.jsonl", "report.json", "report.txt", "teaser.csv", "teaser.jsonl"}; !slices.Equal(names, want) {
		j.t.Errorf("got files %v, want %v", names, want)
	}
	for typ, want := range j.keys {
		data, err := os.ReadFile(j.files.ledgerPath(typ))
		testutil.Ok(j.t, err)
		entries := strings.Split(strings.TrimSpace(string(data)), "\n")[1:]
		if len(entries) != len(want) {
			j.t.Errorf("the ledger has %d records of type %s, want %d", len(entries), typ, len(want))
		}
		for key := range want {
			if !slices.ContainsFunc(entries, func(e string) bool {
				return strings.Contains(e, `"key":"`+key+`"`) && strings.Contains(e, `"`+j.run+`"`)
			}) {
				j.t.Errorf("the ledger lacks record %s of job %s", key, j.run)
			}
		}
	}
}

// A process does not write records to a directory that it cannot access or that has another name, because it is on another
// machine.
func TestFolderOfAnotherMachineIsNotWritten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rdb := redistest.New(t)
	r := testutil.Must(testRecorder(rdb, dir, nil))(t)
	j := newTestJob(t, r, "far-job", store.Request{OutDir: dir})
	j.give(3, "1")
	r.sees = func(string) string { return "" }
	if n, err := r.Write(t.Context(), "far-job"); n != 0 || !errors.Is(err, ErrNotWriter) {
		t.Errorf("got %d records written, %v, want none and %v", n, err, ErrNotWriter)
	}
	r.sees = readName
	if n, err := r.Write(t.Context(), "far-job"); n != 3 || err != nil {
		t.Errorf("on its machine: got %d records written, %v, want 3", n, err)
	}
	testutil.Ok(t, r.Close())
}

// One process at a time writes to the directory of a site. Another one names it and waits until it has closed its jobs of the site.
func TestOneProcessWrites(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rdb := redistest.New(t)
	var rs [2]*Recorder
	for i := range rs {
		r := testutil.Must(testRecorder(rdb, dir, nil))(t)
		t.Cleanup(func() { _ = r.Close() })
		rs[i] = r
	}
	first, second := newTestJob(t, rs[0], "first", store.Request{OutDir: dir}), newTestJob(t, rs[0], "second", store.Request{OutDir: dir})
	write := func(r *Recorder, j *testJob, want int) {
		t.Helper()
		j.give(3, "1")
		if n, err := r.Write(t.Context(), j.run); n != want || (err == nil) != (want > 0) || err != nil && !errors.Is(err, ErrNotWriter) {
			t.Errorf("got %d records, %v, want %d", n, err, want)
		}
	}
	write(rs[0], first, 3)
	write(rs[0], second, 3)
	_, err := rs[1].Write(t.Context(), first.run)
	if want := fmt.Sprintf("is locked by process %d on ", os.Getpid()); !errors.Is(err, ErrNotWriter) || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
	rs[0].Forget(first.run)
	write(rs[1], first, 0) // the first process still writes the second job
	rs[0].Forget(second.run)
	write(rs[1], first, 6)
	write(rs[0], second, 0)
	first.audit()
}
