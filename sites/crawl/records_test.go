package crawl

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/sites/fetch"
	"muster/sites/internal/sitetest"
	"muster/sites/record"
	"muster/sites/report"
	"muster/tasks/workqueue"
)

// The records of a job are compared with the previous job and with the sinks.
func TestRecordsAreComparedWithPreviousJob(t *testing.T) {
	t.Parallel()
	site := sitetest.NewShop(t, 1, 10)
	s := newWorker(t, redistest.New(t))
	def, out := site.Definition(t, ""), t.TempDir()
	scrape := func(id string, o ScrapeOptions) report.Summary {
		t.Helper()
		o.BaseURL, o.OutDir, o.Sinks = site.URL, out, []string{"sqlite:records.db"}
		return run(t, begin(t, s, id, def, o))
	}
	first := scrape("j1", ScrapeOptions{})
	if c := first.Changes; c.New != 20 || c.Changed+c.Unchanged+c.Gone != 0 {
		t.Errorf("the first job: got %+v, want 20 new", c)
	}
	site.Price(3, 777)
	site.Hide(5)
	if c := scrape("j2", ScrapeOptions{Limit: 4}).Changes; c.Gone != 0 || c.Changed != 0 || c.Unchanged != 4 {
		t.Errorf("a job with a limit: got %+v, want 4 unchanged", c)
	}
	sum := scrape("j3", ScrapeOptions{})
	if c := sum.Changes; c.New != 0 || c.Changed != 1 || c.Unchanged != 17 || c.Gone != 2 {
		t.Errorf("the third job: got %+v, want 1 changed, 17 unchanged and 2 gone", c)
	}
	site.Price(3, 778)
	site.Hide()
	sum = scrape("j4", ScrapeOptions{})
	if c := sum.Changes; c.New != 2 || c.Changed != 1 || c.Unchanged != 17 || c.Gone != 0 {
		t.Errorf("the fourth job: got %+v, want 2 new, 1 changed and 17 unchanged", c)
	}
	data, err := os.ReadFile(sum.Changes.File)
	if err != nil || !strings.Contains(string(data), `"diff":{"price":`) || strings.Count(string(data), "\n") != 3 {
		t.Errorf("changes.jsonl: got %s, error %v, want 3 lines with the diff of a price", data, err)
	}
	db := testutil.Must(sql.Open("sqlite", "file:"+filepath.Join(out, "records.db")))(t)
	defer db.Close()
	for query, want := range map[string]string{
		`SELECT COUNT(*) FROM muster_records`:                           "20",
		`SELECT COUNT(*) FROM muster_records WHERE gone_at IS NOT NULL`: "0",
		`SELECT COUNT(*) FROM muster_changes WHERE change = 'gone'`:     "2",
		`SELECT COUNT(*) FROM muster_changes WHERE change = 'changed'`:  "2",
	} {
		var got string
		if err := db.QueryRow(query).Scan(&got); err != nil || got != want {
			t.Errorf("%s: got %s, %v, want %s", query, got, err, want)
		}
	}
}

// A bucket receives each finished file of a job once, below the site and the job.
func TestBucketReceivesFinishedFiles(t *testing.T) {
	var mu sync.Mutex
	objects := map[string]string{}
	bucket := testutil.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		switch body, _ := io.ReadAll(r.Body); r.Method {
		case http.MethodPut:
			objects[r.URL.Path] += string(body)
		case http.MethodPost:
			fmt.Fprint(w, "<InitiateMultipartUploadResult><UploadId>1</UploadId></InitiateMultipartUploadResult>")
		default:
			fmt.Fprint(w, "<ListMultipartUploadsResult></ListMultipartUploadsResult>")
		}
	}))
	for name, value := range map[string]string{"AWS_ENDPOINT_URL": bucket.URL, "AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret"} {
		t.Setenv(name, value)
	}
	site := sitetest.NewShop(t, 1, 5)
	s := newWorker(t, redistest.New(t))
	sum := run(t, begin(t, s, "j1", site.Definition(t, ""), ScrapeOptions{BaseURL: site.URL, CSV: true, Sinks: []string{"s3://data/all"}}))
	if len(objects) != 5 {
		t.Errorf("got %d objects, want the files of two types, as JSONL and CSV, and the changes", len(objects))
	}
	for _, file := range append(sum.Files, sum.Changes.File) {
		data := testutil.Must(os.ReadFile(file))(t)
		if got := objects["/data/all/shop.example/j1/"+filepath.Base(file)]; got != string(data) {
			t.Errorf("%s: got %q, want %q", filepath.Base(file), got, data)
		}
		if filepath.Base(file) == "item.csv" && !strings.HasPrefix(string(data), "_key,_url,name,price.amount,price.currency\r\n") {
			t.Errorf("item.csv: got %q, want a header", data)
		}
	}
}

// Backpressure also applies to a few large records: only records within the limit and of pages in flight wait.
func TestBackPressureOfBytes(t *testing.T) {
	t.Parallel()
	const pages, size, room = 8, 300 << 10, 1 << 20
	server := testutil.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			for i := range pages {
				fmt.Fprintf(w, `<a class=to href="/page/%d">page</a>`, i)
			}
			return
		}
		fmt.Fprintf(w, "<html><h1>%s</h1><p>%s</p></html>", r.URL.Path, strings.Repeat("many words ", size/11))
	}))
	def := sitetest.Parse(t, []byte("site: large\nbase_url: "+server.URL+"\nstart: [/]\nlisting: {links: a.to}\npoliteness: {delay: 0, robots: false, max_per_domain: 2}\n"+
		"records: {page: {key: [name], fields: {name: {css: h1, required: true}, text: p}}}\n"))
	s := newWorker(t, redistest.New(t))
	j := begin(t, s, "j", def, ScrapeOptions{})
	j.crawler.admission.room = room
	collect(t, j)
	testutil.Eventually(t, "the crawler waits for records to be written", func() bool {
		if _, err := crawlOnce(t.Context(), j, "crawler"); !errors.As(err, new(later)) {
			t.Fatalf("got %v, want later", err)
		}
		delays, err := j.crawler.counts.all(t.Context())
		return err == nil && delays["delay"][string(DelayRecords)] > 0
	})
	n, bytes, err := j.queue.Outputs().Backlog(t.Context())
	if err != nil || bytes < room || bytes > room+4*size+64<<10 {
		t.Errorf("got %d waiting records of %d bytes, error %v, want at most %d bytes and the pages in flight or being settled", n, bytes, err, room)
	}
	again(t, func() (int, error) {
		testutil.Must(s.recorder.Write(t.Context(), j.run))(t)
		return crawlOnce(t.Context(), j, "crawler")
	})
	if sum := aggregate(t, j); sum.Records != pages || sum.Errors != 0 {
		t.Errorf("got %+v, want %d records", sum, pages)
	}
}

// flood adds records to the job's stream.
func flood(t *testing.T, j *job, n int) {
	t.Helper()
	var outputs [][]byte
	for i := range n {
		outputs = append(outputs, fmt.Appendf(nil, `{"_type":"item","_key":"f%d"}`, i))
	}
	settleWith(t, j, outputs...)
}

// settleWith adds raw records to the job's stream.
func settleWith(t *testing.T, j *job, outputs ...[]byte) {
	t.Helper()
	enqueue(t, j, "http://shop.example/flood")
	leases := testutil.Must(j.queue.Lease(t.Context(), "flood", 100))(t)
	for _, l := range leases {
		var v visit
		if err := json.Unmarshal(l.Payload, &v); err != nil || !strings.HasSuffix(v.URL, "/flood") {
			testutil.Ok(t, j.queue.Return(t.Context(), l))
			continue
		}
		testutil.Ok(t, j.crawler.leases.settle(t.Context(), l, workqueue.Done().With(nil, outputs...)))
	}
}

func TestFolderNameIsStable(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a", "b")
	first, err := record.FolderName(dir)
	if err != nil || first == "" {
		t.Fatalf("got %q, error %v, want a name", first, err)
	}
	if again, err := record.FolderName(dir); err != nil || again != first {
		t.Errorf("got %s, %v, want %s", again, err, first)
	}
	if other, err := record.FolderName(t.TempDir()); err != nil || other == first {
		t.Errorf("got %s, %v, want another name", other, err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("got %v, %v, want one file", left, err)
	}
}

// The type of a record in Redis cannot name a file in another directory.
func TestRecordCannotNameAnotherFile(t *testing.T) {
	t.Parallel()
	site := sitetest.NewShop(t, 1, 1)
	s := newWorker(t, redistest.New(t))
	j := begin(t, s, "j1", site.Definition(t, ""), ScrapeOptions{BaseURL: site.URL})
	elsewhere := filepath.Join(s.cfg.OutDir, "x.jsonl")
	record := testutil.Must(json.Marshal(map[string]string{"_type": "../../x", "_key": "k", "_url": "http://shop.example/"}))(t)
	settleWith(t, j, record)
	if _, err := s.recorder.Write(t.Context(), j.run); err == nil || !strings.Contains(err.Error(), "which is not in the definition") {
		t.Errorf("got %v, want an error that names the type", err)
	}
	j = begin(t, s, "j2", site.Definition(t, ""), ScrapeOptions{BaseURL: site.URL})
	settleWith(t, j, []byte(`{"_type": "_file", "_key": "../../x.jsonl", "_data": "eA=="}`))
	if _, err := s.recorder.Write(t.Context(), j.run); err == nil || !strings.Contains(err.Error(), "invalid file") {
		t.Errorf("got %v, want an error that names the file", err)
	}
	if _, err := os.Stat(elsewhere); err == nil {
		t.Errorf("got a file %s, want none", elsewhere)
	}
}

// A page with markup but without text is empty.
func TestEmptyPages(t *testing.T) {
	t.Parallel()
	site := sitetest.NewMeasured(t, 0, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			fmt.Fprint(w, "<a href=/item/1>item</a><a href=/item/2>item</a>")
			return
		}
		fmt.Fprint(w, `<html><head><title>x</title></head><body><div> </div><script>1</script></body></html>`)
	})
	sum := scrapeOn(t, 1, "site: empty\nbase_url: "+site.URL+"\nstart: [/]\nlisting: {links: a}\n"+sitetest.Impatient+"records: {item: {from: listing, each: a, fields: {name: a}}}\n")
	if got := sum.ByClass[fetch.Empty]; got != 2 {
		t.Errorf("got %d empty pages, want 2: %v", got, sum.ByClass)
	}
}

// A page whose canonical URL is another page of the job yields the record of that page. A canonical URL of a listing page, of a
// page outside the job or of another host is ignored; alternates in other languages are separate pages.
func TestCanonicalPagesCountOnce(t *testing.T) {
	t.Parallel()
	canonical := map[string]string{
		"/item/1": "/item/1", "/item/1?color=red": "/item/1", "/item/2?from=home": "/item/2#top", "/item/3": "/", "/item/4": "/item/99",
		"/en/item/5": "/en/item/5", "/de/item/5": "/de/item/5", "/item/6": "http://other.example/item/1", "/item/2": "",
	}
	site := sitetest.NewMeasured(t, 0, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			for path := range canonical {
				fmt.Fprintf(w, `<a href="%s">item</a>`, path)
			}
			return
		}
		fmt.Fprintf(w, `<head><link rel="canonical" href="%s"><link rel="alternate" hreflang="de" href="/de/item/5"></head><h1>Item</h1><p>%s</p>`, canonical[r.URL.RequestURI()], r.URL.RequestURI())
	})
	sum := scrapeOn(t, 1, "site: copies\nbase_url: "+site.URL+"\nstart: [/]\nlisting: {links: a}\n"+sitetest.Impatient+"records: {item: {fields: {name: h1, path: p}}}\n")
	if sum.Pages != 10 || sum.Records != 7 || sum.Duplicates != 2 {
		t.Errorf("got %d pages, %d records, %d copies; want 10, 7, 2: %+v", sum.Pages, sum.Records, sum.Duplicates, sum)
	}
}
