package jobs_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/jobs"
	"muster/tasks"
)

// Failed items are listed without reading the others, and reviews are listed across all jobs.
func TestFailuresAndReviews(t *testing.T) {
	both(t, nil, func(t *testing.T, w *world) {
		fail := func(id string, n int) {
			for i := range n {
				work := w.take("validator", "v1")
				if work.JobID != id {
					t.Fatalf("got work of job %s, want of %s", work.JobID, id)
				}
				testutil.Ok(t, w.Fail(w.ctx, work, fmt.Errorf("unclear %d", i), 0, true))
			}
		}
		first := w.create(jobs.Request{Pipeline: "review"})
		w.emit("a", "b", "c")
		fail(first.ID, 2)
		second := w.create(jobs.Request{Pipeline: "review", Prompt: "another", Priority: 100})
		w.emit("d")
		fail(second.ID, 1)

		got, err := w.Reviews(w.ctx, 10)
		if err != nil || len(got.Items) != 3 || got.More || got.Items[0].JobID != first.ID || got.Items[2].Key != "d" || got.Items[0].Status != jobs.ItemReview {
			t.Fatalf("got %+v, %v, want two items of the first job and one of the second", got, err)
		}
		if items, jobs, err := w.InReview(w.ctx); err != nil || items != 3 || jobs != 2 {
			t.Errorf("got %d items of %d jobs, %v, want 3 of 2", items, jobs, err)
		}
		if got, err := w.Reviews(w.ctx, 1); err != nil || len(got.Items) != 1 || !got.More {
			t.Errorf("got %+v, %v, want one item and more", got, err)
		}
		page, next, err := w.Failures(w.ctx, first.ID, jobs.ItemReview, 0, 1)
		if err != nil || len(page) != 1 || next != 1 {
			t.Errorf("got %+v, %d, %v, want one item, and that others follow", page, next, err)
		}
		if page, next, err = w.Failures(w.ctx, first.ID, jobs.ItemFailed, 0, 10); err != nil || len(page) != 0 || next != 0 {
			t.Errorf("got %+v, %d, %v, want none: they wait for a decision", page, next, err)
		}
		errs, err := w.LastErrors(w.ctx, first.ID, 10)
		if err != nil || len(errs) != 2 {
			t.Fatalf("got %+v, %v, want two errors", errs, err)
		}
		if texts := errs[0].Error + errs[1].Error; texts != "unclear 1unclear 0" && texts != "unclear 0unclear 1" { // of one ms
			t.Errorf("got %q", texts)
		}
		endReviews(w, first.ID, second.ID)
	})
}

// endReviews checks that a decision removes an item, and the end of a job all of them.
func endReviews(w *world, first, second string) {
	w.t.Helper()
	testutil.Must(w.Decide(w.ctx, second, "d", jobs.Decision{Accept: true}))(w.t)
	w.until(second, jobs.Completed)
	if _, _, err := w.Cancel(w.ctx, first, false); err != nil {
		w.t.Fatal(err)
	}
	w.until(first, jobs.Cancelled)
	if got, err := w.Reviews(w.ctx, 10); err != nil || len(got.Items) != 0 {
		w.t.Errorf("got %+v, %v, want none", got, err)
	}
	testutil.Eventually(w.t, "jobs that have ended leave the list", func() bool {
		return w.client.Redis().ZCard(w.ctx, "muster:{jobs}:reviews").Val() == 0
	})
}

// A sweep lists the jobs whose items wait, if that was missed, and no others.
func TestSweepListsReviews(t *testing.T) {
	both(t, nil, func(t *testing.T, w *world) {
		j := w.create(jobs.Request{Pipeline: "review"})
		w.emit("a", "b")
		testutil.Ok(t, w.Fail(w.ctx, w.take("validator", "v1"), fmt.Errorf("unclear"), 0, true))
		list := func() []string {
			testutil.Ok(t, w.Sweep(w.ctx))
			return w.client.Redis().ZRange(w.ctx, "muster:{jobs}:reviews", 0, -1).Val()
		}
		testutil.Ok(t, w.client.Redis().Del(w.ctx, "muster:{jobs}:reviews").Err())
		if got := list(); len(got) != 1 || got[0] != j.ID {
			t.Errorf("got %v, want the job", got)
		}
		got, err := w.Reviews(w.ctx, 10)
		if err != nil || len(got.Items) != 1 {
			t.Fatalf("got %+v, %v, want an item", got, err)
		}
		testutil.Must(w.Decide(w.ctx, j.ID, got.Items[0].Key, jobs.Decision{Accept: true}))(t)
		if got := list(); len(got) != 0 {
			t.Errorf("got %v, want none", got)
		}
	})
}

// commands counts round trips to Redis, and records those that read a whole record, prompt or context.
type commands struct {
	trips atomic.Int64
	read  func()     // called before records are read, if it is set
	mu    sync.Mutex // guards whole
	whole []string
}

func (c *commands) note(_ context.Context, next func() error, cmds ...redis.Cmder) error {
	c.trips.Add(1)
	if c.read != nil && cmds[0].Name() == "hgetall" {
		c.read()
	}
	for _, cmd := range cmds {
		key := fmt.Sprint(append(cmd.Args(), "")[1])
		if cmd.Name() == "hgetall" && strings.HasPrefix(key, "muster:{jobs}:j:") || strings.Contains(key, ":prompt:") || strings.Contains(key, ":ctx:") {
			c.mu.Lock()
			c.whole = append(c.whole, cmd.Name()+" "+key)
			c.mu.Unlock()
		}
	}
	return next()
}

// newReader returns a world, and a service on the same Redis with its own client, whose commands are counted.
func newReader(t *testing.T) (*world, *jobs.Service, *commands) {
	t.Helper()
	options := testutil.Must(redis.ParseURL(redistest.URL(t)))(t)
	w := newWorld(t, redis.NewClient(options), nil)
	rdb := redis.NewClient(options)
	client := tasks.NewClient(rdb)
	t.Cleanup(func() { _ = client.Close() })
	reader := testutil.Must(jobs.New(jobs.Config{Client: client, Pipelines: named}))(t)
	c := &commands{}
	rdb.AddHook(redistest.Calls(c.note))
	return w, reader, c
}

// A call reads only the data that it returns: not the prompts and contexts of jobs, nor the records of skipped jobs.
func TestCallsReadWhatTheyReturn(t *testing.T) {
	t.Parallel()
	w, reader, c := newReader(t)
	large := strings.Repeat("x", jobs.MaxInline+1)
	var j jobs.Job
	for i := range 10 {
		j = w.create(jobs.Request{Pipeline: "review", Prompt: fmt.Sprint(i, large), Context: json.RawMessage(`{"n":"` + large + `"}`)})
		testutil.Ok(t, w.client.Redis().HSet(w.ctx, "muster:{jobs}:j:"+j.ID, "progressed", 1).Err())
	}
	w.emit("a")
	testutil.Ok(t, w.Fail(w.ctx, w.take("validator", "v"), errors.New("unclear"), 0, true))
	for name, row := range map[string]struct {
		call    func() error
		records int
	}{
		"Progress":       {func() error { _, err := reader.Progress(w.ctx, j.ID); return err }, 1},
		"Summary":        {func() error { _, err := reader.Summary(w.ctx, j.ID); return err }, 1},
		"Stuck":          {func() error { _, err := reader.Stuck(w.ctx); return err }, 10},
		"InReview":       {func() error { _, _, err := reader.InReview(w.ctx); return err }, 0},
		"List":           {func() error { _, err := reader.List(w.ctx, jobs.Filter{Limit: 2}); return err }, 2},
		"List at offset": {func() error { _, err := reader.List(w.ctx, jobs.Filter{Limit: 2, Offset: 7}); return err }, 2},
		"List two states": {func() error {
			_, err := reader.List(w.ctx, jobs.Filter{Limit: 2, Offset: 7, Statuses: []jobs.Status{jobs.Created, jobs.Processing}})
			return err
		}, 2},
		"List by name": {func() error {
			_, err := reader.List(w.ctx, jobs.Filter{Limit: 2, Label: "red", Name: "other"})
			return err
		}, 0},
	} {
		c.whole = nil
		if err := row.call(); err != nil || len(c.whole) > row.records {
			t.Errorf("%s: read %d whole values, %v, want at most %d: %v", name, len(c.whole), err, row.records, c.whole)
		}
	}
}

// A list reads its jobs in a few round trips, however many they are, and omits a job that is deleted meanwhile.
func TestListTakesFewRoundTrips(t *testing.T) {
	t.Parallel()
	w, reader, c := newReader(t)
	var last jobs.Job
	for range 30 {
		last = w.create(jobs.Request{})
	}
	testutil.Must(reader.List(w.ctx, jobs.Filter{}))(t) // reads the pipeline, too
	c.trips.Store(0)
	page, err := reader.List(w.ctx, jobs.Filter{})
	if n := c.trips.Load(); err != nil || len(page.Jobs) != 30 || page.Total != 30 || n > 4 {
		t.Errorf("got %d of %d jobs in %d round trips, %v, want all in 4", len(page.Jobs), page.Total, n, err)
	}
	c.read = func() { testutil.Ok(t, w.client.Redis().Del(w.ctx, "muster:{jobs}:j:"+last.ID).Err()) }
	if page, err = reader.List(w.ctx, jobs.Filter{}); err != nil || len(page.Jobs) != 29 {
		t.Errorf("got %d jobs, %v, want all but the deleted one", len(page.Jobs), err)
	}
}
