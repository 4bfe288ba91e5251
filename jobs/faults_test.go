package jobs_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/jobs"
	"muster/tasks"
)

// Any call of clients that create, process and delete a job can fail: after a repetition, by the same or another
// client, it has taken effect once. Each event of the job exists once, indexes and counters agree with the records,
// and no key of the job is left.
func TestJobSurvivesAFaultAtAnyCall(t *testing.T) {
	t.Parallel()
	redistest.EachFault(t, map[redistest.Kind]int{
		redistest.Refused: 25, redistest.ReplyLost: 25, redistest.Repeated: 20, redistest.Frozen: 8,
	}, jobWithFault)
}

func jobWithFault(t *testing.T, f *redistest.Fault) {
	url := redistest.URL(t)
	change := func(c *jobs.Config) {
		c.Lease = 500 * time.Millisecond
		c.Limits.CheckEvery = 100 * time.Millisecond
	}
	w := newWorld(t, redistest.NewFault(redistest.Refused, 0).Client(t, url), change)
	cfg := jobs.Config{Client: tasks.NewClient(f.Client(t, url)), Pipelines: named, Emit: emit, Documents: w.docs, Limits: jobs.Limits{MaxRetries: 5, Dedupe: jobs.DedupeAllow}, Backoff: time.Millisecond,
		Roles: func(context.Context) (map[string]int, error) { return nil, nil }}
	change(&cfg)
	s := testutil.Must(jobs.New(cfg))(t)
	first, second := &visitor{world: w, s: s, name: "first"}, &visitor{world: w, s: w.Service, name: "second"}
	for _, visit := range []func(*visitor) error{(*visitor).run, (*visitor).remove} {
		second.id = first.id
		over := make(chan error, 1)
		go func() {
			f.Arm()
			over <- visit(first)
		}()
		if f.Kind == redistest.Frozen {
			select {
			case <-f.Hit():
				if err := visit(second); err != nil {
					t.Error(err)
				}
				f.Release()
			case err := <-over:
				over <- err
			}
		}
		testutil.Ok(t, <-over)
		id := first.id
		if first.removed {
			rdb := w.client.Redis()
			testutil.Eventually(t, "every key of the deleted job expires", func() bool {
				return !slices.ContainsFunc(rdb.Keys(w.ctx, "*"+id+"*").Val(), func(key string) bool { return rdb.PTTL(w.ctx, key).Val() == -1 })
			})
			break
		}
		if got, want := w.until(id, jobs.Completed).Items, (jobs.Counts{Total: 4, Integrated: 3, Rejected: 1}); got != want {
			t.Errorf("items: got %+v, want %+v", got, want)
		}
		w.sameEvents(id)
	}
}

// sameEvents fails the test unless each event of the completed job is there once.
func (w *world) sameEvents(id string) {
	w.t.Helper()
	want := []string{"job.completed", "job.created", "job.started", "stage.completed", "stage.completed"}
	err := w.EachItem(w.ctx, id, func(it jobs.Item) error {
		if it.Agent == "" { // a person has decided; an item whose agents are frozen or refused loses its attempts, too
			want = append(want, "item.decided "+it.Key, "item.review "+it.Key)
		}
		return nil
	})
	testutil.Ok(w.t, err)
	if !slices.Contains(want, "item.review b") {
		w.t.Error("item b fails, and no person has decided on it")
	}
	entries := testutil.Must(w.client.Redis().XRange(w.ctx, eventsKey(id), "-", "+").Result())(w.t)
	var got []string
	for _, e := range entries {
		var data struct{ Key string }
		if raw := e.Values["data"].(string); raw != "" {
			if err := json.Unmarshal([]byte(raw), &data); err != nil {
				w.t.Error(err)
			}
		}
		got = append(got, strings.TrimSpace(e.Values["type"].(string)+" "+data.Key))
	}
	slices.Sort(got)
	slices.Sort(want)
	sameList(w.t, "events", got, want)
}

// visitor uses jobs as a client and as an agent, and repeats failed calls.
type visitor struct {
	*world
	s       *jobs.Service
	name    string
	id      string
	removed bool
}

// must repeats a call until it returns no fault.
func (v *visitor) must(what string, call func() error) (err error) {
	if !testutil.Becomes(func() bool {
		err = call()
		return !errors.Is(err, redistest.ErrFault)
	}) {
		what += ", again and again"
	}
	if err != nil {
		err = fmt.Errorf("%s %s: %w", v.name, what, err)
	}
	return err
}

// errAgain is the error of an unfinished step.
var errAgain = fmt.Errorf("not yet: %w", redistest.ErrFault)

// run creates the job, and works on it until it is completed.
func (v *visitor) run() error {
	if err := v.must("create", func() error {
		j, _, err := v.s.Create(v.ctx, jobs.Request{Pipeline: "review", Prompt: "p", IdempotencyKey: "one"})
		v.id = j.ID
		return err
	}); err != nil {
		return err
	}
	return v.must("work", func() error {
		for _, role := range []string{"creator", "validator"} {
			work, _, err := v.s.Take(v.ctx, role, v.name, 2)
			for _, w := range work {
				err = errors.Join(err, v.work(w))
			}
			if err != nil {
				return err
			}
		}
		waiting, err := v.s.Reviews(v.ctx, 10)
		if err != nil {
			return err
		}
		for _, it := range waiting.Items {
			d := jobs.Decision{Accept: it.Key != "c", Reason: "too vague"} // an agent that is frozen or refused loses its attempt
			if _, err := v.s.Decide(v.ctx, it.JobID, it.Key, d); err != nil && !errors.Is(err, jobs.ErrNotReview) && !errors.Is(err, jobs.ErrTerminal) {
				return err
			}
		}
		if err := v.s.Sweep(v.ctx); err != nil {
			return err
		}
		j, err := v.s.Get(v.ctx, v.id)
		if err == nil && j.Status != jobs.Completed {
			err = errAgain
		}
		return err
	})
}

// work does a piece of work: b fails, which a person looks at, c is rejected, and d returned once.
func (v *visitor) work(w jobs.Work) error {
	_, err := v.s.Beat(v.ctx, w)
	switch {
	case err != nil:
	case w.Stage == "create":
		if _, err = v.s.Add(v.ctx, w, items("a", "b")); err == nil {
			err = v.s.Complete(v.ctx, w, jobs.Answer{Items: items("b", "c", "d")})
		}
	case w.Key == "b":
		err = v.s.Fail(v.ctx, w, errors.New("unclear"), 0, true)
	case w.Key == "c":
		err = v.s.Complete(v.ctx, w, jobs.Answer{Verdict: "reject", Reason: "too vague"})
	default:
		err = v.s.Complete(v.ctx, w, jobs.Answer{})
	}
	if errors.Is(err, jobs.ErrLeaseLost) {
		return nil
	}
	return err
}

// remove deletes the job.
func (v *visitor) remove() error {
	v.removed = true
	return v.must("delete", func() error {
		err := v.s.Delete(v.ctx, v.id)
		if errors.Is(err, jobs.ErrNotFound) || err != nil && strings.Contains(err.Error(), "does not exist") {
			return nil
		}
		return err
	})
}
