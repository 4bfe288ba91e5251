package agent_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/jobs"
	"muster/jobs/agent"
)

func TestAHealthCheckSaysWhatFailed(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		p := newPushed(t)
		r := newRig(t, rdb, func(cfg *setup) {
			allowAll(p)(cfg)
			cfg.Heartbeat, cfg.HealthTimeout = 20*time.Millisecond, 200*time.Millisecond
		})
		id := r.registerPush(p, "one", 1)
		stall := make(chan struct{})
		defer close(stall)
		for _, c := range []struct {
			health func(w http.ResponseWriter)
			want   string
			state  string
		}{
			{nil, "", agent.StateHealthy},
			{func(w http.ResponseWriter) { w.WriteHeader(503) }, "HTTP 503", agent.StateUnavailable},
			{func(w http.ResponseWriter) { fmt.Fprint(w, "<html>OK") }, "", agent.StateHealthy},
			{func(http.ResponseWriter) { <-stall }, "connection timeout", agent.StateUnavailable},
		} {
			p.set(func(p *pushed) { p.health = c.health })
			testutil.Eventually(t, "the check reports "+c.want, func() bool {
				got := testutil.Must(r.Check(t.Context(), id))(t)
				return got.Health == c.want && got.State == c.state
			})
		}
	})
}

// Checks become rarer while they fail, and an agent that is back gets work at once.
func TestChecksBackOffAndAnAgentReturns(t *testing.T) {
	t.Parallel()
	p := newPushed(t)
	r := newRig(t, redistest.New(t), func(cfg *setup) {
		allowAll(p)(cfg)
		cfg.HealthMost = 800 * time.Millisecond
		cfg.Heartbeat = 20 * time.Millisecond
	})
	p.set(func(p *pushed) { p.health = func(w http.ResponseWriter) { w.WriteHeader(500) } })
	id := r.registerPush(p, "one", 1)
	testutil.Eventually(t, "the breaker is open", func() bool { return r.get(id).Breaker != "closed" })
	count := func() int {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.checks
	}
	before, began := count(), time.Now()
	testutil.Eventually(t, "some time has passed", func() bool { return time.Since(began) > 1600*time.Millisecond })
	if n := count() - before; n > 5 { // without back-off there were 32
		t.Errorf("%d checks in %v, want at most 5", n, time.Since(began))
	}
	r.put("validator", 1)
	p.set(func(p *pushed) { p.health = nil })
	testutil.Eventually(t, "it works again", func() bool { return r.get(id).Done == 1 && r.get(id).Breaker == "closed" })
}

// Processes share the checks.
func TestProcessesShareHealthChecks(t *testing.T) {
	t.Parallel()
	p := newPushed(t)
	rdb := redistest.New(t)
	slow := func(cfg *setup) {
		allowAll(p)(cfg)
		cfg.HealthEvery, cfg.HealthMost = 500*time.Millisecond, time.Second
	}
	r := newRig(t, rdb, slow)
	for range 3 {
		newRig(t, rdb, slow)
	}
	r.registerPush(p, "one", 1)
	began := time.Now()
	testutil.Eventually(t, "some time has passed", func() bool { return time.Since(began) > 2*time.Second })
	p.mu.Lock()
	defer p.mu.Unlock()
	if most := int(time.Since(began)/(500*time.Millisecond)) + 1; p.checks < 1 || p.checks > most {
		t.Errorf("4 processes made %d checks in %v, want 1 to %d", p.checks, time.Since(began), most)
	}
}

// Any call is a sign of life; without one, an agent is unavailable after three heartbeats.
func TestAnAgentThatIsSilentIsUnavailable(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		r := newRig(t, rdb, func(cfg *setup) { cfg.Heartbeat = 100 * time.Millisecond })
		id := r.register("one", 1, "validator")
		r.put("validator", 1)
		a := r.leaseOne(id)
		gone := func() bool {
			roles := testutil.Must(r.Roles(t.Context()))(t)
			one, listed := roles["validator"]
			a := r.get(id)
			return a.State == agent.StateUnavailable && strings.HasPrefix(a.Health, "no call for ") && listed && one == 0
		}
		for call, do := range map[string]func() error{
			"heartbeat of the assignment": func() error { _, err := r.Beat(t.Context(), a.ID, id, a.Fence, nil); return err },
			"heartbeat":                   func() error { _, err := r.Heartbeat(t.Context(), id); return err },
			"poll":                        func() error { _, err := r.Lease(t.Context(), id, nil, 1, 0); return err },
			"items": func() error {
				if _, err := r.AddItems(t.Context(), a.ID, id, a.Fence, nil); !errors.As(err, new(*jobs.FieldError)) { // the stage emits none
					return err
				}
				return nil
			},
		} {
			testutil.Eventually(t, "it is unavailable", gone)
			testutil.Eventually(t, "after a "+call+" it is healthy", func() bool {
				testutil.Ok(t, do())
				a := r.get(id)
				return a.State == agent.StateHealthy && a.Health == ""
			})
		}
	})
}
