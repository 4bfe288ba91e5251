package agent_test

import (
	"errors"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/jobs"
	"muster/jobs/agent"
)

// The whole way of an assignment, also on a cluster, where all keys of a script must share a slot.
func TestAnAssignmentIsTakenExtendedAndCompleted(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		r := newRig(t, rdb, nil)
		id := r.register("one", 2, "validator")
		r.put("validator", 1)
		a := r.leaseOne(id)
		if a.Role != "validator" || a.Item == nil || a.Fence == 0 || len(a.ID) > 200 || a.IdempotencyKey == "" {
			t.Errorf("got assignment %+v", a)
		}
		if got := r.get(id).Held; got != 1 {
			t.Errorf("held: got %d, want 1", got)
		}
		extended, err := r.Beat(t.Context(), a.ID, id, a.Fence, map[string]int64{"tokens": 5})
		if err != nil || extended.Expires.Before(a.Expires.Add(-50*time.Millisecond)) {
			t.Errorf("beat: got lease until %v, %v, want not before %v", extended.Expires, err, a.Expires)
		}
		var wrong *jobs.FieldError // which the agent can correct
		if err := r.Complete(t.Context(), a.ID, id, a.Fence, jobs.Answer{Verdict: "x"}); !errors.As(err, &wrong) {
			t.Errorf("an invalid result: got %v, want a *job.FieldError", err)
		}
		testutil.Ok(t, r.Complete(t.Context(), a.ID, id, a.Fence, jobs.Answer{Verdict: "accept"}))
		got := r.get(id)
		if got.Held != 0 || got.Done != 1 || got.Failed != 0 || got.Usage["tokens"] != 5 {
			t.Errorf("got agent %+v, want none held, 1 done, 5 tokens", got)
		}
		if it := r.item(0); it.Status != jobs.ItemIntegrated {
			t.Errorf("got item %+v, want it integrated", it)
		}
	})
}

// The response to a call may be lost, so agents repeat calls.
func TestRepeatedCallsSucceedAndCountOnce(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		call  func(r *rig, a agent.Assignment) error
		state jobs.ItemStatus
		usage int64
		items int64
	}{
		{"complete", func(r *rig, a agent.Assignment) error {
			return r.Complete(t.Context(), a.ID, a.Agent, a.Fence, jobs.Answer{Usage: map[string]int64{"tokens": 7}})
		}, jobs.ItemIntegrated, 7, 1},
		{"fail", func(r *rig, a agent.Assignment) error {
			wait := time.Hour
			return r.Fail(t.Context(), a.ID, a.Agent, a.Fence, "no", &wait, false, map[string]int64{"tokens": 3})
		}, jobs.ItemPending, 3, 0},
		{"release", func(r *rig, a agent.Assignment) error {
			return r.Release(t.Context(), a.ID, a.Agent, a.Fence)
		}, jobs.ItemPending, 1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
				r := newRig(t, rdb, nil)
				id := r.register("one", 1, "validator")
				r.put("validator", 1)
				a := r.leaseOne(id)
				testutil.Must(r.Beat(t.Context(), a.ID, id, a.Fence, map[string]int64{"tokens": 1}))(t)
				errs := make(chan error, 8)
				for range cap(errs) {
					go func() { errs <- c.call(r, a) }()
				}
				for range cap(errs) {
					// A release, or a failure, that comes second may find the lease gone.
					if err := <-errs; err != nil && (c.name == "complete" || !errors.Is(err, jobs.ErrLeaseLost)) {
						t.Errorf("one of the calls at once: got %v", err)
					}
				}
				if err := c.call(r, a); err != nil {
					t.Errorf("repeated: got %v, want success", err)
				}
				usage, items := r.usage()
				if usage["tokens"] != c.usage || items != c.items {
					t.Errorf("the job got %d tokens and %d items, want %d and %d", usage["tokens"], items, c.usage, c.items)
				}
				if got := r.get(id).Usage["tokens"]; got != c.usage {
					t.Errorf("the agent has %d tokens, want %d", got, c.usage)
				}
				if got := r.item(0).Status; got != c.state {
					t.Errorf("the item is %s, want %s", got, c.state)
				}
			})
		})
	}
}

func TestCallsOfOthersChangeNothing(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		r := newRig(t, rdb, nil)
		id, other := r.register("one", 1, "validator"), r.register("two", 1, "creator")
		r.put("validator", 1)
		a := r.leaseOne(id)
		for _, c := range []struct {
			name, assignment, agent string
			fence                   int64
			want                    error
		}{
			{"another agent", a.ID, other, a.Fence, agent.ErrNotYours},
			{"an agent that there is not", a.ID, "x", a.Fence, agent.ErrNotYours},
			{"another fence", a.ID, id, a.Fence + 1, jobs.ErrLeaseLost},
			{"an assignment that there is not", strings.Repeat("0", 32), id, a.Fence, agent.ErrNoneSuch},
			{"no id", "../x", id, a.Fence, agent.ErrNoneSuch},
		} {
			ctx := t.Context()
			_, beat := r.Beat(ctx, c.assignment, c.agent, c.fence, nil)
			_, add := r.AddItems(ctx, c.assignment, c.agent, c.fence, []jobs.NewItem{{Key: "k", Text: "t"}})
			for call, err := range map[string]error{
				"beat": beat, "add": add,
				"complete": r.Complete(ctx, c.assignment, c.agent, c.fence, jobs.Answer{}),
				"fail":     r.Fail(ctx, c.assignment, c.agent, c.fence, "no", nil, false, nil),
				"release":  r.Release(ctx, c.assignment, c.agent, c.fence),
			} {
				if !errors.Is(err, c.want) {
					t.Errorf("%s with %s: got %v, want %v", call, c.name, err, c.want)
				}
			}
		}
		if got := r.counts(); got != (jobs.Counts{Validating: 1}) {
			t.Errorf("got the items %+v, want one that is leased", got)
		}
	})
}

// If a process dies between the end of the work and the end of the assignment, the assignment stays open until its
// lease expires. The agent, which got no response, may repeat its call before and after that.
func TestCompletionLostWithItsProcessCanBeRepeated(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		r := newRig(t, rdb, func(cfg *setup) { cfg.lease = 3 * time.Second })
		id := r.register("one", 1, "validator")
		r.put("validator", 1)
		a := r.leaseOne(id)
		testutil.Must(r.Beat(t.Context(), a.ID, id, a.Fence, map[string]int64{"tokens": 7}))(t)
		testutil.Ok(t, r.jobs.Complete(t.Context(), a.Work, jobs.Answer{}))
		testutil.Eventually(t, "it holds nothing", func() bool { return r.get(id).Held == 0 })
		for range 2 {
			if err := r.Complete(t.Context(), a.ID, id, a.Fence, jobs.Answer{Usage: map[string]int64{"tokens": 7}}); err != nil {
				t.Errorf("repeated: got %v, want success", err)
			}
		}
		if got := r.get(id); got.Done != 1 || got.Failed != 0 || got.Usage["tokens"] != 7 {
			t.Errorf("got %d done, %d failed and usage %v, want 1, 0 and 7 tokens", got.Done, got.Failed, got.Usage)
		}
		if usage, n := r.usage(); usage["tokens"] != 7 || n != 1 {
			t.Errorf("got %v of %d items, want 7 tokens of 1", usage, n)
		}
	})
}

// The assignments of a job that was cancelled are lost, also once its records are gone.
func TestTheAssignmentsOfACancelledAndDeletedJobEnd(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.New(t), func(cfg *setup) { cfg.lease = 3 * time.Second })
	id := r.register("one", 3, "validator")
	r.put("validator", 3)
	all := r.lease(id, 3)
	_, _, err := r.jobs.Cancel(t.Context(), all[0].JobID, false)
	testutil.Ok(t, err)
	if _, err := r.Beat(t.Context(), all[0].ID, id, all[0].Fence, nil); !errors.Is(err, jobs.ErrLeaseLost) || r.get(id).Held != 2 {
		t.Errorf("heartbeat: got %v with %d held, want %v with 2", err, r.get(id).Held, jobs.ErrLeaseLost)
	}
	testutil.Ok(t, r.jobs.Delete(t.Context(), all[1].JobID))
	if err := r.Complete(t.Context(), all[1].ID, id, all[1].Fence, jobs.Answer{}); !errors.Is(err, jobs.ErrLeaseLost) {
		t.Errorf("complete: got %v, want %v", err, jobs.ErrLeaseLost)
	}
	testutil.Eventually(t, "it holds nothing", func() bool { return r.get(id).Held == 0 })
}

func TestUsageAndFailuresAreBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.New(t), nil)
	id := r.register("one", 1, "validator")
	r.put("validator", 1)
	a := r.leaseOne(id)
	many := map[string]int64{}
	for i := range 21 {
		many[strings.Repeat("n", i+1)] = 1
	}
	for name, usage := range map[string]map[string]int64{
		"many": many, "negative": {"n": -1}, "huge": {"n": 1e12 + 1}, "name": {"a b": 1}, "empty name": {"": 1}, "control": {"a\x00": 1},
	} {
		var wrong *jobs.FieldError
		if _, err := r.Beat(t.Context(), a.ID, id, a.Fence, usage); !errors.As(err, &wrong) || !strings.HasPrefix(wrong.Field, "usage") {
			t.Errorf("usage %s: got %v, want a *job.FieldError", name, err)
		}
	}
	day := 25 * time.Hour
	for name, err := range map[string]error{
		"blank": r.Fail(t.Context(), a.ID, id, a.Fence, " \x00 ", nil, false, nil),
		"long":  r.Fail(t.Context(), a.ID, id, a.Fence, "no", &day, false, nil),
	} {
		var wrong *jobs.FieldError
		if !errors.As(err, &wrong) {
			t.Errorf("%s: got %v, want a *job.FieldError", name, err)
		}
	}
	testutil.Ok(t, r.Fail(t.Context(), a.ID, id, a.Fence, "a\x00b"+string([]byte{0xff})+strings.Repeat("x", 5000), nil, true, maps.Clone(map[string]int64{"n": 1e12})))
	it := r.item(0)
	if it.Status != jobs.ItemFailed || len(it.LastError) > 2100 || (strings.Contains(it.LastError, "\x00") || !utf8.ValidString(it.LastError)) {
		t.Errorf("got %s with an error of %d bytes, want failed with at most 2100 plain ones", it.Status, len(it.LastError))
	}
}

// The first response counts. A different one for the same assignment is an error, also when both arrive at once.
func TestAnotherAnswerIsRejected(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		r := newRig(t, rdb, nil)
		id := r.register("one", 4, "validator")
		r.put("validator", 4)
		for range 4 {
			a := r.leaseOne(id)
			answers := []jobs.Answer{{Verdict: "accept"}, {Verdict: "reject", Reason: "no"}}
			errs := make([]error, 2)
			var both sync.WaitGroup
			for i := range answers {
				both.Go(func() { errs[i] = r.Complete(t.Context(), a.ID, id, a.Fence, answers[i]) })
			}
			both.Wait()
			if (errs[0] == nil) == (errs[1] == nil) || !errors.Is(errors.Join(errs...), jobs.ErrLeaseLost) {
				t.Errorf("two concurrent results: got %v and %v, want one success", errs[0], errs[1])
			}
			for i := range answers {
				if err := r.Complete(t.Context(), a.ID, id, a.Fence, answers[i]); (err == nil) != (errs[i] == nil) {
					t.Errorf("result %d repeated: got %v, want %v as before", i, err, errs[i])
				}
			}
		}
	})
}

func TestUsageThatGrowsIsProgress(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.New(t), nil)
	id := r.register("one", 1, "validator")
	r.put("validator", 1)
	a := r.leaseOne(id)
	record := "muster:{jobs}:j:" + a.JobID
	for i, tokens := range []int64{1, 2, 2, 1} {
		testutil.Ok(t, r.rdb.HSet(t.Context(), record, "progressed", 1).Err())
		testutil.Must(r.Beat(t.Context(), a.ID, id, a.Fence, map[string]int64{"tokens": tokens}))(t)
		if got := r.rdb.HGet(t.Context(), record, "progressed").Val() != "1"; got != (i < 2) {
			t.Errorf("beat %d with %d tokens: progress %v, want %v", i, tokens, got, i < 2)
		}
	}
}

// An assignment has the URL of the job, and the hashes of a large prompt and context instead of them.
func TestALargeInputIsNamedByURLAndHash(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.New(t), nil)
	r.input.Prompt = strings.Repeat("p", jobs.MaxInline+1)
	r.input.Context = []byte(`{"a":"` + r.input.Prompt + `"}`)
	id := r.register("one", 1, "validator")
	r.put("validator", 1)
	a := r.leaseOne(id)
	url := "/v1/jobs/" + a.JobID
	if b := a.Body().Job; b.Prompt != "" || b.PromptURL != url || len(b.PromptSHA256) != 64 || string(b.Context) != "{}" || b.ContextURL != url || len(b.ContextSHA256) != 64 {
		t.Errorf("got %+v, want a URL and hashes in place of the prompt and the context", b)
	}
}

// Once its deadline has passed, an assignment cannot be completed, and its work goes to others.
func TestAnAnswerAfterTheDeadlineIsRejected(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		r := newRig(t, rdb, func(cfg *setup) { cfg.timeout = time.Second }) // so that a loaded machine gets its work in time
		id, other := r.register("one", 1, "validator"), r.register("two", 1, "validator")
		r.put("validator", 1)
		a := r.leaseOne(id)
		testutil.Eventually(t, "the deadline", func() bool {
			_, err := r.Beat(t.Context(), a.ID, id, a.Fence, nil)
			return errors.Is(err, jobs.ErrLeaseLost)
		})
		if err := r.Complete(t.Context(), a.ID, id, a.Fence, jobs.Answer{}); !errors.Is(err, jobs.ErrLeaseLost) {
			t.Errorf("complete: got %v, want %v", err, jobs.ErrLeaseLost)
		}
		if b := r.leaseOne(other); b.Key != a.Key || b.Attempt != 2 || b.ID == a.ID {
			t.Errorf("the other got %+v, want attempt 2 of %s", b, a.Key)
		}
		if got := r.get(id); got.Held != 0 || got.Failed != 1 || !strings.Contains(got.LastError, "deadline") {
			t.Errorf("got agent %+v, want none held and one that failed by its deadline", got)
		}
	})
}
