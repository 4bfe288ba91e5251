//go:build e2e && unix

package e2e

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
	"strings"
	"sync"
	"time"

	"muster/tasks"
	"muster/tasks/outbox"
	"muster/tasks/taskstest"
	"muster/tasks/tasktype"
	"muster/tasks/workqueue"
)

// load is work that is sent at a constant rate, and checked when it has finished.
type load struct {
	ctx    context.Context // context of the senders of a quarter
	stop   context.CancelFunc
	active sync.WaitGroup // running senders

	mu    sync.Mutex // guards pages and the report
	pages []context.CancelFunc
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

// startLoad starts sending, until drain.
func (s *soak) startLoad(ctx context.Context) {
	s.ctx, s.stop = context.WithCancel(ctx)
	s.active.Go(func() {
		_ = retry(s.ctx, func() error { return s.client.Schedules().Resume(s.ctx, tickName) })
	})
	minute := time.Minute / time.Duration(s.report.Rate)
	s.every(minute, s.sendFlow)
	s.every(20*minute, s.sendItems)
	s.every(10*minute, s.sendJob)
	s.every(60*minute, s.sendScrape)
	for _, path := range []string{"/ui/", "/ui/jobs", "/ui/tasks/", "/v1/events", "/v1/events"} {
		s.active.Go(func() { s.page(path) })
	}
}

// every calls send at an interval. It repeats a call that failed by a fault with the same number, which the work has as its ID.
func (s *soak) every(d time.Duration, send func(n int) error) {
	s.active.Go(func() {
		for s.ctx.Err() == nil {
			s.mu.Lock()
			s.report.Sequence++
			n := s.report.Sequence
			s.mu.Unlock()
			next := time.Now().Add(d)
			_ = retry(s.ctx, func() error { return send(n) })
			pause(s.ctx, time.Until(next))
		}
	})
}

// retry calls do each second until it succeeds or ctx is done.
func retry(ctx context.Context, do func() error) error {
	for {
		err := do()
		if err == nil || ctx.Err() != nil {
			return err
		}
		pause(ctx, time.Second)
	}
}

// account returns the book of a kind of work. The caller has locked s.mu.
func (s *soak) account(kind string) *book { return &s.report.Accounts[slices.Index(kinds, kind)] }

// problem reports a problem. The caller has locked s.mu.
func (s *soak) problem(text string) {
	s.report.Problems = append(s.report.Problems, time.Now().UTC().Format("15:04:05 ")+text)
}

// errUnfinished is the result of a check of work that has not finished.
var errUnfinished = errors.New("unfinished")

// expect counts n pieces of work as sent, and as finished when check has a result: no error, and what is wrong. Errors of faults are
// retried.
func (s *soak) expect(kind string, n int, check func(ctx context.Context) (wrong []string, err error)) {
	s.mu.Lock()
	s.account(kind).Sent += n
	s.mu.Unlock()
	ctx := s.t.Context()
	go func() { // returns when the work finishes, or at the end of the test
		var wrong []string
		err := retry(ctx, func() (err error) {
			wrong, err = check(ctx)
			return err
		})
		if err != nil {
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.account(kind).Ended += n
		s.account(kind).Wrong += len(wrong)
		for _, text := range wrong {
			s.problem(kind + ": " + text)
		}
	}()
}

// flowRetention is the retention of workflow results, auditSince the time range of the audit.
const (
	flowRetention = 2 * time.Minute
	auditSince    = 100 * time.Second
)

// sendFlow sends a workflow, every fourth by the outbox.
func (s *soak) sendFlow(n int) error {
	id := fmt.Sprint("soak-", n)
	one := sent{Random: taskstest.NewRandom(uint64(n)), run: tasks.Attach[int](s.client, id)}
	options := []tasks.SendOption{tasks.ID(id), tasks.Retention(flowRetention)}
	var err error
	if n%4 == 0 {
		err = s.addToOutbox(tasks.Sending{Work: one.Random, Options: options})
	} else {
		_, err = one.Send(s.ctx, s.client, options...)
	}
	if err != nil && !errors.Is(err, tasks.ErrDuplicate) { // otherwise an earlier attempt succeeded, but its reply was lost
		return err
	}
	s.expect(kindFlow, 1, func(ctx context.Context) ([]string, error) {
		limit, cancel := context.WithTimeout(ctx, drainLimit)
		defer cancel()
		switch err := one.wait(limit); {
		case err == nil:
			return nil, nil
		case limit.Err() == nil && (errors.Is(err, tasks.ErrNotFound) || tasks.Unavailable(err)): // in the outbox, or a fault
			return nil, err
		default:
			return []string{err.Error()}, nil
		}
	})
	return nil
}

// addToOutbox stores a workflow in the outbox of the database.
func (s *soak) addToOutbox(work tasks.Sending) error {
	tx, err := s.outbox.BeginTx(s.ctx, nil)
	if err != nil {
		return err
	}
	if _, err = outbox.Add(s.ctx, tx, work); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// sendItems imports a file of items into the work queue with the CLI. Finished items are forgotten.
func (s *soak) sendItems(n int) error {
	var lines bytes.Buffer
	want := map[string]workqueue.State{}
	var ids []string
	for i := range 10 {
		path, state := "good", workqueue.StateDone
		switch i {
		case 8:
			path, state = "private", workqueue.StateSkipped
		case 9:
			path, state = "gone", workqueue.StateError
		}
		id := fmt.Sprintf("item-%d-%d", n, i)
		ids, want[id] = append(ids, id), state
		fmt.Fprintf(&lines, "{\"id\":%q,\"url\":\"%s/%s/%s\"}\n", id, s.files, path, id)
	}
	file := filepath.Join(s.dir, "import.jsonl")
	if err := os.WriteFile(file, lines.Bytes(), 0o600); err != nil {
		return err
	}
	if _, err := s.command(s.ctx, "queue", "import", file, "--queue", queueName); err != nil {
		return err
	}
	s.expect(kindItem, len(ids), func(ctx context.Context) (wrong []string, err error) {
		items, err := s.queue.Get(ctx, ids...)
		if err != nil {
			return nil, err
		}
		states := map[string]workqueue.State{}
		for _, it := range items {
			states[it.ID] = it.State
		}
		for id, state := range want {
			switch got := states[id]; got {
			case state:
			case workqueue.StateQueued, workqueue.StateInProgress:
				return nil, errUnfinished
			default:
				wrong = append(wrong, fmt.Sprintf("%s is %q, want %s", id, got, state))
			}
		}
		return wrong, retry(ctx, func() error {
			_, err := s.queue.Forget(ctx, ids...)
			return err
		})
	})
	return nil
}

// sendJob creates a job for the agents. Every second job has a document. Finished jobs are deleted.
func (s *soak) sendJob(n int) error {
	const most = 50
	text := sentences(fmt.Sprint(n), most)
	var form bytes.Buffer
	w := multipart.NewWriter(&form)
	var err error
	if n%2 == 0 {
		err = w.WriteField("prompt", text)
	} else {
		part, ferr := w.CreateFormFile("document", "text.txt")
		if ferr == nil {
			_, ferr = io.WriteString(part, text)
		}
		err = errors.Join(ferr, w.WriteField("prompt", "List the requirements"))
	}
	if err := errors.Join(err, w.Close()); err != nil {
		return err
	}
	var made struct{ ID string }
	_, err = s.call(http.MethodPost, "/v1/jobs", form.Bytes(), &made, "Content-Type", w.FormDataContentType(), "Idempotency-Key", fmt.Sprint("soak-", n))
	if err != nil {
		return err
	}
	s.expect(kindJob, 1, func(ctx context.Context) (wrong []string, err error) {
		var j agentJob
		status, err := s.call(http.MethodGet, "/v1/jobs/"+made.ID, nil, &j)
		switch {
		case status == http.StatusNotFound:
			return []string{made.ID + " is missing"}, nil
		case err != nil:
			return nil, err
		case j.Status != "completed" && j.Status != "failed" && j.Status != "cancelled":
			return nil, errUnfinished
		case j.Status != "completed" || j.Items.Total != most || j.Items.Rejected != most/3 || j.Items.Integrated != most-most/3:
			wrong = append(wrong, fmt.Sprintf("%s is %s: %s, with %+v, want %d of which %d rejected", made.ID, j.Status, j.Error, j.Items, most, most/3))
		}
		return wrong, retry(ctx, func() error {
			status, err := s.call(http.MethodDelete, "/v1/jobs/"+made.ID, nil, nil)
			if status == http.StatusNotFound { // the reply of an earlier call was lost
				return nil
			}
			return err
		})
	})
	return nil
}

// sendScrape sends the scrape of one of the two sites with the CLI. It joins a running scrape.
func (s *soak) sendScrape(int) error {
	site := s.world.Sites()[s.accounts()[slices.Index(kinds, kindScrape)].Sent%2]
	out, err := s.command(s.ctx, "scrape", site.Name, "--json")
	if err != nil {
		return err
	}
	var jobs map[string]json.RawMessage
	var id string
	if err := json.Unmarshal(out, &jobs); err != nil {
		return err
	}
	if json.Unmarshal(jobs[site.Name], &id) == nil { // otherwise no worker was running: the command scraped, and the audit finds the scrape
		s.expectScrape(id)
	}
	return nil
}

// expectScrape expects the result of a scrape, once. The records of a correct one are removed.
func (s *soak) expectScrape(id string) {
	if !s.isNew(id) {
		return
	}
	s.expect(kindScrape, 1, func(context.Context) ([]string, error) {
		var j struct {
			Site, Status string
			Error        string `json:"error_message"`
		}
		status, err := s.call(http.MethodGet, "/v1/scrapes/"+id, nil, &j)
		switch {
		case status == http.StatusNotFound:
			return []string{id + " is missing"}, nil
		case err != nil:
			return nil, err
		case j.Status == "INCOMPLETE" || j.Status == "FAILED" || j.Status == "CANCELED":
			return []string{fmt.Sprintf("%s of %s is %s: %s", id, j.Site, j.Status, j.Error)}, nil
		case j.Status != "COMPLETE":
			return nil, errUnfinished
		}
		records := filepath.Join(s.dir, "data", "records", j.Site, id)
		files, err := filepath.Glob(filepath.Join(records, "*.jsonl"))
		files = slices.DeleteFunc(files, func(f string) bool { return filepath.Base(f) == "changes.jsonl" })
		for _, site := range s.world.Sites() {
			if site.Name == j.Site {
				err = errors.Join(err, site.CheckFiles(files...))
			}
		}
		if err == nil {
			err = os.RemoveAll(records)
		}
		if err != nil {
			return []string{fmt.Sprintf("%s in %v: %v", id, files, err)}, nil
		}
		return nil, nil
	})
}

// isNew reports whether this is the first call with an ID.
func (s *soak) isNew(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { s.report.Known[id] = true }()
	return !s.report.Known[id]
}

// page polls a page or reads an event stream like a browser, and reconnects when it closes.
func (s *soak) page(path string) {
	for ; s.ctx.Err() == nil; pause(s.ctx, time.Second) {
		ctx, cancel := context.WithCancel(s.ctx)
		s.mu.Lock()
		s.pages = append(s.pages, cancel)
		s.mu.Unlock()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path, nil)
		if err == nil {
			req.Header.Set("Accept", "text/event-stream")
			req.Header.Set("If-None-Match", "none")
			if resp, err := http.DefaultClient.Do(req); err == nil {
				_, _ = io.Copy(io.Discard, resp.Body) // returns on a fault or at the end of the load
				_ = resp.Body.Close()
			}
		}
		cancel()
	}
}

// cutPages closes the open streams.
func (s *soak) cutPages() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, cancel := range s.pages {
		cancel()
	}
	s.pages = nil
}

// drainLimit is the time within which sent work must finish.
const drainLimit = 4 * time.Minute

// drain stops the load and waits until all sent work has finished.
func (s *soak) drain() {
	s.stop()
	s.active.Wait()
	ctx, cancel := context.WithTimeout(s.t.Context(), drainLimit)
	defer cancel()
	err := retry(ctx, func() error {
		if err := s.client.Schedules().Pause(ctx, tickName); err != nil {
			return err
		}
		if err := s.audit(); err != nil {
			return err
		}
		for _, b := range s.accounts() {
			if b.Sent != b.Ended {
				return fmt.Errorf("%d of %d %s", b.Sent-b.Ended, b.Sent, b.Kind)
			}
		}
		return nil
	})
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.problem(fmt.Sprintf("unfinished after a drain of %s: %v", drainLimit, err))
	}
}

// accounts returns the books in the order of the report.
func (s *soak) accounts() []book {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.report.Accounts)
}

// audit checks what no single piece of work shows: scrapes whose IDs no command returned, because of a fault, the sums of the work
// queue, ticks, and workflows that are listed as finished twice.
func (s *soak) audit() error {
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	var scrapes struct{ Data []struct{ ID string } }
	if err := s.get("/v1/scrapes?limit=1000", &scrapes); err != nil {
		return err
	}
	for _, j := range scrapes.Data {
		s.expectScrape(j.ID)
	}
	stats, err := s.queue.Stats(ctx)
	if err != nil {
		return err
	}
	tick, err := s.client.Inspect().Schedule(ctx, tickName)
	if err != nil {
		return err
	}
	ran, err := s.client.Redis().SCard(ctx, ticksKey).Result()
	if err != nil {
		return err
	}
	seen, twice := map[string]bool{}, []string{}
	for cursor := ""; ; {
		page, next, err := s.client.Inspect().Workflows(ctx, tasktype.WorkflowFilter{After: time.Now().Add(-auditSince), Cursor: cursor, Limit: 1000})
		if err != nil {
			return err
		}
		for _, w := range page {
			if strings.HasPrefix(w.ID, "soak-") && !w.Ended.IsZero() {
				if seen[w.ID] && s.isNew(w.ID) {
					twice = append(twice, w.ID)
				}
				seen[w.ID] = true
			}
		}
		if cursor = next; cursor == "" {
			break
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.account(kindTick) // a tick that is sent again keeps the counts from becoming equal
	b.Sent, b.Ended = int(tick.Sent), int(ran)
	for _, id := range twice {
		s.problem(id + " is listed as finished twice")
	}
	if sum := stats.Queued + stats.InProgress + stats.Done + stats.Skipped + stats.Error; sum != stats.Total {
		s.problem(fmt.Sprintf("items: the states add up to %d, the total is %d", sum, stats.Total))
	}
	return nil
}
