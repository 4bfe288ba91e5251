package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"muster/internal/limit"
	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/internal/webhook"
	"muster/jobs"
	"muster/jobs/agent"
)

// pushed is an agent that work is pushed to.
type pushed struct {
	*httptest.Server
	answer func(w http.ResponseWriter, r *http.Request, body agent.Body)
	health func(w http.ResponseWriter)

	mu     sync.Mutex
	secret string
	got    []agent.Body
	wrong  []error // signatures
	checks int
}

// newPushed starts an agent that responds to every assignment with {} unless answer is set.
func newPushed(t *testing.T) *pushed {
	t.Helper()
	p := &pushed{}
	p.Server = httptest.NewServer(p)
	t.Cleanup(p.Close)
	return p
}

func (p *pushed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	answer, health, secret := p.answer, p.health, p.secret
	p.mu.Unlock()
	if r.URL.Path == "/health" {
		p.mu.Lock()
		p.checks++
		p.mu.Unlock()
		if health != nil {
			health(w)
			return
		}
		fmt.Fprint(w, `{"status":"healthy","last_activity":"2026-01-02T03:04:05Z","current_job_id":"job-1"}`)
		return
	}
	raw, _ := io.ReadAll(r.Body)
	var body agent.Body
	err := json.Unmarshal(raw, &body)
	if r.URL.Path != "/assignments" || r.Method != http.MethodPost {
		err = fmt.Errorf("%s %s", r.Method, r.URL.Path)
	}
	if secret != "" {
		err = errors.Join(err, webhook.Verify(r.Header, raw, time.Now(), secret))
	}
	p.mu.Lock()
	p.got = append(p.got, body)
	if err != nil {
		p.wrong = append(p.wrong, err)
	}
	p.mu.Unlock()
	if answer != nil {
		answer(w, r, body)
		return
	}
	fmt.Fprint(w, "{}")
}

func (p *pushed) set(change func(p *pushed)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(p)
}

// requests returns the received requests.
func (p *pushed) requests() []agent.Body {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]agent.Body{}, p.got...)
}

// pushRig is a service that may push to all of loopback, fast.
func pushRig(t *testing.T, rdb redis.UniversalClient, agents ...*pushed) *rig {
	t.Helper()
	return newRig(t, rdb, allowAll(agents...))
}

func allowAll(agents ...*pushed) func(cfg *setup) {
	return func(cfg *setup) {
		for _, p := range agents {
			cfg.Allow = append(cfg.Allow, p.URL)
		}
	}
}

func (r *rig) registerPush(p *pushed, name string, capacity int) string {
	r.t.Helper()
	a, secret, err := r.Register(r.t.Context(), agent.Registration{Name: name, Roles: []string{"validator"}, Capacity: capacity, URL: p.URL})
	testutil.Ok(r.t, err)
	p.set(func(p *pushed) { p.secret = secret })
	return a.ID
}

// Work is pushed to an agent that has registered only while its URL is allowed and its owner may act for it.
func TestPushesStopWhenTheAgentMayNoLongerWork(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(r *rig, active *atomic.Bool) error{
		"key revoked":     func(_ *rig, active *atomic.Bool) error { active.Store(false); return nil },
		"URL not allowed": func(r *rig, _ *atomic.Bool) error { return r.Reload(nil, nil, agent.Limits{}, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var active atomic.Bool
			active.Store(true)
			p := newPushed(t)
			working, finish := make(chan struct{}, 1), make(chan struct{})
			p.answer = func(w http.ResponseWriter, _ *http.Request, _ agent.Body) {
				working <- struct{}{}
				<-finish
				fmt.Fprint(w, `{}`)
			}
			r := newRig(t, redistest.New(t), func(cfg *setup) {
				allowAll(p)(cfg)
				cfg.OwnerActive = func(_ context.Context, owner string) (bool, error) { return owner != "key:push" || active.Load(), nil }
			})
			a, _, err := r.Register(t.Context(), agent.Registration{Name: "one", Roles: []string{"validator"}, URL: p.URL, Owner: "key:push"})
			testutil.Ok(t, err)
			r.put("validator", 2)
			<-working
			testutil.Ok(t, stop(r, &active))
			close(finish) // its response does not count any more
			testutil.Eventually(t, "the agent is unavailable, and its work goes to another", func() bool {
				return r.get(a.ID).State == agent.StateUnavailable && r.counts().Pending == 2
			})
			other := r.register("two", 2, "validator")
			if got := r.lease(other, 2); len(got) == 0 {
				t.Error("another agent gets no work")
			}
			if n := len(p.requests()); n != 1 {
				t.Errorf("%d assignments were pushed, want 1", n)
			}
		})
	}
}

func TestPushedWorkIsSignedAndCompletedByTheAnswer(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		p := newPushed(t)
		p.answer = func(w http.ResponseWriter, _ *http.Request, _ agent.Body) {
			fmt.Fprint(w, `{"verdict":"reject","reason":"old","item":{"name":"n"},"usage":{"tokens":3}}`)
		}
		r := pushRig(t, rdb, p)
		id := r.registerPush(p, "one", 2)
		r.put("validator", 5)
		testutil.Eventually(t, "all are done", func() bool { return r.counts().Rejected == 5 && r.get(id).Done == 5 })
		if it := r.item(0); it.RejectionReason != "old" || it.Name != "n" {
			t.Errorf("got item %+v", it)
		}
		testutil.Eventually(t, "the usage is added", func() bool { usage, n := r.usage(); return usage["tokens"] == 15 && n == 5 })
		body := p.requests()[0]
		if body.Job.ID != r.items.jobs[0] || body.Job.Document.URL != "/v1/jobs/"+body.Job.ID+"/document" || body.Item.Text == "" || body.Fence == 0 || string(body.Job.Context) != `{"a":1}` {
			t.Errorf("got body %+v", body)
		}
		if len(p.wrong) > 0 {
			t.Errorf("bad requests: %v", p.wrong)
		}
		testutil.Eventually(t, "the health check is stored", func() bool {
			got := r.get(id)
			return got.CurrentJob == "job-1" && got.Activity == "2026-01-02T03:04:05Z"
		})
		if got := r.get(id); got.Breaker != "closed" || got.Held != 0 {
			t.Errorf("got agent %+v", got)
		}
	})
}

func TestAnswersThatAreNoUseAreFailedAttempts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		answer  http.HandlerFunc
		message string
	}{
		{"HTML", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>\x00<body>It works!") }, "not a JSON object: <html> <body>It works!"},
		{"empty", func(http.ResponseWriter, *http.Request) {}, "empty"},
		{"list", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `[1]`) }, "not a JSON object"},
		{"wrong type", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"verdict":7}`) }, "verdict cannot be a number"},
		{"500", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "broken", 500) }, "HTTP 500: broken"},
		{"404", func(w http.ResponseWriter, r *http.Request) { http.NotFound(w, r) }, "HTTP 404"},
		{"503 without Retry-After", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }, "HTTP 503"},
		{"redirect", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/health", http.StatusTemporaryRedirect)
		}, "HTTP 307"},
		{"large", func(w http.ResponseWriter, _ *http.Request) {
			block := []byte(strings.Repeat(" ", 1<<20))
			for range 17 {
				_, _ = w.Write(block)
			}
		}, "exceeds 16 MiB"},
		{"error", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"error":"cannot","permanent":true}`) }, "cannot"},
		{"usage", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"usage":{"n":-1}}`) }, "usage.n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := newPushed(t)
			p.answer = func(w http.ResponseWriter, r *http.Request, _ agent.Body) { c.answer(w, r) }
			r := pushRig(t, redistest.New(t), p)
			id := r.registerPush(p, "one", 1)
			r.put("validator", 1)
			testutil.Eventually(t, "an attempt has failed", func() bool { return r.item(0).LastError != "" })
			if got := r.item(0).LastError; !strings.Contains(got, c.message) || len(got) > 400 {
				t.Errorf("got error %q, want one with %q", got, c.message)
			}
			testutil.Eventually(t, "the agent has the error", func() bool { return strings.Contains(r.get(id).LastError, c.message) })
		})
	}
}

// An agent can accept work, and end it by calls.
func TestAcceptedWorkIsEndedByCalls(t *testing.T) {
	t.Parallel()
	p := newPushed(t)
	p.answer = func(w http.ResponseWriter, _ *http.Request, _ agent.Body) { w.WriteHeader(http.StatusAccepted) }
	r := newRig(t, redistest.New(t), func(cfg *setup) {
		allowAll(p)(cfg)
		cfg.lease = 3 * time.Second
	})
	id := r.registerPush(p, "one", 1)
	r.put("validator", 1)
	testutil.Eventually(t, "it was pushed", func() bool { return len(p.requests()) == 1 })
	a := p.requests()[0]
	began := time.Now()
	testutil.Eventually(t, "two leases have passed", func() bool {
		testutil.Must(r.Beat(t.Context(), a.ID, id, a.Fence, nil))(t)
		return time.Since(began) > 2*time.Second
	})
	if err := r.Complete(t.Context(), a.ID, id, a.Fence, jobs.Answer{}); err != nil {
		t.Error(err)
	}
	if n := len(p.requests()); n != 1 {
		t.Errorf("it was pushed %d times, want once", n)
	}
}

func TestABusyAgentRestsWithoutAnAttempt(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
				p := newPushed(t)
				var times []time.Time
				p.answer = func(w http.ResponseWriter, _ *http.Request, _ agent.Body) {
					p.mu.Lock()
					times = append(times, time.Now())
					n := len(times)
					p.mu.Unlock()
					if n == 1 {
						w.Header().Set("Retry-After", "1")
						w.WriteHeader(status)
						return
					}
					fmt.Fprint(w, "{}")
				}
				r := pushRig(t, rdb, p)
				r.registerPush(p, "one", 1)
				r.put("validator", 1)
				testutil.Eventually(t, "it is done", func() bool { return r.counts().Integrated == 1 })
				p.mu.Lock()
				defer p.mu.Unlock()
				if len(times) != 2 || times[1].Sub(times[0]) < 900*time.Millisecond || r.item(0).RetryCount != 0 {
					t.Errorf("pushed at %v with %d failed attempts, want twice, a second apart, and 0", times, r.item(0).RetryCount)
				}
			})
		})
	}
}

// An agent that never responds keeps the work until the deadline; the process extends the lease meanwhile.
func TestSilentAgentLosesTheWorkAtTheDeadline(t *testing.T) {
	t.Parallel()
	p := newPushed(t)
	ended := make(chan struct{}, 100)
	p.answer = func(_ http.ResponseWriter, r *http.Request, _ agent.Body) {
		<-r.Context().Done()
		ended <- struct{}{}
	}
	r := newRig(t, redistest.New(t), func(cfg *setup) {
		allowAll(p)(cfg)
		cfg.lease, cfg.timeout = time.Second, 1500*time.Millisecond
	})
	began := time.Now()
	r.registerPush(p, "one", 1)
	r.put("validator", 1)
	<-ended
	if took := time.Since(began); took < 1400*time.Millisecond {
		t.Errorf("the request ended after %v, want the deadline", took)
	}
	testutil.Eventually(t, "an attempt has failed by the deadline", func() bool {
		it := r.item(0)
		return it.RetryCount >= 1 && strings.Contains(it.LastError, "deadline")
	})
}

// A dead agent's work goes to others at once, without an attempt.
func TestTheWorkOfADeadAgentGoesToOthers(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		dies, lives := newPushed(t), newPushed(t)
		dies.answer = func(w http.ResponseWriter, _ *http.Request, _ agent.Body) { w.WriteHeader(http.StatusAccepted) }
		r := pushRig(t, rdb, dies, lives)
		id := r.registerPush(dies, "dies", 3)
		r.put("validator", 3)
		testutil.Eventually(t, "it holds all", func() bool { return len(dies.requests()) == 3 && r.get(id).Held == 3 })
		other := r.registerPush(lives, "lives", 3)
		dies.Close()
		testutil.Eventually(t, "the other has done all", func() bool { return r.get(other).Done == 3 })
		testutil.Eventually(t, "the dead one is unavailable", func() bool {
			a := r.get(id)
			return a.State == agent.StateUnavailable && a.Health == "connection refused" && a.Held == 0
		})
		for i := range 3 {
			if got := r.item(i).RetryCount; got != 0 {
				t.Errorf("item %d has %d failed attempts, want 0", i, got)
			}
		}
		a := dies.requests()[0]
		if err := r.Complete(t.Context(), a.ID, id, a.Fence, jobs.Answer{}); !errors.Is(err, jobs.ErrLeaseLost) {
			t.Errorf("late response: got %v, want %v", err, jobs.ErrLeaseLost)
		}
	})
}

// A process that ends returns the work of its open requests, and another one pushes it again. If it dies, that is another
// attempt, when the lease has expired.
func TestAnotherProcessPushesTheSameWorkAgain(t *testing.T) {
	t.Parallel()
	for name, address := range map[string]func(testing.TB) string{"redis": redistest.URL, "miniredis": redistest.MiniURL} {
		for end, retries := range map[string]int{"ends": 0, "dies": 1} {
			t.Run(name+" "+end, func(t *testing.T) {
				t.Parallel()
				p := newPushed(t)
				var answers atomic.Int64
				p.answer = func(w http.ResponseWriter, r *http.Request, _ agent.Body) {
					if answers.Add(1) == 1 {
						<-r.Context().Done()
						return
					}
					fmt.Fprint(w, `{"verdict":"accept"}`)
				}
				change := func(cfg *setup) {
					allowAll(p)(cfg)
					cfg.lease = 2 * time.Second
				}
				at := address(t)
				rdb := connect(t, at)
				first := newRig(t, rdb, change)
				id := first.registerPush(p, "one", 1)
				first.put("validator", 1)
				testutil.Eventually(t, "it was pushed", func() bool { return len(p.requests()) == 1 })
				if end == "dies" {
					testutil.Ok(t, rdb.Close())
				} else {
					first.stop()
				}
				second := newRigOn(t, connect(t, at), first.items, change)
				testutil.Eventually(t, "it is done", func() bool { return second.get(id).Done == 1 })
				got := p.requests()
				if len(got) != 2 || got[0].IdempotencyKey != got[1].IdempotencyKey || got[0].ID == got[1].ID || got[1].Attempt != retries+1 {
					t.Errorf("got requests %+v, want two with one idempotency key and two ids, the last of attempt %d", got, retries+1)
				}
				if it := second.item(0); it.RetryCount != retries || it.Status != jobs.ItemIntegrated {
					t.Errorf("the item is %s with %d failed attempts, want integrated with %d", it.Status, it.RetryCount, retries)
				}
			})
		}
	}
}

// After five failures in a row the breaker opens, and then admits two requests at a time.
func TestTheBreakerOfAnAgentOpens(t *testing.T) {
	t.Parallel()
	changes := make(chan string, 10)
	p := newPushed(t)
	p.answer = func(w http.ResponseWriter, _ *http.Request, _ agent.Body) { http.Error(w, "no", 500) }
	r := newRig(t, redistest.New(t), func(cfg *setup) {
		allowAll(p)(cfg)
		cfg.HealthEvery, cfg.HealthMost = 2*time.Second, time.Minute
		cfg.BreakerChanged = func(_ context.Context, s limit.BreakerState) { changes <- s.State + " " + s.Key }
	})
	id := r.registerPush(p, "one", 1)
	testutil.Must(r.Check(t.Context(), id))(t)
	r.put("validator", 10)
	testutil.Eventually(t, "the breaker is open", func() bool { return r.get(id).Breaker == "open" })
	if n := len(p.requests()); n != 5 {
		t.Errorf("it was pushed %d times, want 5", n)
	}
	p.set(func(p *pushed) { p.answer = nil })
	testutil.Eventually(t, "all are done", func() bool { return r.counts().Integrated == 10 })
	if got := r.get(id).Breaker; got != "closed" {
		t.Errorf("the breaker is %s, want closed", got)
	}
	if opened, closed := <-changes, <-changes; opened != "open agent:"+id || closed != "closed agent:"+id {
		t.Errorf("got the changes %s and %s, want that it opened and closed", opened, closed)
	}
}

func TestMetricsCountAgentsAndPushes(t *testing.T) {
	t.Parallel()
	p := newPushed(t)
	r := pushRig(t, redistest.New(t), p)
	id := r.registerPush(p, "one", 1)
	r.register("two", 1, "x")
	r.put("validator", 2)
	testutil.Eventually(t, "both are done", func() bool { return r.get(id).Done == 2 })
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(r.Service)
	found := testutil.Must(reg.Gather())(t)
	values := map[string]float64{}
	for _, family := range found {
		for _, m := range family.GetMetric() {
			name := family.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			values[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	for name, want := range map[string]float64{
		"muster_agents_up": 1, "muster_agents healthy": 2, "muster_agents draining": 0, "muster_agents_assignments_held": 0,
		"muster_agents_breakers closed": 1, "muster_agents_pushes_total completed": 2, "muster_agents_pushes_total failed": 0,
	} {
		if got, ok := values[name]; !ok || got != want {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
}

// An item that kills its agents must fail eventually. The first two lost agents do not count as attempts.
func TestWorkThatKillsItsAgentsUsesUpAttempts(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		p := newPushed(t)
		p.answer = func(w http.ResponseWriter, _ *http.Request, b agent.Body) {
			if b.Item.Key == "item-0" {
				panic(http.ErrAbortHandler) // the connection breaks
			}
			fmt.Fprint(w, "{}")
		}
		p.Config.ErrorLog = log.New(io.Discard, "", 0)
		r := pushRig(t, rdb, p)
		r.registerPush(p, "one", 2)
		r.put("validator", 2)
		pushes := func() (n int) {
			for _, b := range p.requests() {
				if b.Item.Key == "item-0" {
					n++
				}
			}
			return n
		}
		testutil.Eventually(t, "it has failed twice", func() bool { return r.item(0).RetryCount >= 2 })
		if n := pushes(); n < 4 {
			t.Errorf("got %d pushes, want at least 4", n)
		}
		if last := r.item(0).LastError; !strings.Contains(last, "has gone while it worked on this") {
			t.Errorf("got the error %q, want that agents have gone", last)
		}
		testutil.Eventually(t, "the other is done", func() bool { return r.item(1).Status == jobs.ItemIntegrated })
		if n := r.item(1).RetryCount; n != 0 {
			t.Errorf("the other item: got %d failed attempts, want 0", n)
		}
	})
}

// An agent that is not there has not seen the work.
func TestWorkOfAnAgentThatIsNotThereUsesUpNoAttempt(t *testing.T) {
	t.Parallel()
	p := newPushed(t)
	r := newRig(t, redistest.New(t), func(cfg *setup) {
		allowAll(p)(cfg)
		cfg.HealthEvery = time.Hour // so that only pushes notice
	})
	id := r.registerPush(p, "one", 1)
	testutil.Must(r.Check(t.Context(), id))(t)
	p.Close()
	r.put("validator", 1)
	testutil.Eventually(t, "it was tried", func() bool { return strings.Contains(r.item(0).LastError, "connection refused") })
	if n := r.item(0).RetryCount; n != 0 {
		t.Errorf("got %d failed attempts, want 0", n)
	}
}
