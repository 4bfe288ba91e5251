package agent_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/jobs"
	"muster/jobs/agent"
)

func TestActivityIsCountedByHourAndAgent(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		r := newRig(t, rdb, nil)
		one, two := r.register("one", 2, "validator"), r.register("two", 2, "creator")
		r.put("validator", 2)
		r.put("creator", 1)
		first, second, other := r.leaseOne(one), r.leaseOne(one), r.leaseOne(two)
		usage := map[string]int64{"tokens": 100, "requests": 2, "seconds": 9}
		testutil.Ok(t, r.Complete(t.Context(), first.ID, one, first.Fence, jobs.Answer{Usage: usage}))
		testutil.Ok(t, r.Fail(t.Context(), second.ID, one, second.Fence, "no", nil, true, usage))
		testutil.Ok(t, r.Release(t.Context(), other.ID, two, other.Fence))
		got := testutil.Must(r.Activity(t.Context(), agent.MaxHours))(t)
		sums := map[string]agent.Activity{}
		for _, a := range got {
			if a.Hour.Minute() != 0 || time.Since(a.Hour) > 2*time.Hour || a.AverageSeconds < 0 || a.AverageSeconds > 60 {
				t.Errorf("got %+v, want the hour of now and a time below a minute", a)
			}
			s := sums[a.Name] // the test may run while an hour ends
			sums[a.Name] = agent.Activity{Assignments: s.Assignments + a.Assignments, Failed: s.Failed + a.Failed, Requests: s.Requests + a.Requests, Tokens: s.Tokens + a.Tokens}
		}
		if want := (agent.Activity{Assignments: 2, Failed: 1, Requests: 4, Tokens: 200}); sums["one"] != want {
			t.Errorf("one: got %+v, want %+v", sums["one"], want)
		}
		if want := (agent.Activity{Assignments: 1}); sums["two"] != want {
			t.Errorf("two: got %+v, want %+v", sums["two"], want)
		}
		var wrong *jobs.FieldError
		if _, err := r.Activity(t.Context(), 25); !errors.As(err, &wrong) {
			t.Errorf("25 hours: got %v, want a *job.FieldError", err)
		}
	})
}

func TestActivityExpires(t *testing.T) {
	t.Parallel()
	rdb := redistest.New(t)
	r := newRig(t, rdb, nil)
	id := r.register("one", 1, "validator")
	r.put("validator", 1)
	a := r.leaseOne(id)
	testutil.Ok(t, r.Complete(t.Context(), a.ID, id, a.Fence, jobs.Answer{}))
	keys := testutil.Must(rdb.Keys(t.Context(), "muster:{agents}:*").Result())(t)
	seen := 0
	for _, key := range keys {
		if !strings.Contains(key, ":hour:") {
			continue
		}
		seen++
		if ttl := rdb.TTL(t.Context(), key).Val(); ttl <= 24*time.Hour {
			t.Errorf("%s expires in %v, want more than a day", key, ttl)
		}
	}
	if seen != 1 {
		t.Errorf("got %d counters of %v, want one of the hour", seen, keys)
	}
}
