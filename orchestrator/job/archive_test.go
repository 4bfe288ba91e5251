package job_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/orchestrator/job"
	"muster/orchestrator/store"
	"muster/tasks/redistest"
)

// copyJob restores a job of one service in another, through JSON as a backup does.
func copyJob(ctx context.Context, t *testing.T, from, to *world, id string, opts job.RestoreOptions) error {
	t.Helper()
	saved, err := job.NewArchive(from.Service).Read(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	var items []job.SavedItem
	if err := job.NewArchive(from.Service).Items(ctx, id, func(it job.SavedItem) error { items = append(items, it); return nil }); err != nil {
		t.Fatal(err)
	}
	through(t, &saved)
	through(t, &items)
	return store.New(to.client.Redis(), nil, nil).Hold(ctx, "testing", func(ctx context.Context, lock *store.Lock) error {
		if err := lock.Claim(ctx, job.Slot); err != nil {
			return err
		}
		opts.Lock = lock
		v, err := job.NewArchive(to.Service).Restore(ctx, saved, opts)
		if err != nil {
			return err
		}
		if len(items) > 0 {
			if err := v.Add(ctx, items...); err != nil {
				return err
			}
		}
		return v.Commit(ctx)
	})
}

// through writes a value as JSON and reads it back.
func through[T any](t *testing.T, v *T) {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var back T
	if err := json.Unmarshal(raw, &back); err != nil {
		t.Fatalf("%v in %s", err, raw)
	}
	*v = back
}

// two runs a test with two services, each on a Redis of its own.
func two(t *testing.T, test func(from, to *world)) {
	t.Parallel()
	for name, mini := range map[string]bool{"redis": false, "miniredis": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			open := redistest.New
			if mini {
				open = redistest.Mini
			}
			test(newWorld(t, open(t), nil), newWorld(t, open(t), nil))
		})
	}
}

// whole is a job with its items, for comparison.
func (w *world) whole(id string) (job.Job, map[string]job.Item) {
	w.t.Helper()
	j, err := w.Get(w.ctx, id)
	if err != nil {
		w.t.Fatal(err)
	}
	items := map[string]job.Item{}
	if err := w.EachItem(w.ctx, id, func(it job.Item) error { items[it.Key] = it; return nil }); err != nil {
		w.t.Fatal(err)
	}
	return j, items
}

func TestEndedJobComesBackAsItWas(t *testing.T) {
	two(t, func(from, to *world) {
		doc := &job.Document{Name: "a <b>.txt", Hash: strings.Repeat("a", 64), Size: 1}
		j := from.create(job.Request{Document: doc, Labels: []string{"red"}, Context: []byte(`{"customer":"<acme> & co","n":1e3}`), Prompt: "Wörk\n<it>"})
		from.emit("one", "two", "three")
		for i := range int64(4) {
			work := from.take("validator", "v1")
			if err := from.SetUsage(from.ctx, j.ID, map[string]map[string]int64{"v1": {"tokens": 7 * (i + 1), "items": i + 1}}); err != nil {
				t.Fatal(err)
			}
			switch {
			case work.Key == "one":
				from.complete(work, job.Answer{Verdict: "reject", Reason: "it is <bad>"})
			case work.Key == "two":
				if err := from.Fail(from.ctx, work, errors.New("broken"), 0, true); err != nil {
					t.Fatal(err)
				}
			default:
				from.complete(work, job.Answer{Patch: []byte(`{"external_id":"x-1","citations":["<c>"]}`)})
			}
		}
		from.until(j.ID, job.Completed)
		if err := copyJob(from.ctx, t, from, to, j.ID, job.RestoreOptions{}); err != nil {
			t.Fatal(err)
		}
		wantJob, wantItems := from.whole(j.ID)
		gotJob, gotItems := to.whole(j.ID)
		if !reflect.DeepEqual(gotJob, wantJob) {
			t.Errorf("job:\ngot  %+v\nwant %+v", gotJob, wantJob)
		}
		if !reflect.DeepEqual(gotItems, wantItems) {
			t.Errorf("items:\ngot  %+v\nwant %+v", gotItems, wantItems)
		}
		sameList(t, "events", to.types(j.ID), from.types(j.ID))
		for name, f := range map[string]job.Filter{
			"context": {Context: map[string]string{"customer": "<acme> & co"}}, "label": {Label: "red"}, "state": {Statuses: []job.Status{job.Completed}},
		} {
			if page, err := to.List(to.ctx, f); err != nil || len(page.Jobs) != 1 {
				t.Errorf("by %s: got %d jobs, %v, want 1", name, len(page.Jobs), err)
			}
		}
		if has, err := to.HasDocument(to.ctx, doc.Hash); err != nil || !has {
			t.Errorf("document: got %v, %v, want that the job has it", has, err)
		}
		if err := to.Sweep(to.ctx); err != nil {
			t.Fatal(err)
		}
		if again, _ := to.whole(j.ID); !reflect.DeepEqual(again, wantJob) {
			t.Errorf("after a sweep:\ngot  %+v\nwant %+v", again, wantJob)
		}
		if err := to.Delete(to.ctx, j.ID); err != nil {
			t.Error(err)
		}
		if left := keysOf(t, to.client.Redis(), j.ID); len(left) > 0 {
			t.Errorf("got the keys %v, want none after it was deleted", left)
		}
	})
}

// A job that had not ended continues where its items are, however far it was.
func TestOpenJobContinuesWhereItWas(t *testing.T) {
	two(t, func(from, to *world) {
		j := from.create(job.Request{Prompt: "continue"})
		next := from.create(job.Request{After: []string{j.ID}})
		from.emit("one", "two", "three")
		from.complete(from.take("validator", "v"), job.Answer{})
		held := from.take("validator", "v") // its lease ends with the Redis
		used := func(w *world, tokens int64) {
			if err := w.SetUsage(w.ctx, j.ID, map[string]map[string]int64{"v": {"tokens": tokens}}); err != nil {
				t.Fatal(err)
			}
		}
		used(from, 5)
		for _, id := range []string{j.ID, next.ID} {
			if err := copyJob(from.ctx, t, from, to, id, job.RestoreOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		seen := map[string]bool{}
		for range 2 {
			work := to.take("validator", "w")
			seen[work.Key] = true
			to.complete(work, job.Answer{})
		}
		if len(seen) != 2 || !seen[held.Key] {
			t.Errorf("got the items %v, want %q and the one that waited", seen, held.Key)
		}
		used(to, 2) // totals begin anew on another Redis
		got := to.until(j.ID, job.Completed)
		if got.Usage["tokens"] != 7 || got.AgentUsage["v"]["tokens"] != 7 {
			t.Errorf("got the usage %v, by agent %v, want 7 tokens", got.Usage, got.AgentUsage)
		}
		testutil.Eventually(t, "3 integrated items", func() bool { // counted after the end
			n := to.numbers().Items
			return n[job.ItemIntegrated] == 3 && n[job.ItemPending] == 0
		})
		if got.Items.Integrated != 3 || !got.CreatedAt.Equal(j.CreatedAt) {
			t.Errorf("got %+v, want three items, created as before", got)
		}
		to.until(next.ID, job.Processing)
		to.emit()
		to.until(next.ID, job.Completed)
	})
}

func TestScheduleComesBack(t *testing.T) {
	two(t, func(from, to *world) {
		j := from.create(job.Request{Cron: "@hourly"})
		if err := copyJob(from.ctx, t, from, to, j.ID, job.RestoreOptions{}); err != nil {
			t.Fatal(err)
		}
		want, err := from.client.Redis().ZScore(from.ctx, "muster:{jobs}:cron", j.ID).Result()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := to.client.Redis().ZScore(to.ctx, "muster:{jobs}:cron", j.ID).Result(); err != nil || got < want {
			t.Errorf("next time: got %v, %v, want %v or later", got, err, want)
		}
	})
}

// The time from the backup to the import does not count for the time-out of a job.
func TestTimeSinceTheBackupDoesNotCount(t *testing.T) {
	two(t, func(from, to *world) {
		j := from.create(job.Request{})
		if err := copyJob(from.ctx, t, from, to, j.ID, job.RestoreOptions{Away: 1000 * time.Hour}); err != nil {
			t.Fatal(err)
		}
		if got, err := to.Get(to.ctx, j.ID); err != nil || got.Timeout != 1168*time.Hour {
			t.Errorf("got a time-out of %v, %v, want 1168h", got.Timeout, err)
		}
	})
}

func TestJobsThatExistAreKept(t *testing.T) {
	two(t, func(from, to *world) {
		j := from.create(job.Request{Prompt: "first"})
		if err := copyJob(from.ctx, t, from, to, j.ID, job.RestoreOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := copyJob(from.ctx, t, from, to, j.ID, job.RestoreOptions{}); !errors.Is(err, job.ErrKept) {
			t.Errorf("again: got %v, want %v", err, job.ErrKept)
		}
		if err := copyJob(from.ctx, t, from, to, j.ID, job.RestoreOptions{Replace: true}); !errors.Is(err, job.ErrRunning) {
			t.Errorf("replace an open one: got %v, want %v", err, job.ErrRunning)
		}
		to.until(j.ID, job.Processing)
		if _, err := to.Cancel(to.ctx, j.ID, false); err != nil {
			t.Fatal(err)
		}
		if err := copyJob(from.ctx, t, from, to, j.ID, job.RestoreOptions{Replace: true}); !errors.Is(err, job.ErrRan) {
			t.Errorf("run it again: got %v, want %v", err, job.ErrRan)
		}
		to.until(j.ID, job.Cancelled)
		from.emit("one")
		from.complete(from.take("validator", "v"), job.Answer{})
		from.until(j.ID, job.Completed)
		if err := copyJob(from.ctx, t, from, to, j.ID, job.RestoreOptions{Replace: true}); err != nil {
			t.Fatal(err)
		}
		want, wantItems := from.whole(j.ID)
		if got, gotItems := to.whole(j.ID); !reflect.DeepEqual(got, want) || !reflect.DeepEqual(gotItems, wantItems) {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
	})
}

// A job of another kind that ran has failed: what runs it is not in a backup.
func TestScrapeThatRanHasFailed(t *testing.T) {
	two(t, func(from, to *world) {
		if err := from.Track(from.ctx, "scrape_1", job.KindScrape, "shop", time.Now()); err != nil {
			t.Fatal(err)
		}
		if err := copyJob(from.ctx, t, from, to, "scrape_1", job.RestoreOptions{}); err != nil {
			t.Fatal(err)
		}
		if got, err := to.Get(to.ctx, "scrape_1"); err != nil || got.Status != job.Failed || !strings.Contains(got.ErrorMessage, "start it again") {
			t.Errorf("got %+v, %v, want that it has failed", got, err)
		}
	})
}

// Jobs that have ended come first, and each open one behind those that it comes after.
func TestEachReadsJobsInTheOrderOfTheirRestoring(t *testing.T) {
	t.Parallel()
	w := newWorld(t, redistest.New(t), nil)
	ids := map[string]string{}
	create := func(name string, after ...string) job.Job {
		var list []string
		for _, other := range after {
			list = append(list, ids[other])
		}
		j := w.create(job.Request{After: list, At: time.Now().Add(time.Hour)})
		ids[name] = j.ID
		return j
	}
	first := create("first")
	create("second")
	create("ended")
	if _, err := w.Cancel(w.ctx, ids["ended"], false); err != nil {
		t.Fatal(err)
	}
	create("third", "second", "ended")
	create("last")
	// An edit can make a job come after a newer one.
	if _, err := w.Edit(w.ctx, first.ID, first.Version, job.Edit{After: &[]string{ids["last"]}}); err != nil {
		t.Fatal(err)
	}
	for want, sel := range map[string]job.Selection{
		"[ended last first second third]": {},
		"[]":                              {Kind: job.KindScrape},
		"[last first second third]":       {Since: time.Now().Add(time.Hour)},
	} {
		var got []string
		if err := job.NewArchive(w.Service).Each(w.ctx, sel, func(id string) error {
			for name, known := range ids {
				if known == id {
					got = append(got, name)
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(got) != want {
			t.Errorf("%+v: got %v, want %s", sel, got, want)
		}
	}
}
