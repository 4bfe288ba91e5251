//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"muster/tasks"
	"muster/tasks/taskstest"
	"muster/tasks/workqueue"
)

// load sends work at a constant rate and records the expected results.
type load struct {
	s      *system
	rate   int // workflows a minute
	queue  *workqueue.Queue
	ctx    context.Context // context of the senders of a quarter
	stop   context.CancelFunc
	active sync.WaitGroup // running senders

	mu       sync.Mutex // guards the fields below
	n        int        // sequence number of sent work
	books    map[string]*book
	items    map[string]string   // open items with their expected final states
	jobs     map[string]*sentJob // open jobs; only the audit uses the sentJobs
	known    map[string]bool     // all jobs, including finished ones, which a command may return after joining them
	flows    map[string]bool     // open workflows
	repeated map[string]bool     // workflows listed as finished twice
	pages    []context.CancelFunc
	stale    []string // items to forget
	found    []string // first problems
	lost     int      // number of further problems
}

// book contains the counts of a kind of work.
type book struct {
	Kind  string `json:"kind"`
	Sent  int    `json:"sent"`
	Ended int    `json:"ended"`
	Wrong int    `json:"wrong"`
}

// The kinds of work in the order of the report.
const (
	kindFlow   = "workflows"
	kindItem   = "items"
	kindJob    = "jobs of agents"
	kindScrape = "scrapes"
	kindTick   = "ticks"
)

var kinds = []string{kindFlow, kindItem, kindJob, kindScrape, kindTick}

// newLoad returns the load of a run, which continues with the sequence number and the accounts of r.
func newLoad(s *system, r *report) *load {
	l := &load{
		s: s, rate: r.Rate, n: r.Sequence, queue: workqueue.New(s.client.Redis(), queueName, workqueue.Config{}), stop: func() {},
		books: map[string]*book{}, items: map[string]string{}, jobs: map[string]*sentJob{}, known: map[string]bool{}, flows: map[string]bool{}, repeated: map[string]bool{},
	}
	for _, k := range kinds {
		l.books[k] = &book{Kind: k}
	}
	for _, b := range r.Accounts {
		l.books[b.Kind] = &b
	}
	s.cutPages = l.cutPages
	return l
}

// start starts sending, until drain.
func (l *load) start(ctx context.Context) {
	l.ctx, l.stop = context.WithCancel(ctx)
	if err := l.s.client.Schedules().Resume(ctx, tickName); err != nil {
		l.problem("resume the schedule: " + err.Error())
	}
	minute := time.Minute / time.Duration(l.rate)
	l.every(minute, l.sendFlow)
	l.every(20*minute, l.sendItems)
	l.every(10*minute, l.sendJob)
	l.every(60*minute, l.sendScrape)
	for _, path := range []string{"/ui/", "/ui/jobs", "/ui/tasks/", "/v1/events", "/v1/events"} {
		l.active.Go(func() { l.page(path) })
	}
}

// every calls send at an interval. It repeats a failed call with the same number.
func (l *load) every(d time.Duration, send func(n int) error) {
	l.active.Go(func() {
		for l.ctx.Err() == nil {
			l.mu.Lock()
			l.n++
			n := l.n
			l.mu.Unlock()
			next := time.Now().Add(d)
			for send(n) != nil && l.ctx.Err() == nil { // repeated after a fault, because the work has an ID
				l.pause(l.ctx, time.Second)
			}
			l.pause(l.ctx, time.Until(next))
		}
	})
}

// pause waits for d, or until ctx is done.
func (l *load) pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// sent, finished and problem update the books.
func (l *load) sent(kind string, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.books[kind].Sent += n
}

func (l *load) finished(kind, wrong string) {
	l.mu.Lock()
	l.books[kind].Ended++
	if wrong != "" {
		l.books[kind].Wrong++
	}
	l.mu.Unlock()
	if wrong != "" {
		l.problem(kind + ": " + wrong)
	}
}

func (l *load) problem(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.found) < 50 {
		l.found = append(l.found, time.Now().UTC().Format("15:04:05 ")+text)
	} else {
		l.lost++
	}
}

func (l *load) problems() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost > 0 {
		return append(l.found, fmt.Sprintf("and %d more", l.lost))
	}
	return l.found
}

func (l *load) account() []book {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []book
	for _, k := range kinds {
		all = append(all, *l.books[k])
	}
	return all
}

// sendFlow sends a workflow, every fourth by the outbox, and starts a goroutine that waits for its result.
func (l *load) sendFlow(n int) error {
	f := taskstest.NewRandom(uint64(n))
	id := fmt.Sprint("soak-", n)
	run, options := tasks.Attach[int](l.s.client, id), []tasks.SendOption{tasks.ID(id), tasks.Retention(flowRetention)}
	var err error
	if n%4 == 0 {
		err = l.addToOutbox(f, options...)
	} else {
		_, err = f.Send(l.ctx, l.s.client, options...)
	}
	if err != nil && !errors.Is(err, tasks.ErrDuplicate) { // otherwise an earlier attempt succeeded, but its reply was lost
		return err
	}
	l.sent(kindFlow, 1)
	l.mu.Lock()
	l.flows[id] = true
	l.mu.Unlock()
	go func() { // returns when the workflow finishes, or after drainLimit
		ctx, cancel := context.WithTimeout(context.WithoutCancel(l.ctx), drainLimit)
		defer cancel()
		got, err := run.Wait(ctx)
		all := run.WaitAll(ctx)
		for ctx.Err() == nil && (errors.Is(err, tasks.ErrNotFound) || tasks.Unavailable(err) || tasks.Unavailable(all)) { // in the outbox, or a fault
			l.pause(ctx, 200*time.Millisecond)
			got, err = run.Wait(ctx)
			all = run.WaitAll(ctx)
		}
		wrong := f.Differs(got, err)
		if wrong == "" && all != nil {
			wrong = all.Error()
		}
		l.finished(kindFlow, wrong)
		l.mu.Lock()
		delete(l.flows, id)
		l.mu.Unlock()
	}()
	return nil
}

// flowRetention is the retention of workflow results, auditSince the time range of the audit.
const (
	flowRetention = 2 * time.Minute
	auditSince    = 100 * time.Second
)

// sendItems imports a file of items into the work queue with the CLI.
func (l *load) sendItems(n int) error {
	var lines bytes.Buffer
	want := map[string]string{}
	for i := range 10 {
		id := fmt.Sprintf("item-%d-%d", n, i)
		url, state := l.s.artifacts.artifact(id, i)
		want[id] = state
		fmt.Fprintf(&lines, "{\"id\":%q,\"url\":%q}\n", id, url)
	}
	file := filepath.Join(l.s.dir, "import.jsonl")
	if err := os.WriteFile(file, lines.Bytes(), 0o600); err != nil {
		return err
	}
	if _, err := l.s.cli(l.ctx, "queue", "import", file, "--queue", queueName); err != nil {
		return err
	}
	l.sent(kindItem, len(want))
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, state := range want {
		l.items[id] = state
	}
	return nil
}

// sendJob creates a job for the agents. Every second job has a document.
func (l *load) sendJob(n int) error {
	const sentences = 50
	var text bytes.Buffer
	for i := range sentences {
		if i%3 == 2 {
			fmt.Fprintf(&text, "Sentence %d of %d is only a remark.\n\n", i, n)
		} else {
			fmt.Fprintf(&text, "The part %d of %d must be there.\n\n", i, n)
		}
	}
	var form bytes.Buffer
	w := multipart.NewWriter(&form)
	var err error
	if n%2 == 0 {
		err = w.WriteField("prompt", text.String())
	} else {
		part, ferr := w.CreateFormFile("document", "text.txt")
		if ferr == nil {
			_, ferr = part.Write(text.Bytes())
		}
		err = errors.Join(ferr, w.WriteField("prompt", "List the requirements"))
	}
	if err := errors.Join(err, w.Close()); err != nil {
		return err
	}
	var j struct{ ID string }
	key := fmt.Sprint("soak-", n)
	if err := l.s.send(l.ctx, http.MethodPost, "/v1/jobs", w.FormDataContentType(), form.Bytes(), &j, "Idempotency-Key", key); err != nil {
		return err
	}
	l.addJob(j.ID, sentJob{kind: kindJob, items: sentences})
	return nil
}

// sendScrape sends the scrape of a site with the CLI. It joins a running scrape.
func (l *load) sendScrape(n int) error {
	site := l.s.world.Sites()[n%2]
	out, err := l.s.cli(l.ctx, "scrape", site.Name, "--json")
	if err != nil {
		return err
	}
	var jobs map[string]json.RawMessage
	var id string
	if err := json.Unmarshal(out, &jobs); err != nil {
		return err
	}
	if json.Unmarshal(jobs[site.Name], &id) == nil { // otherwise no worker was running: the command scraped, and findScrapes adds the job
		l.addJob(id, sentJob{kind: kindScrape})
	}
	return nil
}

// page polls a page or reads an event stream like a browser, and reconnects when it closes.
func (l *load) page(path string) {
	for l.ctx.Err() == nil {
		ctx, cancel := context.WithCancel(l.ctx)
		l.mu.Lock()
		l.pages = append(l.pages, cancel)
		l.mu.Unlock()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, l.s.url+path, nil)
		if err == nil {
			req.Header.Set("Accept", "text/event-stream")
			req.Header.Set("If-None-Match", "none")
			var resp *http.Response
			if resp, err = l.s.streams.Do(req); err == nil {
				_, _ = io.Copy(io.Discard, resp.Body) // returns on a fault or at the end of the load
				_ = resp.Body.Close()
			}
		}
		cancel()
		l.pause(l.ctx, time.Second)
	}
}

// cutPages closes the open streams.
func (l *load) cutPages() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, cancel := range l.pages {
		cancel()
	}
	l.pages = nil
}

// drainLimit is the time within which sent work must finish.
const drainLimit = 4 * time.Minute

// drain stops the load and waits until all sent work has finished.
func (l *load) drain() error {
	l.stop()
	l.active.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), drainLimit)
	defer cancel()
	if err := l.s.client.Schedules().Pause(ctx, tickName); err != nil {
		return err
	}
	for {
		live := l.audit(ctx)
		if live == "" {
			return nil
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return fmt.Errorf("unfinished after a drain of %s: %s", drainLimit, live)
		}
	}
}

// listedJob contains the required fields of a job or scrape.
type listedJob struct {
	ID, Name, Site, Status string
	Error                  string `json:"error_message"`
	Items                  struct{ Total, Integrated, Rejected, Failed int }
}

func (j listedJob) finished() bool {
	return slices.Contains([]string{"completed", "failed", "cancelled", "COMPLETE", "INCOMPLETE", "FAILED", "CANCELED"}, j.Status)
}
