package jobs_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/jobs"
	"muster/jobs/pipeline"
)

func TestBadRequestNamesItsField(t *testing.T) {
	both(t, nil, func(t *testing.T, w *world) {
		deep := strings.Repeat(`{"a":`, 10_000) + "1" + strings.Repeat("}", 10_000)
		for _, c := range []struct {
			req   jobs.Request
			field string
		}{
			{jobs.Request{Prompt: " \n"}, "prompt"},
			{jobs.Request{Prompt: "a\x00b"}, "prompt"},
			{jobs.Request{Prompt: "a\xff"}, "prompt"},
			{jobs.Request{Prompt: strings.Repeat("x", jobs.MaxPrompt+1)}, "prompt"},
			{jobs.Request{Prompt: "x", Pipeline: "none"}, "pipeline"},
			{jobs.Request{Prompt: "x", Context: json.RawMessage(`[]`)}, "context"},
			{jobs.Request{Prompt: "x", Context: json.RawMessage(`null`)}, "context"},
			{jobs.Request{Prompt: "x", Context: json.RawMessage(`{"a"`)}, "context"},
			{jobs.Request{Prompt: "x", Context: json.RawMessage(deep)}, "context"},
			{jobs.Request{Prompt: "x", Context: json.RawMessage(`{"a":"` + strings.Repeat("x", 10<<20) + `"}`)}, "context"},
			{jobs.Request{Prompt: "x", Priority: 101}, "priority"},
			{jobs.Request{Prompt: "x", Labels: []string{""}}, "labels"},
			{jobs.Request{Prompt: "x", Labels: make([]string, 21)}, "labels"},
			{jobs.Request{Prompt: "x", After: []string{"no such job"}}, "after"},
			{jobs.Request{Prompt: "x", After: []string{"nosuchjob"}}, "after"},
			{jobs.Request{Prompt: "x", OnFailure: "explode"}, "on_failure"},
			{jobs.Request{Prompt: "x", Dedupe: "maybe"}, "dedupe"},
			{jobs.Request{Prompt: "x", StuckAfter: time.Millisecond}, "stuck_after"},
			{jobs.Request{Prompt: "x", VersionOf: "nosuchjob"}, "version_of"},
			{jobs.Request{Prompt: "x", IdempotencyKey: strings.Repeat("k", 201)}, "Idempotency-Key"},
		} {
			_, _, err := w.Create(w.ctx, c.req)
			var field *jobs.FieldError
			if !errors.As(err, &field) || field.Field != c.field {
				t.Errorf("create %.60q: got error %.200v, want one of field %s", c.req.Prompt, err, c.field)
			}
		}
		if page, err := w.List(w.ctx, jobs.Filter{}); err != nil || page.Total != 0 {
			t.Errorf("jobs after bad requests: got %d, %v; want none", page.Total, err)
		}
	})
}

func TestBadAnswerNamesItsField(t *testing.T) {
	both(t, nil, func(t *testing.T, w *world) {
		w.create(jobs.Request{})
		first := w.take("creator", "c")
		half := 1.5
		for _, c := range []struct {
			items []jobs.NewItem
			field string
		}{
			{[]jobs.NewItem{{Text: "x"}}, "items[0].key"},
			{[]jobs.NewItem{{Key: ".", Text: "x"}}, "items[0].key"},
			{[]jobs.NewItem{{Key: "..", Text: "x"}}, "items[0].key"},
			{[]jobs.NewItem{{Key: "k", Text: "x"}, {Key: "a\nb", Text: "x"}}, "items[1].key"},
			{[]jobs.NewItem{{Key: "k"}}, "items[0].text"},
			{[]jobs.NewItem{{Key: "k", Text: "x\x00"}}, "items[0].text"},
			{[]jobs.NewItem{{Key: "k", Text: strings.Repeat("x", jobs.MaxItem+1)}}, "items[0].text"},
			{[]jobs.NewItem{{Key: "k", Text: "x", Labels: map[string]bool{"hipaa": true}}}, "items[0].labels"},
			{[]jobs.NewItem{{Key: "k", Text: "x", Priority: "urgent"}}, "items[0].priority"},
			{[]jobs.NewItem{{Key: "k", Text: "x", Confidence: &half}}, "items[0].confidence_score"},
			{[]jobs.NewItem{{Key: "k", Text: "x", Citations: []string{"ok", "\xff"}}}, "items[0].citations[1]"},
			{make([]jobs.NewItem, jobs.MaxItems+1), "items"},
		} {
			_, err := w.Add(w.ctx, first, c.items)
			var field *jobs.FieldError
			if !errors.As(err, &field) || field.Field != c.field {
				t.Errorf("add: got error %.200v, want one of field %s", err, c.field)
			}
		}
		w.complete(first, jobs.Answer{Items: items("a")})
		item := w.take("validator", "v")
		for _, c := range []struct {
			answer jobs.Answer
			field  string
		}{
			{jobs.Answer{Verdict: "maybe"}, "verdict"},
			{jobs.Answer{Verdict: "reject"}, "reason"},
			{jobs.Answer{Items: items("b")}, "items"},
			{jobs.Answer{Patch: json.RawMessage(`<html>`)}, "item"},
			{jobs.Answer{Patch: json.RawMessage(`{"confidence_score": 7}`)}, "item.confidence_score"},
			{jobs.Answer{Patch: json.RawMessage(`{"labels": {"hipaa": true}}`)}, "item.labels"},
			{jobs.Answer{Patch: json.RawMessage(`{"citations": "none"}`)}, "item"},
		} {
			err := w.Complete(w.ctx, item, c.answer)
			var field *jobs.FieldError
			if !errors.As(err, &field) || field.Field != c.field {
				t.Errorf("complete %+v: got error %v, want one of field %s", c.answer, err, c.field)
			}
		}
		w.complete(item, jobs.Answer{}) // it still holds its lease
	})
}

func TestSameWorkIsOneJob(t *testing.T) {
	both(t, func(c *jobs.Config) { c.Dedupe = jobs.DedupeJoin }, func(t *testing.T, w *world) {
		doc := &jobs.Document{Name: "a.pdf", Hash: "h1", Size: 3}
		req := jobs.Request{Prompt: "p", Document: doc, Context: json.RawMessage(`{"b": 1, "a": [2]}`)}
		first := w.create(req)
		again := req
		again.Context = json.RawMessage(`{"a":[2],"b":1}`)
		again.Document = &jobs.Document{Name: "copy.pdf", Hash: "h1", Size: 3}
		if j, created, err := w.Create(w.ctx, again); err != nil || created || j.ID != first.ID {
			t.Errorf("the same work: got job %s, created %v, %v; want %s", j.ID, created, err, first.ID)
		}
		again.Dedupe = jobs.DedupeReject
		if _, _, err := w.Create(w.ctx, again); !errors.Is(err, jobs.ErrExists) {
			t.Errorf("the same work with reject: %v, want %v", err, jobs.ErrExists)
		}
		again.Dedupe = jobs.DedupeAllow
		if j, created, err := w.Create(w.ctx, again); err != nil || !created || j.ID == first.ID {
			t.Errorf("the same work with allow: %s, %v, %v", j.ID, created, err)
		}
		other := req
		other.Document = &jobs.Document{Name: "a.pdf", Hash: "h2", Size: 3}
		if j, created, err := w.Create(w.ctx, other); err != nil || !created || j.ID == first.ID {
			t.Errorf("another document: %s, %v, %v", j.ID, created, err)
		}
		if _, _, err := w.Cancel(w.ctx, w.create(jobs.Request{Prompt: "q"}).ID, false); err != nil {
			t.Fatal(err)
		}
		w.create(jobs.Request{Prompt: "q"}) // the one before was cancelled
	})
}

func TestIdempotencyKeyIsOneJob(t *testing.T) {
	both(t, nil, func(t *testing.T, w *world) {
		req := jobs.Request{Prompt: "p", IdempotencyKey: "k-1"}
		var created atomic.Int32
		ids := make([]string, 20)
		var all sync.WaitGroup
		for i := range ids {
			all.Go(func() {
				j, is, err := w.Create(w.ctx, req)
				if err != nil {
					t.Error(err)
				}
				if ids[i] = j.ID; is {
					created.Add(1)
				}
			})
		}
		all.Wait()
		if created.Load() != 1 {
			t.Errorf("created: got %d, want 1", created.Load())
		}
		for _, id := range ids {
			if id != ids[0] {
				t.Errorf("jobs of one key: got %s and %s", ids[0], id)
			}
		}
		req.Prompt = "another"
		if _, _, err := w.Create(w.ctx, req); !errors.Is(err, jobs.ErrMismatch) {
			t.Errorf("another request with the key: %v, want %v", err, jobs.ErrMismatch)
		}
	})
}

func TestOneOfManyEditsOfAVersionWins(t *testing.T) {
	both(t, nil, func(t *testing.T, w *world) {
		j := w.create(jobs.Request{Context: json.RawMessage(`{"customer":"acme"}`)})
		j = w.until(j.ID, jobs.Processing)
		var won, stale atomic.Int32
		var all sync.WaitGroup
		for i := range 50 {
			all.Go(func() {
				n := i
				_, err := w.Edit(w.ctx, j.ID, j.Version, jobs.Edit{Priority: &n})
				switch {
				case err == nil:
					won.Add(1)
				case errors.Is(err, jobs.ErrStale):
					stale.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		all.Wait()
		if won.Load() != 1 || stale.Load() != 49 {
			t.Errorf("edits: %d won and %d were stale, want 1 and 49", won.Load(), stale.Load())
		}
		now, err := w.Get(w.ctx, j.ID)
		testutil.Ok(t, err)
		labels := []string{"audit"}
		if now, err = w.Edit(w.ctx, j.ID, now.Version, jobs.Edit{Context: json.RawMessage(`{"customer":"umbrella"}`), Labels: &labels}); err != nil {
			t.Fatal(err)
		}
		for customer, want := range map[string]int{"acme": 0, "umbrella": 1} {
			page, err := w.List(w.ctx, jobs.Filter{Context: map[string]string{"customer": customer}, Label: ""})
			if err != nil || len(page.Jobs) != want {
				t.Errorf("jobs of customer %s: got %d, %v; want %d", customer, len(page.Jobs), err, want)
			}
		}
		if page, err := w.List(w.ctx, jobs.Filter{Label: "audit"}); err != nil || len(page.Jobs) != 1 {
			t.Errorf("jobs with the label: got %d, %v; want 1", len(page.Jobs), err)
		}
	})
}

// A pipeline may declare all keys of its contexts.
func TestJobIsFoundByAnyKeyOfItsContext(t *testing.T) {
	both(t, nil, func(t *testing.T, w *world) {
		many := map[string]int{"zone": 7}
		for i := range 200 {
			many[fmt.Sprintf("key %03d", i)] = i
		}
		context, _ := json.Marshal(many)
		w.create(jobs.Request{Pipeline: "open", Context: json.RawMessage(`{"customer":"acme","zone":7}`)})
		j := w.create(jobs.Request{Pipeline: "open", Context: context})
		find := func(key, value string) int {
			t.Helper()
			page := testutil.Must(w.List(w.ctx, jobs.Filter{Context: map[string]string{key: value}}))(t)
			return len(page.Jobs)
		}
		for _, c := range []struct {
			key, value string
			want       int
		}{{"customer", "acme", 1}, {"zone", "7", 1}, {"key 000", "0", 1}, {"key 049", "49", 1}, {"key 050", "50", 0}} {
			if n := find(c.key, c.value); n != c.want {
				t.Errorf("%s=%s: got %d jobs, want %d", c.key, c.value, n, c.want)
			}
		}
		testutil.Must(w.Edit(w.ctx, j.ID, w.until(j.ID, jobs.Processing).Version, jobs.Edit{Context: json.RawMessage(`{"zone":8}`)}))(t)
		if before, now := find("key 000", "0"), find("zone", "8"); before != 0 || now != 1 {
			t.Errorf("after an edit: got %d jobs by the key before and %d by the new one, want 0 and 1", before, now)
		}
		open := []*pipeline.Pipeline{pipelines["default"], pipelines["open"]}
		if err := (jobs.Filter{Context: map[string]string{"anything": "1"}}).CheckContext(open); err != nil {
			t.Errorf("a filter by any key: %v", err)
		}
		if err := (jobs.Filter{Name: "default", Context: map[string]string{"anything": "1"}}).CheckContext(open); err == nil {
			t.Error("a filter by a key that its pipeline does not declare: got no error")
		}
	})
}

func TestJobComesAfterOthers(t *testing.T) {
	both(t, nil, func(t *testing.T, w *world) {
		first := w.create(jobs.Request{})
		second := w.create(jobs.Request{After: []string{first.ID}})
		testutil.Eventually(t, "the second waits for the first", func() bool {
			got := testutil.Must(w.Get(w.ctx, second.ID))(t)
			return got.Status == jobs.Created && strings.Contains(got.Waiting, first.ID)
		})
		w.emit()
		w.until(first.ID, jobs.Completed)
		w.until(second.ID, jobs.Processing)

		stopped := w.create(jobs.Request{After: []string{second.ID}})
		runs := w.create(jobs.Request{After: []string{second.ID}, OnFailure: jobs.OnFailureRun})
		if _, _, err := w.Cancel(w.ctx, second.ID, false); err != nil {
			t.Fatal(err)
		}
		if got := w.until(stopped.ID, jobs.Cancelled); !strings.Contains(got.ErrorMessage, second.ID) {
			t.Errorf("why it was cancelled: %q", got.ErrorMessage)
		}
		w.until(runs.ID, jobs.Processing)
	})
}

func TestJobBeginsAtItsTime(t *testing.T) {
	both(t, nil, func(t *testing.T, w *world) {
		later := w.create(jobs.Request{At: time.Now().Add(time.Hour)})
		if !strings.HasPrefix(later.Waiting, "until ") {
			t.Errorf("a job that begins in an hour waits %q", later.Waiting)
		}
		soon := w.create(jobs.Request{At: time.Now().Add(50 * time.Millisecond)})
		w.until(soon.ID, jobs.Processing)
		testutil.Ok(t, w.Sweep(w.ctx))
		w.until(later.ID, jobs.Created)
	})
}

func TestJobKeepsThePipelineThatItWasCreatedWith(t *testing.T) {
	both(t, func(c *jobs.Config) {
		read := false // the file changes after it was read for the first time
		c.Pipelines = func(string) (*pipeline.Pipeline, error) {
			if read {
				return &pipeline.Pipeline{Name: "default", Stages: []pipeline.Stage{{Name: "draw", Role: "artist", Takes: pipeline.TakesJob}}}, nil
			}
			read = true
			return pipelines["default"], nil
		}
	}, func(t *testing.T, w *world) {
		j := w.create(jobs.Request{})
		w.emit("a")
		w.complete(w.take("validator", "v"), jobs.Answer{})
		if done := w.until(j.ID, jobs.Completed); done.Items.Integrated != 1 || len(done.Stages) != 2 {
			t.Errorf("a job whose pipeline was changed: got %+v of stages %+v, want its original stages", done.Items, done.Stages)
		}
		if next := w.create(jobs.Request{}); len(next.Stages) != 1 {
			t.Errorf("the next job: got stages %+v, want the stages of the new pipeline", next.Stages)
		}
	})
}

func TestNextVersionCanBeCompared(t *testing.T) {
	both(t, nil, func(t *testing.T, w *world) {
		a := w.create(jobs.Request{Prompt: "v1"})
		w.emit("same", "changed", "gone")
		for range 3 {
			w.complete(w.take("validator", "v"), jobs.Answer{})
		}
		w.until(a.ID, jobs.Completed)
		b, err := w.Rerun(w.ctx, a.ID)
		if err != nil || b.Generation != 2 || b.VersionOf != a.ID || b.Prompt != "v1" {
			t.Fatalf("the next version: %+v, %v", b, err)
		}
		first := w.take("creator", "c")
		list := items("same", "new")
		list = append(list, jobs.NewItem{Key: "changed", Text: "otherwise"})
		w.complete(first, jobs.Answer{Items: list})
		for range 3 {
			w.complete(w.take("validator", "v"), jobs.Answer{})
		}
		w.until(b.ID, jobs.Completed)
		got := map[string]string{}
		if err := w.Compare(w.ctx, a.ID, b.ID, func(d jobs.Difference) error { got[d.Key] = d.Change; return nil }); err != nil {
			t.Fatal(err)
		}
		want := map[string]string{"same": "same", "changed": "changed", "gone": "gone", "new": "new"}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("differences: got %v, want %v", got, want)
		}
	})
}

func TestListsFilterAndPage(t *testing.T) {
	both(t, nil, func(t *testing.T, w *world) {
		var ids []string
		for i := range 25 {
			j := w.create(jobs.Request{Prompt: fmt.Sprint(i), Context: json.RawMessage(fmt.Sprintf(`{"customer":"acme","year":%d}`, 2000+i%5))})
			ids = append(ids, j.ID)
		}
		other := w.create(jobs.Request{Pipeline: "setting", Labels: []string{"red"}})
		if _, _, err := w.Cancel(w.ctx, ids[3], false); err != nil {
			t.Fatal(err)
		}
		var got []string
		for cursor := ""; ; {
			page, err := w.List(w.ctx, jobs.Filter{Name: "default", Limit: 10, Cursor: cursor})
			if err != nil || page.Total != 25 {
				t.Fatalf("page: total %d, %v", page.Total, err)
			}
			for _, j := range page.Jobs {
				got = append(got, j.ID)
			}
			if cursor = page.Next; cursor == "" {
				break
			}
		}
		if len(got) != 25 || got[0] != ids[24] || got[24] != ids[0] {
			t.Errorf("pages: got %d jobs, want 25, the newest first", len(got))
		}
		for _, c := range []struct {
			filter jobs.Filter
			want   int
		}{
			{jobs.Filter{}, 26},
			{jobs.Filter{Label: "red"}, 1},
			{jobs.Filter{Name: other.Name}, 1},
			{jobs.Filter{Name: other.Name, Label: "red"}, 1},
			{jobs.Filter{Name: "default", Label: "red"}, 0},
			{jobs.Filter{Statuses: []jobs.Status{jobs.Cancelled}}, 1},
			{jobs.Filter{Context: map[string]string{"customer": "acme"}}, 25},
			{jobs.Filter{Context: map[string]string{"customer": "acme", "year": "2003"}}, 5},
			{jobs.Filter{Context: map[string]string{"customer": "none"}}, 0},
			{jobs.Filter{Statuses: jobs.Open}, 25},
			{jobs.Filter{Offset: 20}, 6},
		} {
			page, err := w.List(w.ctx, c.filter)
			if err != nil || len(page.Jobs) != c.want {
				t.Errorf("list %+v: got %d jobs, %v; want %d", c.filter, len(page.Jobs), err, c.want)
			}
		}
		for _, f := range []jobs.Filter{{Statuses: []jobs.Status{"queer"}}, {Limit: 1001}, {Offset: -1}, {Cursor: "*"}} {
			if _, err := w.List(w.ctx, f); !errors.As(err, new(*jobs.FieldError)) {
				t.Errorf("list %+v: got %v, want a field error", f, err)
			}
		}
		w.checkStatistics()
	})
}

// checkStatistics checks the counters of the jobs of TestListsFilterAndPage.
func (w *world) checkStatistics() {
	t := w.t
	t.Helper()
	totals, err := w.Totals(w.ctx)
	if err != nil || totals[jobs.Cancelled] != 1 || totals[jobs.Created]+totals[jobs.Processing] != 25 {
		t.Errorf("totals: got %v, %v", totals, err)
	}
	days, err := w.Daily(w.ctx, 7)
	if err != nil || len(days) != 7 || days[0].Created+days[1].Created != 26 || days[0].Cancelled+days[1].Cancelled != 1 {
		t.Errorf("daily statistics: got %+v, %v", days, err)
	}
	for _, n := range []int{0, 31} {
		if _, err := w.Daily(w.ctx, n); !errors.As(err, new(*jobs.FieldError)) {
			t.Errorf("statistics of %d days: got %v, want a field error", n, err)
		}
	}
}

func TestPagesOfItemsHoldAllOnce(t *testing.T) {
	both(t, nil, func(t *testing.T, w *world) {
		for n, limits := range map[int][]int{5: {1, 3, 100}, 700: {90, 1000}} {
			j := w.create(jobs.Request{})
			first := w.take("creator", "c")
			var keys []string
			for i := range n {
				keys = append(keys, fmt.Sprintf("k%d", i))
			}
			w.add(first, keys...)
			for _, limit := range limits {
				seen := map[string]int{}
				for cursor := ""; ; {
					page, err := w.Items(w.ctx, j.ID, jobs.ItemFilter{Limit: limit, Cursor: cursor})
					if err != nil || len(page.Items) > limit {
						t.Fatalf("page: got %d items, %v; want at most %d", len(page.Items), err, limit)
					}
					for _, it := range page.Items {
						seen[it.Key]++
					}
					if cursor = page.Next; cursor == "" {
						break
					}
				}
				if len(seen) != n {
					t.Errorf("pages of %d: got %d items, want %d", limit, len(seen), n)
				}
			}
		}
		for _, cursor := range []string{"x", "0.*", "-1"} {
			j := w.create(jobs.Request{})
			if _, err := w.Items(w.ctx, j.ID, jobs.ItemFilter{Cursor: cursor}); !errors.As(err, new(*jobs.FieldError)) {
				t.Errorf("cursor %q: got %v, want a field error", cursor, err)
			}
		}
	})
}
