package agent_test

import (
	"errors"
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
		for _, a := range got {
			if ttl := rdb.TTL(t.Context(), "muster:{agents}:hour:"+a.Hour.Format("2006010215")).Val(); ttl <= 24*time.Hour {
				t.Errorf("the counters of %s expire in %v, want more than a day", a.Hour, ttl)
			}
		}
		var wrong *jobs.FieldError
		if _, err := r.Activity(t.Context(), 25); !errors.As(err, &wrong) {
			t.Errorf("25 hours: got %v, want a *job.FieldError", err)
		}
	})
}
