package agent_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/jobs"
	"muster/jobs/agent"
	"muster/jobs/pipeline"
)

// pullFrom polls services in turn, as an agent does, until ctx ends.
func pullFrom(ctx context.Context, t *testing.T, all []*agent.Service, id string, do func(a agent.Assignment, s *agent.Service) error) {
	for n := 0; ctx.Err() == nil; n++ {
		s := all[n%len(all)]
		got, err := s.Lease(ctx, id, nil, 2, time.Second)
		for _, a := range got {
			err = errors.Join(err, do(a, s))
		}
		if err != nil && ctx.Err() == nil {
			t.Error(err)
		}
	}
}

// Agents that pull, an agent that is pushed to and a Go task do the stages of jobs, in two processes.
func TestAgentsAndGoTasksCompleteJobs(t *testing.T) {
	t.Parallel()
	redistest.Both(t, completeJobs)
}

// Processes whose clocks differ from the clock of Redis behave the same.
func TestAgentsLiveByTheClockOfRedis(t *testing.T) {
	t.Parallel()
	for name, skew := range map[string]time.Duration{"ahead": -200 * time.Hour, "behind": 200 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb, jump := redistest.Clock(t)
			jump(skew)
			completeJobs(t, rdb)
		})
	}
}

func completeJobs(t *testing.T, rdb redis.UniversalClient) {
	t.Helper()
	const jobsN, itemsN = 3, 5
	p := newPushed(t)
	p.answer = func(w http.ResponseWriter, _ *http.Request, b agent.Body) {
		fmt.Fprintf(w, `{"verdict":"accept","item":{"external_id":"x-%s"},"usage":{"tokens":2}}`, b.Item.Key)
	}
	work(t, rdb, "default", func(_ context.Context, b agent.Body) (agent.Reply, error) {
		if b.Takes != pipeline.TakesJob || b.Stage != "publish" {
			t.Errorf("the Go task got %+v", b)
		}
		return agent.Reply{Result: []byte(`{"published":true}`), Usage: map[string]int64{"published": 1}}, nil
	})
	change := func(cfg *setup) {
		allowAll(p)(cfg)
		cfg.TaskRoles = func(context.Context) ([]string, error) { return []string{"my.check"}, nil }
	}
	r := newRig(t, rdb, change)
	fleet, all := r.jobs, []*agent.Service{r.Service, newRigOn(t, rdb, r.items, change).Service}
	r.registerPush(p, "push", 3)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	pull := func(role string, do func(a agent.Assignment, s *agent.Service) error) {
		id := r.register(role, 2, role)
		wg.Go(func() { pullFrom(ctx, t, all, id, do) })
	}
	pull("creator", func(a agent.Assignment, s *agent.Service) error {
		for i := range itemsN {
			if _, err := s.AddItems(ctx, a.ID, a.Agent, a.Fence, []jobs.NewItem{{Key: fmt.Sprint("k", i), Text: "text"}}); err != nil {
				return err
			}
		}
		return s.Complete(ctx, a.ID, a.Agent, a.Fence, jobs.Answer{Usage: map[string]int64{"tokens": 100}})
	})
	pull("validator", func(a agent.Assignment, s *agent.Service) error {
		return s.Complete(ctx, a.ID, a.Agent, a.Fence, jobs.Answer{Verdict: "accept", Usage: map[string]int64{"tokens": 2}})
	})
	var ids []string
	for i := range jobsN {
		j, _, err := fleet.Create(ctx, jobs.Request{Pipeline: "three", Prompt: fmt.Sprint("job ", i)})
		testutil.Ok(t, err)
		ids = append(ids, j.ID)
	}
	for _, id := range ids {
		var j jobs.Job
		testutil.Eventually(t, "job "+id+" is completed", func() bool {
			var err error
			if j, err = fleet.Get(ctx, id); err != nil {
				t.Fatal(err)
			}
			return j.Status.Terminal()
		})
		if j.Status != jobs.Completed || j.Items.Integrated != itemsN {
			t.Errorf("got job %s with %+v: %s, want completed with %d integrated", j.Status, j.Items, j.ErrorMessage, itemsN)
		}
		testutil.Eventually(t, "the usage of job "+id+" is added", func() bool {
			j, err := fleet.Get(ctx, id)
			return err == nil && j.Usage["tokens"] == 100+2*itemsN && j.Usage["published"] == 1
		})
	}
	if len(p.requests()) == 0 {
		t.Error("nothing was pushed")
	}
	cancel()
	wg.Wait()
}
