package jobs_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/jobs"
)

// The second stage works while the first one still adds items, and the job ends when both have.
func TestJobRunsThroughItsStages(t *testing.T) {
	both(t, nil, func(t *testing.T, w *world) {
		j := w.create(jobs.Request{Prompt: "Extract", Context: json.RawMessage(`{"customer": "acme"}`), Priority: 5, Labels: []string{"audit"}})
		first := w.take("creator", "c1")
		if first.JobID != j.ID || first.Prompt != "Extract" || string(first.Context) != `{"customer":"acme"}` || first.Item != nil || first.Attempt != 1 {
			t.Fatalf("work of the first stage: %+v", first)
		}
		running := w.until(j.ID, jobs.Processing)
		if running.Stages[0].Status != jobs.StageProcessing || running.Stages[0].Agent != "c1" || running.Stages[1].Status != jobs.StagePending {
			t.Errorf("stages while the creator works: %+v", running.Stages)
		}
		w.add(first, "R-1", "R-2")
		item := w.take("validator", "v1")
		if item.Key != "R-1" || item.Item.Text != "text of R-1" || item.Item.Priority != "medium" {
			t.Errorf("work of the second stage: %+v", item.Item)
		}
		w.complete(item, jobs.Answer{Patch: json.RawMessage(`{"external_id": "neo-1", "labels": {"gobd": true}, "citations": ["§ 1"]}`)})
		w.add(first, "R-2", "R-3") // R-2 again changes nothing
		w.complete(first, jobs.Answer{Items: items("R-3", "R-4")})
		w.complete(first, jobs.Answer{Items: items("R-3", "R-4")}) // the reply was lost
		w.complete(w.take("validator", "v1"), jobs.Answer{Verdict: "reject", Reason: "too vague"})
		w.complete(w.take("validator", "v2"), jobs.Answer{Verdict: "accept"})
		last := w.take("validator", "v2")
		if got := w.until(j.ID, jobs.Processing); got.Stages[0].Status != jobs.StageCompleted || got.Items.Validating != 1 {
			t.Errorf("before the last item: stages %+v, items %+v", got.Stages, got.Items)
		}
		w.complete(last, jobs.Answer{})
		w.checkEnded(j.ID)
	})
}

// checkEnded checks the job of TestJobRunsThroughItsStages once it has ended.
func (w *world) checkEnded(id string) {
	t := w.t
	t.Helper()
	done := w.until(id, jobs.Completed)
	if want := (jobs.Counts{Total: 4, Integrated: 3, Rejected: 1}); done.Items != want {
		t.Errorf("items: got %+v, want %+v", done.Items, want)
	}
	if done.CompletedAt.IsZero() || done.StartedAt.IsZero() || done.Stages[1].Status != jobs.StageCompleted || done.Stages[1].CompletedAt.IsZero() {
		t.Errorf("a job that has ended: %+v", done)
	}
	it, err := w.Item(w.ctx, id, "R-1")
	if err != nil || it.Status != jobs.ItemIntegrated || it.ExternalID != "neo-1" || !it.Labels["gobd"] || it.Agent != "v1" || it.ID == "" || it.CreatedAt.IsZero() {
		t.Errorf("item R-1: %+v, %v", it, err)
	}
	if it, err = w.Item(w.ctx, id, "R-2"); err != nil || it.Status != jobs.ItemRejected || it.RejectionReason != "too vague" {
		t.Errorf("item R-2: %+v, %v", it, err)
	}
	sameList(t, "events", w.types(id), []string{"job.created", "job.started", "stage.completed", "stage.completed", "job.completed"})
}

func TestItemsPassThroughSeveralStages(t *testing.T) {
	both(t, nil, func(t *testing.T, w *world) {
		j := w.create(jobs.Request{Pipeline: "long"})
		w.emit("a", "b")
		for range 2 {
			work := w.take("enricher", "e")
			w.complete(work, jobs.Answer{Patch: json.RawMessage(`{"research_notes": "by e"}`)})
		}
		if got, _, err := w.Take(w.ctx, "publisher", "p", 1); err != nil || len(got) > 0 {
			t.Fatalf("the last stage begins too early: %+v, %v", got, err)
		}
		work := w.take("validator", "v")
		if work.Item.ResearchNotes != "by e" {
			t.Errorf("notes of the stage before: got %q", work.Item.ResearchNotes)
		}
		for verdict, want := range map[string]string{"accept": "verdict: \"accept\" is not", "": "verdict: required; stage validate has good, poor"} {
			if err := w.Complete(w.ctx, work, jobs.Answer{Verdict: verdict}); !errors.As(err, new(*jobs.FieldError)) || !strings.Contains(err.Error(), want) {
				t.Errorf("the verdict %q: got %v, want %q", verdict, err, want)
			}
		}
		w.complete(work, jobs.Answer{Verdict: "good"})
		w.complete(w.take("validator", "v"), jobs.Answer{Verdict: "poor", Reason: "no"})
		w.complete(w.take("publisher", "p"), jobs.Answer{})
		done := w.until(j.ID, jobs.Completed)
		if want := (jobs.Counts{Total: 2, Integrated: 1, Rejected: 1}); done.Items != want {
			t.Errorf("items: got %+v, want %+v", done.Items, want)
		}
	})
}

// max_retries counts retries: the first attempt is not one, and 0 means none, in the settings and in a pipeline.
func TestMaxRetries(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		pipeline          string
		setting, attempts int
	}{
		"setting 0":            {"setting", 0, 1},
		"setting 2":            {"setting", 2, 3},
		"stage before setting": {"once", 2, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, redistest.Mini(t), func(cfg *jobs.Config) { cfg.Limits.MaxRetries = c.setting })
			j := w.create(jobs.Request{Pipeline: c.pipeline})
			for range c.attempts {
				if got, err := w.Get(w.ctx, j.ID); err != nil || got.Status.Terminal() {
					t.Fatalf("got %s, %v before the last attempt", got.Status, err)
				}
				testutil.Ok(t, w.Fail(w.ctx, w.take("creator", "c"), errors.New("no luck"), 0, true))
			}
			w.until(j.ID, jobs.Failed)
		})
	}
}

func TestFailedWorkIsTriedAgainThenFails(t *testing.T) {
	both(t, nil, func(t *testing.T, w *world) {
		j := w.create(jobs.Request{})
		w.emit("a")
		cause := errors.New("no response of the model")
		for i := range 2 {
			work := w.take("validator", "v")
			if work.Attempt != i+1 {
				t.Errorf("attempt: got %d, want %d", work.Attempt, i+1)
			}
			testutil.Ok(t, w.Fail(w.ctx, work, cause, 0, true))
		}
		w.until(j.ID, jobs.Completed)
		it, err := w.Item(w.ctx, j.ID, "a")
		if err != nil || it.Status != jobs.ItemFailed || it.RetryCount != 1 || it.LastError != cause.Error() {
			t.Errorf("item: %+v, %v", it, err)
		}
		if p, err := w.Progress(w.ctx, j.ID); err != nil || p.Percent != 100 {
			t.Errorf("progress with failed items: %+v, %v; want 100 %%", p, err)
		}
	})
}

// permanent is an error after which work is not tried again.
type permanent struct{ error }

func (permanent) Permanent() bool { return true }

func TestFailureThatDoesNotCountUsesUpNoAttempt(t *testing.T) {
	both(t, nil, func(t *testing.T, w *world) {
		w.create(jobs.Request{})
		for range 5 {
			work := w.take("creator", "c")
			if work.Attempt != 1 {
				t.Fatalf("attempt: got %d, want 1", work.Attempt)
			}
			testutil.Ok(t, w.Fail(w.ctx, work, errors.New("busy"), 0, false))
		}
		work := w.take("creator", "c")
		testutil.Ok(t, w.Release(w.ctx, work))
		if again := w.take("creator", "d"); again.Attempt != 1 || again.Fence == work.Fence {
			t.Errorf("after a release: %+v", again)
		}
	})
}

func TestPersonDecidesOnWhatFailedForTheLastTime(t *testing.T) {
	both(t, nil, func(t *testing.T, w *world) {
		j := w.create(jobs.Request{Pipeline: "review"})
		w.emit("a", "b", "c")
		for range 2 {
			testutil.Ok(t, w.Fail(w.ctx, w.take("validator", "v"), errors.New("unclear"), 0, true))
		}
		w.complete(w.take("validator", "v"), jobs.Answer{})
		var waiting jobs.Job
		testutil.Eventually(t, "two items wait for a decision", func() bool {
			waiting, _ = w.Get(w.ctx, j.ID)
			return waiting.Items.Review == 2
		})
		if waiting.Status != jobs.Processing || !strings.Contains(waiting.Waiting, "decision") {
			t.Errorf("while items wait for a decision: %s, waiting %q", waiting.Status, waiting.Waiting)
		}
		page, err := w.Items(w.ctx, j.ID, jobs.ItemFilter{Status: jobs.ItemReview})
		if err != nil || len(page.Items) != 2 || page.Items[0].LastError != "unclear" {
			t.Fatalf("items in review: %+v, %v", page, err)
		}
		if _, err := w.Decide(w.ctx, j.ID, "a", jobs.Decision{}); !errors.As(err, new(*jobs.FieldError)) {
			t.Errorf("reject without a reason: %v", err)
		}
		if it, err := w.Decide(w.ctx, j.ID, "a", jobs.Decision{Accept: true, By: "ada"}); err != nil || it.Status != jobs.ItemIntegrated || it.ReviewedBy != "ada" || it.Agent != "" {
			t.Errorf("accepted: %+v, %v", it, err)
		}
		if _, err := w.Decide(w.ctx, j.ID, "a", jobs.Decision{Accept: true}); !errors.Is(err, jobs.ErrNotReview) {
			t.Errorf("a second decision: %v, want %v", err, jobs.ErrNotReview)
		}
		if it, err := w.Decide(w.ctx, j.ID, "b", jobs.Decision{Reason: "no"}); err != nil || it.Status != jobs.ItemRejected || it.RejectionReason != "no" {
			t.Errorf("rejected: %+v, %v", it, err)
		}
		w.until(j.ID, jobs.Completed)
	})
}

// An item whose last lease expires is in the events as one that its agent gave up; so is it after it was tried again.
func TestItemWhoseLeaseExpiresIsInTheEventsOnce(t *testing.T) {
	short := func(c *jobs.Config) { c.Lease = 50 * time.Millisecond }
	both(t, short, func(t *testing.T, w *world) {
		j := w.create(jobs.Request{Pipeline: "review"})
		w.emit("a")
		reviews := func() int {
			return len(slices.DeleteFunc(w.types(j.ID), func(s string) bool { return s != "item.review" }))
		}
		for times := 1; times <= 2; times++ {
			w.take("validator", "gone")
			testutil.Eventually(t, "the expiry of the lease is an event", func() bool {
				testutil.Ok(t, w.Sweep(w.ctx))
				return reviews() >= times
			})
			if err := w.Sweep(w.ctx); err != nil || reviews() != times {
				t.Errorf("got %d events item.review, want %d; %v", reviews(), times, err)
			}
			if times == 1 {
				testutil.Must(w.Retry(w.ctx, j.ID))(t)
			}
		}
		// Without the place that it has come to, the job sends them again and continues.
		testutil.Ok(t, w.client.Redis().HSet(w.ctx, "muster:{jobs}:j:"+j.ID, "endings", "damaged").Err())
		if err := w.Sweep(w.ctx); err != nil || reviews() != 4 {
			t.Errorf("after damage: got %d events item.review, want 4; %v", reviews(), err)
		}
	})
}

func TestCancelKeepsWhatHasEnded(t *testing.T) {
	both(t, nil, func(t *testing.T, w *world) {
		w.docs.files["abc"] = []byte("x")
		j := w.create(jobs.Request{Document: &jobs.Document{Name: "rules.pdf", Hash: "abc", Size: 1}})
		w.emit("a", "b", "c")
		w.complete(w.take("validator", "v"), jobs.Answer{})
		held := w.take("validator", "v")
		for _, d := range []*jobs.Document{nil, {Name: "same.pdf", Hash: "abc", Size: 1}} {
			other := w.create(jobs.Request{Document: d, Prompt: "other"})
			if _, cleaned, err := w.Cancel(w.ctx, other.ID, true); err != nil || cleaned {
				t.Errorf("cancel of a job with document %v: cleaned %v, %v, want none cleaned", d, cleaned, err)
			}
		}
		got, cleaned, err := w.Cancel(w.ctx, j.ID, true)
		if err != nil || got.Status != jobs.Cancelled || !cleaned {
			t.Fatalf("cancel: %+v, cleaned %v, %v", got, cleaned, err)
		}
		if want := (jobs.Counts{Total: 3, Integrated: 1, Pending: 2}); got.Items != want {
			t.Errorf("items: got %+v, want %+v", got.Items, want)
		}
		for what, err := range map[string]error{
			"complete": w.Complete(w.ctx, held, jobs.Answer{}), "beat": func() error { _, err := w.Beat(w.ctx, held); return err }(),
			"fail": w.Fail(w.ctx, held, errors.New("x"), 0, true),
		} {
			if !errors.Is(err, jobs.ErrLeaseLost) {
				t.Errorf("%s after the end: got %v, want %v", what, err, jobs.ErrLeaseLost)
			}
		}
		if work, _, err := w.Take(w.ctx, "validator", "v", 5); err != nil || len(work) > 0 {
			t.Errorf("work of a cancelled job: %+v, %v", work, err)
		}
		if _, _, err := w.Cancel(w.ctx, j.ID, false); !errors.Is(err, jobs.ErrTerminal) {
			t.Errorf("cancel again: %v, want %v", err, jobs.ErrTerminal)
		}
		sameList(t, "documents", w.docs.names(), nil)
	})
}

func TestLateAnswerChangesNothing(t *testing.T) {
	both(t, func(c *jobs.Config) { c.Lease = 50 * time.Millisecond }, func(t *testing.T, w *world) {
		w.create(jobs.Request{})
		first := w.take("creator", "slow")
		second := w.take("creator", "quick") // when the lease has expired
		if second.Fence <= first.Fence {
			t.Errorf("fence: got %d after %d, want a higher one", second.Fence, first.Fence)
		}
		if _, err := w.Add(w.ctx, first, items("late")); !errors.Is(err, jobs.ErrLeaseLost) {
			t.Errorf("items of a late agent: %v", err)
		}
		if err := w.Complete(w.ctx, first, jobs.Answer{Items: items("late")}); !errors.Is(err, jobs.ErrLeaseLost) {
			t.Errorf("result of a late agent: %v", err)
		}
		if page, err := w.Items(w.ctx, first.JobID, jobs.ItemFilter{}); err != nil || len(page.Items) > 0 {
			t.Errorf("items after a late result: %+v, %v", page.Items, err)
		}
	})
}

// A sweep completes the steps of a process that died.
func TestSweepCompletesUnfinishedSteps(t *testing.T) {
	both(t, nil, func(t *testing.T, w *world) {
		rdb := w.client.Redis()
		j := w.create(jobs.Request{})
		w.take("creator", "c") // and the process that took it dies: it is on no list
		testutil.Ok(t, rdb.Del(w.ctx, "muster:{jobs}:ready:creator", "muster:{jobs}:due:creator").Err())
		other := w.create(jobs.Request{})
		testutil.Ok(t, rdb.Del(w.ctx, "muster:{jobs}:ready:creator", "muster:{jobs}:due:creator").Err())
		w.until(other.ID, jobs.Processing)
		testutil.Eventually(t, "the sweep announces the work again", func() bool {
			testutil.Ok(t, w.Sweep(w.ctx))
			work, _, err := w.Take(w.ctx, "creator", "d", 1)
			testutil.Ok(t, err)
			return len(work) == 1 && work[0].JobID == other.ID
		})
		w.until(j.ID, jobs.Processing)
	})
}

// The process that sweeps keeps the lead until its sweep has ended, however long it lasts.
func TestSweepKeepsTheLead(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		const lead = "muster:{jobs}:sweep"
		sweeps, end := make(chan struct{}, 1), make(chan struct{})
		w := newWorld(t, rdb, func(cfg *jobs.Config) {
			cfg.CheckEvery = 20 * time.Millisecond
			cfg.Reconcile = func(ctx context.Context) error {
				select {
				case sweeps <- struct{}{}:
				default:
				}
				select {
				case <-end:
				case <-ctx.Done():
				}
				return nil
			}
		})
		<-sweeps
		testutil.Ok(t, rdb.PExpire(w.ctx, lead, time.Hour).Err())
		testutil.Eventually(t, "the lead is renewed during the sweep", func() bool { return rdb.PTTL(w.ctx, lead).Val() < time.Minute })
		close(end)
	})
}

func TestJobThatTakesTooLongFails(t *testing.T) {
	both(t, func(c *jobs.Config) { c.Timeout = 10 * time.Millisecond }, func(t *testing.T, w *world) {
		j := w.create(jobs.Request{})
		testutil.Eventually(t, "the job fails", func() bool {
			testutil.Ok(t, w.Sweep(w.ctx))
			got := testutil.Must(w.Get(w.ctx, j.ID))(t)
			return got.Status == jobs.Failed && strings.Contains(got.ErrorMessage, "10ms")
		})
	})
}

func TestStuckJobIsRecoveredThenFails(t *testing.T) {
	both(t, nil, func(t *testing.T, w *world) {
		w.roles = map[string]int{"creator": 1, "validator": 1}
		j := w.create(jobs.Request{StuckAfter: time.Second})
		w.emit("a")
		// An agent extends its lease forever, and never sends a result.
		for i := range 3 {
			held := w.take("validator", "silent")
			var stuck []jobs.Stuck
			testutil.Eventually(t, "the job is stuck", func() bool {
				var err error
				if stuck, err = w.Stuck(w.ctx); err != nil {
					t.Fatal(err)
				}
				return len(stuck) == 1
			})
			if stuck[0].JobID != j.ID || stuck[0].Stage != "validate" || !strings.Contains(stuck[0].Reason, "held") || stuck[0].Recoveries != i {
				t.Errorf("stuck for the %d. time: %+v", i+1, stuck[0])
			}
			testutil.Ok(t, w.Sweep(w.ctx))
			if err := w.Complete(w.ctx, held, jobs.Answer{}); !errors.Is(err, jobs.ErrLeaseLost) {
				t.Errorf("result after a recovery: %v, want %v", err, jobs.ErrLeaseLost)
			}
		}
		w.take("validator", "silent")
		testutil.Eventually(t, "the job fails", func() bool {
			testutil.Ok(t, w.Sweep(w.ctx))
			got := testutil.Must(w.Get(w.ctx, j.ID))(t)
			return got.Status == jobs.Failed && strings.Contains(got.ErrorMessage, "stuck in stage validate")
		})
		if got := strings.Join(w.types(j.ID), " "); strings.Count(got, "job.recovered") != 3 {
			t.Errorf("events: got %s, want three recoveries", got)
		}
	})
}

// A job whose agents are all unavailable reports that, not that there are none.
func TestJobReportsUnavailableAgents(t *testing.T) {
	both(t, nil, func(t *testing.T, w *world) {
		w.roles = map[string]int{"creator": 0}
		j := w.create(jobs.Request{})
		testutil.Eventually(t, "the job is processing", func() bool {
			got, err := w.Get(w.ctx, j.ID)
			return err == nil && got.Waiting != "" && got.Status == jobs.Processing
		})
		if got, err := w.Get(w.ctx, j.ID); err != nil || got.Waiting != "no available agent of role creator; see muster agents list" {
			t.Errorf("got %q, %v, want that no agent is available", got.Waiting, err)
		}
	})
}

func TestUsageIsSummedByAgent(t *testing.T) {
	both(t, nil, func(t *testing.T, w *world) {
		j := w.create(jobs.Request{})
		for _, tokens := range []int64{90, 1 << 53, 10} { // one would be too large
			for _, agent := range []string{"agent 0", "agent 1"} {
				testutil.Ok(t, w.AddUsage(w.ctx, j.ID, agent, map[string]int64{"tokens": tokens, "requests": 1, "assignments": 1}, time.Time{}))
			}
		}
		got, err := w.Get(w.ctx, j.ID)
		if err != nil || got.Usage["tokens"] != 200 || got.Usage["requests"] != 6 || got.AgentUsage["agent 1"]["assignments"] != 3 {
			t.Errorf("usage: got %+v by agent %+v, %v, want 200 tokens, 6 requests and 3 items of each", got.Usage, got.AgentUsage, err)
		}
	})
}
