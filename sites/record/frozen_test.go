package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"muster/internal/testutil"
	"muster/sites/internal/store"
	"muster/sites/ledger"
	"muster/sites/report"
	"muster/tasks/redistest"
	"muster/tasks/workqueue"
)

// frozenJob is a job with records from the test.
type frozenJob struct {
	*writer
	t    *testing.T
	next int
	keys map[string]map[string]bool // by type
}

// give settles a page with records, some of them larger than the write buffer.
func (j *frozenJob) give(n int, version string) {
	j.t.Helper()
	ctx := j.t.Context()
	if _, err := j.queue.Enqueue(ctx, workqueue.Item{ID: fmt.Sprint("page-", j.next), Kind: "detail"}); err != nil {
		j.t.Fatal(err)
	}
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
	if err := j.queue.Settle(ctx, leases[0], workqueue.Done().With(nil, outputs...)); err != nil {
		j.t.Fatal(err)
	}
}

// audit counts every record of the job.
func (j *frozenJob) audit() {
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
		if byType, trouble, err := store.Written(j.t.Context(), j.lease.out); err != nil || byType[typ] != len(want) || trouble != "" {
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
	if n, _, err := j.lease.out.Backlog(j.t.Context()); err != nil || n != 0 {
		j.t.Errorf("%d records wait in Redis, %v; want none", n, err)
	}
	entries, err := os.ReadDir(j.files.dir)
	if err != nil {
		j.t.Error(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			j.t.Errorf("got a temporary file %s, want none", e.Name())
		}
	}
}

// lines counts the lines of a file by key. Each must be complete.
func (j *frozenJob) lines(path string) map[string]int {
	j.t.Helper()
	f, err := os.Open(path)
	if err != nil {
		j.t.Error(err)
		return nil
	}
	defer f.Close()
	data, err := io.ReadAll(f)
	if err != nil {
		j.t.Error(err)
	}
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

// frozenYAML defines a site with two types of records.
const frozenYAML = `site: shop.example
base_url: http://shop.example
start: [/]
listing: {links: a}
records:
  item: {key: [name], fields: {name: {css: h1, required: true}, price: b}}
  teaser: {from: listing, each: li, fields: {name: a}}
`

// newFrozenJob stores a job like the start of a scrape.
func newFrozenJob(t *testing.T, r *Recorder, id string, req store.Request) *frozenJob {
	t.Helper()
	home, err := FolderName(req.OutDir)
	if err != nil {
		t.Fatal(err)
	}
	req.Site, req.File, req.YAML, req.Home = "shop.example", "shop.yaml", frozenYAML, home
	data, err := json.Marshal(req)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(r.rdb.Set(t.Context(), store.RequestKey(id), data, store.Keep).Err(), r.rdb.SAdd(t.Context(), store.OpenJobsKey, id).Err()); err != nil {
		t.Fatal(err)
	}
	w, err := r.writer(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return &frozenJob{writer: w, t: t, keys: map[string]map[string]bool{}}
}

// twoWriters returns a process that can be stopped, and a recorder that writes on request.
func twoWriters(t *testing.T, dir string, sinks ...string) (*Recorder, *frozenWriter) {
	t.Helper()
	url := redistest.URL(t)
	opt, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewClient(opt)
	r, err := frozenRecorder(rdb, dir, sinks)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(r.Close(), rdb.Close()); err != nil {
			t.Error(err)
		}
	})
	return r, startWriter(t, append([]string{url, dir}, sinks...)...)
}

// countingHook returns a webhook and a function that counts its records.
func countingHook(t *testing.T) (url string, delivered func() int) {
	t.Helper()
	var mu sync.Mutex
	got := map[string]bool{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var b struct{ Records []struct{ Type, Key string } }
		switch err := json.NewDecoder(r.Body).Decode(&b); {
		case errors.Is(err, io.ErrUnexpectedEOF): // its sender has ended
			w.WriteHeader(http.StatusBadRequest)
			return
		case err != nil:
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, r := range b.Records {
			got[r.Type+" "+r.Key] = true
		}
	}))
	t.Cleanup(server.Close)
	return server.URL, func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(got)
	}
}

// A process is stopped at any step of writing records until another takes over, and then continues concurrently: every record is
// written once, and the job is not blocked.
func TestFrozenWriter(t *testing.T) {
	t.Parallel()
	hook, delivered := countingHook(t)
	dir := t.TempDir()
	r, w := twoWriters(t, dir, hook)
	j := newFrozenJob(t, r, "frozen-job", store.Request{OutDir: dir, Sinks: []string{hook}})
	met := map[string]bool{}
	drained := func() bool {
		if _, err := j.drain(t.Context()); err != nil && !errors.Is(err, ErrNotWriter) {
			t.Fatal(err)
		}
		n, err := j.lease.out.Len(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return n == 0
	}
	for {
		idle := 0
		w.stopAt(func(step string) bool {
			if strings.HasPrefix(step, "step 1:") {
				idle++
			}
			if met[step] {
				return false
			}
			met[step] = true
			return true
		})
		j.give(10, "1")
		step := w.freeze(func() bool { w.mu.Lock(); defer w.mu.Unlock(); return idle > 3 })
		if step == "" {
			break
		}
		j.give(10, "1")
		testutil.Eventually(t, "another writes while the first is stopped at "+step, drained)
		j.give(10, "1")
		w.thaw()
		testutil.Eventually(t, "both write", drained)
	}
	if len(met) < 10 {
		t.Errorf("stopped at %d steps, want some more", len(met))
	}
	w.awake()
	testutil.Eventually(t, "all is written", drained)
	w.awake()
	j.audit()
	if n := delivered(); n != j.next {
		t.Errorf("the webhook got %d records, want %d", n, j.next)
	}
	t.Logf("stopped at %d steps", len(met))
}

// The same holds for a process that is stopped while it closes the files of a job.
func TestFrozenCloser(t *testing.T) {
	t.Parallel()
	const parts = 4
	for part := range parts {
		t.Run(fmt.Sprint("part ", part), func(t *testing.T) {
			t.Parallel()
			if testing.Short() && part > 0 {
				t.Skip("long: the other steps")
			}
			freezeCloser(t, func(step int) bool { return step%parts == part })
		})
	}
}

// freezeCloser stops a process that closes jobs at the steps that asked selects, with a separate job for each.
func freezeCloser(t *testing.T, asked func(step int) bool) {
	out := t.TempDir()
	r, w := twoWriters(t, out)
	met := map[string]bool{}
	for n := 0; ; n++ {
		id := fmt.Sprint("frozen-job-", n)
		j := newFrozenJob(t, r, id, store.Request{OutDir: out, CSV: true})
		j.give(20, id)
		sum, err := json.Marshal(report.Summary{Site: j.def.Site, JobID: id, Status: report.StatusComplete})
		if err != nil {
			t.Fatal(err)
		}
		if err := j.rdb.Set(t.Context(), store.CountedKey(id), sum, store.Keep).Err(); err != nil {
			t.Fatal(err)
		}
		w.stopAt(func(step string) bool {
			n := 0
			if _, err := fmt.Sscanf(step, "step %d:", &n); err != nil || met[step] || !asked(n) {
				return false
			}
			met[step] = true
			return true
		})
		closed := func() bool {
			_, ok, err := store.ReadJSON[report.Summary](t.Context(), j.rdb, store.SummaryKey(id))
			if err != nil {
				t.Fatal(err)
			}
			return ok
		}
		step := w.freeze(closed)
		if step != "" {
			testutil.Eventually(t, "another closes the job while the first is stopped at "+step, func() bool {
				if _, err := j.finish(t.Context(), report.Summary{Site: j.def.Site, JobID: id, Status: report.StatusComplete}); err != nil && !errors.Is(err, ErrNotWriter) {
					t.Fatal(err)
				}
				return closed()
			})
			j.isClosed()
			w.stopAt(func(string) bool { return false })
			w.thaw()
		}
		w.awake()
		j.isClosed()
		if t.Failed() {
			t.Fatalf("got a failure after the first writer was stopped at %s, want none", step)
		}
		if err := j.rdb.SRem(t.Context(), store.OpenJobsKey, id).Err(); err != nil {
			t.Fatal(err)
		}
		if step == "" {
			break
		}
	}
	if len(met) < 5 {
		t.Errorf("stopped at %d steps, want some more", len(met))
	}
	t.Logf("stopped at %d steps", len(met))
}

// isClosed audits a job whose files are closed.
func (j *frozenJob) isClosed() {
	j.t.Helper()
	sum, ok, err := store.ReadJSON[report.Summary](j.t.Context(), j.rdb, store.SummaryKey(j.run))
	if err != nil || !ok || sum.Records != j.next || sum.Changes.New+sum.Changes.Changed != j.next || len(sum.Files) != 4 {
		j.t.Errorf("got %+v, closed %v, %v; want %d records, all of them changes", sum, ok, err, j.next)
	}
	j.audit()
	names := []string{}
	entries, err := os.ReadDir(j.files.dir)
	if err != nil {
		j.t.Error(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if want := []string{"changes.jsonl", "item.csv", "item.jsonl", "report.json", "report.txt", "teaser.csv", "teaser.jsonl"}; !slices.Equal(names, want) {
		j.t.Errorf("got files %v, want %v", names, want)
	}
	for typ, want := range j.keys {
		b, err := ledger.Open(j.files.ledgerPath(typ))
		if err != nil {
			j.t.Error(err)
			continue
		}
		if b.Len() != len(want) {
			j.t.Errorf("the ledger has %d records of type %s, want %d", b.Len(), typ, len(want))
		}
		for key := range want {
			if e, ok, err := b.Show(key); err != nil || !ok || !strings.Contains(string(e.Record), `"`+j.run+`"`) {
				j.t.Errorf("the ledger has %v of record %s, %v; want the record of job %s", e.Last, key, err, j.run)
			}
		}
		if err := b.Close(); err != nil {
			j.t.Error(err)
		}
	}
}

// A process does not write records to a directory that it cannot access or that has another name, because it is on another
// machine.
func TestFolderOfAnotherMachineIsNotWritten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rdb := redistest.New(t)
	r, err := frozenRecorder(rdb, dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	j := newFrozenJob(t, r, "far-job", store.Request{OutDir: dir})
	j.give(3, "1")
	r.sees = func(string) string { return "" }
	if n, err := r.Write(t.Context(), "far-job"); n != 0 || !errors.Is(err, ErrNotWriter) {
		t.Errorf("got %d records written, %v, want none and %v", n, err, ErrNotWriter)
	}
	r.sees = readName
	if n, err := r.Write(t.Context(), "far-job"); n != 3 || err != nil {
		t.Errorf("on its machine: got %d records written, %v, want 3", n, err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}
