package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/jobs"
	"muster/jobs/agent"
	"muster/tasks"
)

func TestBadRegistrationsAreRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.New(t), func(cfg *setup) { cfg.Allow = []string{"http://10.0.0.7:8001/agents"} })
	roles := []string{"validator"}
	many := map[string]string{}
	for i := range 21 {
		many[fmt.Sprint(i)] = ""
	}
	for _, c := range []struct {
		name  string
		r     agent.Registration
		field string
	}{
		{"no name", agent.Registration{Roles: roles}, "name"},
		{"space", agent.Registration{Name: " a", Roles: roles}, "name"},
		{"NUL", agent.Registration{Name: "a\x00", Roles: roles}, "name"},
		{"UTF-8", agent.Registration{Name: "a\xff", Roles: roles}, "name"},
		{"long name", agent.Registration{Name: strings.Repeat("é", 101), Roles: roles}, "name"},
		{"no role", agent.Registration{Name: "a"}, "roles"},
		{"many roles", agent.Registration{Name: "a", Roles: make([]string, 21)}, "roles"},
		{"bad role", agent.Registration{Name: "a", Roles: []string{"ok", "Not"}}, "roles[1]"},
		{"a task as role", agent.Registration{Name: "a", Roles: []string{"task:x"}}, "roles[0]"},
		{"capacity", agent.Registration{Name: "a", Roles: roles, Capacity: 1001}, "capacity"},
		{"negative capacity", agent.Registration{Name: "a", Roles: roles, Capacity: -1}, "capacity"},
		{"many labels", agent.Registration{Name: "a", Roles: roles, Labels: many}, "labels"},
		{"bad label", agent.Registration{Name: "a", Roles: roles, Labels: map[string]string{"a": "\n"}}, "labels"},
		{"no URL", agent.Registration{Name: "a", Roles: roles, URL: "http://%zz"}, "url"},
		{"scheme", agent.Registration{Name: "a", Roles: roles, URL: "file:///etc/passwd"}, "url"},
		{"user", agent.Registration{Name: "a", Roles: roles, URL: "http://u:p@10.0.0.7:8001/agents"}, "url"},
		{"query", agent.Registration{Name: "a", Roles: roles, URL: "http://10.0.0.7:8001/agents?x"}, "url"},
		{"dots", agent.Registration{Name: "a", Roles: roles, URL: "http://10.0.0.7:8001/agents/../x"}, "url"},
		{"encoded dots", agent.Registration{Name: "a", Roles: roles, URL: "http://10.0.0.7:8001/agents/%2e%2e/x"}, "url"},
		{"no host", agent.Registration{Name: "a", Roles: roles, URL: "http:///x"}, "url"},
		{"long URL", agent.Registration{Name: "a", Roles: roles, URL: "http://10.0.0.7:8001/agents/" + strings.Repeat("x", 2000)}, "url"},
	} {
		var wrong *jobs.FieldError
		if _, _, err := r.Register(t.Context(), c.r); !errors.As(err, &wrong) || wrong.Field != c.field {
			t.Errorf("%s: got %v, want an error of the field %s", c.name, err, c.field)
		}
	}
	if all, err := r.List(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("got %d agents, %v, want none", len(all), err)
	}
}

func TestOnlyAllowedURLsAreRegistered(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.New(t), func(cfg *setup) {
		cfg.Allow = []string{"http://127.0.0.1:1/agents/", "https://Example.com"}
	})
	for address, allowed := range map[string]bool{
		"http://127.0.0.1:1/agents":          true,
		"http://127.0.0.1:1/agents/one":      true,
		"http://127.0.0.1:1/agents2":         false,
		"http://127.0.0.1:1/":                false,
		"http://127.0.0.1:12/agents":         false,
		"https://127.0.0.1:1/agents":         false,
		"http://127.0.0.1.evil.com:1/agents": false,
		"https://example.com/x":              true,
		"https://EXAMPLE.com:443":            true,
		"https://example.com:8443":           false,
		"https://example.com.evil.com":       false,
		"http://example.com":                 false,
	} {
		_, _, err := r.Register(t.Context(), agent.Registration{Name: "a " + address, Roles: []string{"r"}, URL: address})
		if allowed && err != nil || !allowed && !errors.Is(err, agent.ErrNotAllowed) {
			t.Errorf("%s: got %v, want it allowed: %v", address, err, allowed)
		}
	}
}

func TestTheSameNameIsTheSameAgent(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		r := newRig(t, rdb, nil)
		first, _, err := r.Register(t.Context(), agent.Registration{Name: "Über-Agent 1", Roles: []string{"b", "a", "b"}, Labels: map[string]string{"x": "y"}})
		testutil.Ok(t, err)
		again, _, err := r.Register(t.Context(), agent.Registration{Name: "Über-Agent 1", Roles: []string{"c"}, Capacity: 7})
		testutil.Ok(t, err)
		if again.ID != first.ID {
			t.Errorf("got ids %s and %s, want the same", first.ID, again.ID)
		}
		got := r.get(first.ID)
		if len(got.Roles) != 1 || got.Roles[0] != "c" || got.Capacity != 7 || got.State != agent.StateHealthy {
			t.Errorf("got %+v, want role c, capacity 7, healthy", got)
		}
		if roles, err := r.Roles(t.Context()); err != nil || !maps.Equal(roles, map[string]int{"c": 1}) {
			t.Errorf("roles: got %v, %v, want one c", roles, err)
		}
	})
}

// A name belongs to the owner that registered it first, or to nobody, until the agent is removed.
func TestANameBelongsToItsOwner(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.New(t), nil)
	register := func(name, owner string) (string, error) {
		a, _, err := r.Register(t.Context(), agent.Registration{Name: name, Roles: []string{"validator"}, Owner: owner})
		return a.ID, err
	}
	id := ""
	for _, c := range []struct {
		name, owner, want string
		err               error
	}{
		{"one", "", "", nil}, {"one", "", "", nil}, {"one", "key:a", "", agent.ErrNotOwner},
		{"two", "key:a", "key:a", nil}, {"two", "key:a", "key:a", nil}, {"two", "key:b", "key:a", agent.ErrNotOwner}, {"two", "", "key:a", nil},
	} {
		got, err := register(c.name, c.owner)
		if !errors.Is(err, c.err) || err == nil && !strings.HasPrefix(got, c.name) {
			t.Errorf("register %s as %q: got %s, %v, want %v", c.name, c.owner, got, err, c.err)
		}
		if err == nil {
			id = got
		}
		if owner, err := r.Owner(t.Context(), id); err != nil || owner != c.want {
			t.Errorf("after %q: got owner %q, %v, want %q", c.owner, owner, err, c.want)
		}
	}
	testutil.Ok(t, r.Remove(t.Context(), id))
	if owner, err := r.Owner(t.Context(), id); err != nil || owner != "" {
		t.Errorf("a removed agent has the owner %q, %v", owner, err)
	}
	if _, err := register("two", "key:b"); err != nil {
		t.Errorf("register the name of a removed agent: %v", err)
	}
}

// One key cannot use all the places of agents, of which there are so many.
func TestThereAreNoMoreAgentsThanAllowed(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.New(t), func(c *setup) { c.Max = 8 })
	register := func(name, owner string) error {
		_, _, err := r.Register(t.Context(), agent.Registration{Name: name, Roles: []string{"r"}, Owner: owner})
		return err
	}
	for _, name := range []string{"a", "b", "a"} { // a third registration that replaces the first
		testutil.Ok(t, register(name, "key:one"))
	}
	if err := register("c", "key:one"); !errors.Is(err, agent.ErrTooMany) || !strings.Contains(err.Error(), "2 agents") {
		t.Errorf("a third agent of an owner: got %v, want %v with the limit", err, agent.ErrTooMany)
	}
	for _, name := range []string{"c", "d", "e", "f", "g", "h"} {
		if err := register(name, "key:"+name); err != nil {
			t.Errorf("an agent of another owner: %v", err)
		}
	}
	if err := register("i", "key:i"); !errors.Is(err, agent.ErrTooMany) || !strings.Contains(err.Error(), "8 agents") {
		t.Errorf("a ninth agent: got %v, want %v with the limit", err, agent.ErrTooMany)
	}
	testutil.Ok(t, register("h", "key:h"))
}

func TestAHeartbeatIsOneCommand(t *testing.T) {
	t.Parallel()
	rdb := redistest.New(t)
	r := newRig(t, rdb, nil)
	id := r.register("one", 1, "r")
	if _, err := r.Heartbeat(t.Context(), id); err != nil { // loads the script
		t.Fatal(err)
	}
	n := 0
	rdb.AddHook(redistest.Calls(func(ctx context.Context, next func() error, cmds ...redis.Cmder) error {
		if ctx.Value(marked{}) != nil {
			n += len(cmds)
		}
		return next()
	}))
	testutil.Must(r.Heartbeat(context.WithValue(t.Context(), marked{}, true), id))(t)
	if n != 1 {
		t.Errorf("a heartbeat sent %d commands, want 1", n)
	}
}

// Each registration of an agent with a URL has another secret; an agent that pulls has none.
func TestOnlyAgentsWithAURLHaveASecret(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.New(t), func(cfg *setup) { cfg.Allow = []string{"http://127.0.0.1:1"} })
	var secrets []string
	for _, url := range []string{"http://127.0.0.1:1", "http://127.0.0.1:1", ""} {
		_, secret, err := r.Register(t.Context(), agent.Registration{Name: "one", Roles: []string{"r"}, URL: url})
		testutil.Ok(t, err)
		secrets = append(secrets, secret)
	}
	if secrets[0] == "" || secrets[1] == "" || secrets[0] == secrets[1] || secrets[2] != "" {
		t.Errorf("got secrets %q, want two different ones and none", secrets)
	}
}

func TestSecretsAreNotShown(t *testing.T) {
	t.Parallel()
	var logged testutil.Output
	r := newRig(t, redistest.New(t), func(cfg *setup) {
		cfg.Allow = []string{"http://127.0.0.1:1"}
		cfg.Logger = slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	a, secret, err := r.Register(t.Context(), agent.Registration{Name: "one", Roles: []string{"r"}, URL: "http://127.0.0.1:1"})
	testutil.Ok(t, err)
	r.put("r", 1)
	testutil.Eventually(t, "the agent is unavailable", func() bool { return r.get(a.ID).State == agent.StateUnavailable })
	all := testutil.Must(r.List(t.Context()))(t)
	raw := testutil.Must(json.Marshal(all))(t)
	r.stop()
	if text := string(raw) + logged.String(); strings.Contains(text, secret) || strings.Contains(text, strings.TrimPrefix(secret, "whsec_")) {
		t.Errorf("the secret is in the list or the log: %s", text)
	}
	if !strings.Contains(logged.String(), "health check") {
		t.Errorf("the log does not name the failure: %s", logged.String())
	}
}

func TestSilentAgentsAreForgotten(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		first := newRig(t, rdb, nil)
		id := first.register("old", 1, "r")
		first.stop()
		r := newRig(t, rdb, func(cfg *setup) { cfg.ForgetAfter = 100 * time.Millisecond })
		testutil.Eventually(t, "the agent is forgotten", func() bool {
			all := testutil.Must(r.List(t.Context()))(t)
			return len(all) == 0
		})
		if keys, err := rdb.Keys(t.Context(), "*"+id+"*").Result(); err != nil || len(keys) != 0 {
			t.Errorf("left in Redis: %v, %v, want nothing", keys, err)
		}
	})
}

func TestAgentsOfTheConfigurationAreThere(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		address := testutil.FreeAddr(t)
		r := newRig(t, rdb, func(cfg *setup) {
			cfg.Static = []agent.Static{{Role: "creator", URL: "http://" + address}, {Name: "other", Roles: []string{"r"}, URL: "http://" + address + "/other", Key: "other"}}
			cfg.ForgetAfter = 10 * time.Millisecond
		})
		var all []agent.Agent
		testutil.Eventually(t, "both are there", func() bool {
			var err error
			if all, err = r.List(t.Context()); err != nil {
				t.Fatal(err)
			}
			return len(all) == 2
		})
		if a := all[0]; a.Name != address || !a.Static || a.URL != "http://"+address {
			t.Errorf("got %+v", a)
		}
		for i, want := range []string{"", "key:other"} {
			if owner, err := r.Owner(t.Context(), all[i].ID); err != nil || owner != want {
				t.Errorf("owner of %s: got %q, %v, want %q", all[i].Name, owner, err, want)
			}
		}
		var wrong *jobs.FieldError
		if _, _, err := r.Register(t.Context(), agent.Registration{Name: "other", Roles: []string{"x"}}); !errors.As(err, &wrong) {
			t.Errorf("register its name: got %v, want a *job.FieldError", err)
		}
		if err := r.Remove(t.Context(), all[1].ID); !errors.As(err, &wrong) {
			t.Errorf("remove: got %v, want a *job.FieldError", err)
		}
		testutil.Eventually(t, "it is healthy after a heartbeat, until the next health check", func() bool {
			if _, err := r.Heartbeat(t.Context(), all[1].ID); err != nil {
				t.Fatalf("heartbeat: got %v", err)
			}
			return r.get(all[1].ID).State == agent.StateHealthy
		})
	})
}

func TestTheWorkOfARemovedAgentGoesToOthers(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		r := newRig(t, rdb, nil)
		id, other := r.register("one", 1, "validator"), r.register("two", 1, "validator")
		r.put("validator", 1)
		a := r.leaseOne(id)
		testutil.Ok(t, r.Remove(t.Context(), id))
		if b := r.leaseOne(other); b.Key != a.Key || b.Attempt != 1 {
			t.Errorf("the other got %s in attempt %d, want %s in attempt 1", b.Key, b.Attempt, a.Key)
		}
		if err := r.Complete(t.Context(), a.ID, id, a.Fence, jobs.Answer{}); !errors.Is(err, jobs.ErrLeaseLost) {
			t.Errorf("late result: got %v, want %v", err, jobs.ErrLeaseLost)
		}
		if _, err := r.Get(t.Context(), id); !errors.Is(err, agent.ErrNoAgent) {
			t.Errorf("get: got %v, want %v", err, agent.ErrNoAgent)
		}
	})
}

func TestBadConfigurationsAreRefused(t *testing.T) {
	t.Parallel()
	client := tasks.NewClient(redistest.New(t))
	t.Cleanup(func() { _ = client.Close() })
	all := testutil.Must(jobs.New(jobs.Config{Client: client}))(t)
	for name, c := range map[string]struct {
		cfg  agent.Config
		want string
	}{
		"no client": {agent.Config{}, "required"},
		"allow":     {agent.Config{Client: client, Jobs: all, Allow: []string{"10.0.0.7"}}, "agents.allow[0]"},
		"role":      {agent.Config{Client: client, Jobs: all, Static: []agent.Static{{Role: "A", URL: "http://a"}}}, "agent 1: roles[0]"},
		"twice":     {agent.Config{Client: client, Jobs: all, Static: []agent.Static{{Role: "r", URL: "http://a"}, {Role: "s", URL: "http://a"}}}, "duplicate name"},
		"secret":    {agent.Config{Client: client, Jobs: all, Static: []agent.Static{{Role: "r", URL: "http://a", Secret: "short"}}}, "secret"},
	} {
		if _, err := agent.New(c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error with %q", name, err, c.want)
		}
	}
}

// Who comes and goes is announced.
func TestRegistrationAndRemovalAreAnnounced(t *testing.T) {
	t.Parallel()
	client := tasks.NewClient(redistest.New(t))
	t.Cleanup(func() { _ = client.Close() })
	var got []string
	s, err := agent.New(agent.Config{Client: client, Jobs: testutil.Must(jobs.New(jobs.Config{Client: client}))(t), Changed: func(_ context.Context, what string, a agent.Agent) {
		got = append(got, what+" "+a.Name)
		if time.Since(a.Registered) > time.Minute || time.Since(a.LastSeen) > time.Minute {
			t.Errorf("%s: registered %s, last seen %s, want now", what, a.Registered, a.LastSeen)
		}
	}})
	testutil.Ok(t, err)
	a, _, err := s.Register(t.Context(), agent.Registration{Name: "one", Roles: []string{"creator"}})
	testutil.Ok(t, err)
	testutil.Ok(t, s.Remove(t.Context(), a.ID))
	if want := []string{"agent.registered one", "agent.removed one"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
