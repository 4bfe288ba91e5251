package webhook

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/internal/webhook"
	"muster/jobs"
	"muster/orchestrator/event"
)

func TestBadEndpointsAreRefused(t *testing.T) {
	t.Parallel()
	cfg := quick(t, redistest.New(t))
	cfg.Filter, cfg.Max = nil, 3
	k := open(t, cfg)
	for name, c := range map[string]struct {
		n           NewEndpoint
		field, want string
	}{
		"no URL":        {NewEndpoint{}, "url", "https://host/path"},
		"password":      {NewEndpoint{URL: "https://me:pw@example.org/"}, "url", "user or a password"},
		"loopback":      {NewEndpoint{URL: "http://127.0.0.1:1/"}, "url", "network.allow"},
		"localhost":     {NewEndpoint{URL: "http://localhost:1/"}, "url", "network.allow"},
		"metadata":      {NewEndpoint{URL: "http://169.254.169.254/latest"}, "url", "link-local"},
		"private":       {NewEndpoint{URL: "https://10.1.2.3/"}, "url", "private"},
		"unknown event": {NewEndpoint{URL: "https://example.org/", Events: []string{"job.complete"}}, "events[0]", `did you mean "job.completed"?`},
		"no such group": {NewEndpoint{URL: "https://example.org/", Events: []string{"site.*", "jobs.*"}}, "events[1]", "jobs.*"},
		"bad name":      {NewEndpoint{URL: "https://example.org/", Name: "a b"}, "name", "letters"},
	} {
		_, _, err := k.Create(t.Context(), c.n)
		var field *jobs.FieldError
		if !errors.As(err, &field) || field.Field != c.field || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "pw") {
			t.Errorf("%s: got %v, want field %s and %q", name, err, c.field, c.want)
		}
	}
	for i := range 3 {
		if _, _, err := k.Create(t.Context(), NewEndpoint{URL: "https://example.org/", Name: fmt.Sprint("n", i), Events: []string{"*"}}); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := k.Create(t.Context(), NewEndpoint{URL: "https://example.org/"}); !errors.Is(err, ErrTooMany) {
		t.Errorf("a fourth: got %v, want %v", err, ErrTooMany)
	}
	list, err := k.List(t.Context())
	if err != nil || len(list) != 3 || list[0].Name != "n0" {
		t.Fatalf("got %+v, %v, want three", list, err)
	}
	testutil.Ok(t, k.Remove(t.Context(), list[0].ID))
	if _, _, err := k.Create(t.Context(), NewEndpoint{URL: "https://example.org/", Name: "n1"}); !errors.As(err, new(*jobs.FieldError)) {
		t.Errorf("a name that is taken: got %v, want a *job.FieldError", err)
	}
	if err := k.Remove(t.Context(), list[0].ID); !errors.Is(err, ErrNoEndpoint) {
		t.Errorf("removed again: got %v, want %v", err, ErrNoEndpoint)
	}
}

// Editing a URL to a forbidden one is rejected, too. DNS responses cannot bypass the check: see the tests of the sender.
func TestEditIsChecked(t *testing.T) {
	t.Parallel()
	cfg := quick(t, redistest.New(t))
	cfg.Filter = nil
	k := open(t, cfg)
	e, _ := k.create(t, "https://example.org/")
	local, fine, events := "http://[::1]/", "https://other.example/", []string{"site.*"}
	if _, err := k.Edit(t.Context(), e.ID, EndpointEdit{URL: &local}); !errors.As(err, new(*jobs.FieldError)) {
		t.Errorf("got %v, want a *job.FieldError", err)
	}
	is, err := k.Edit(t.Context(), e.ID, EndpointEdit{URL: &fine, Events: &events})
	if err != nil || is.URL != fine || len(is.Events) != 1 || is.State != StateActive {
		t.Errorf("got %+v, %v, want the new URL and events", is, err)
	}
	if _, err := k.Edit(t.Context(), "wh-unknown", EndpointEdit{}); !errors.Is(err, ErrNoEndpoint) {
		t.Errorf("got %v, want %v", err, ErrNoEndpoint)
	}
}

// Events are passed on from the first endpoint on, until the last is removed.
func TestEventsArePassedOnWhileThereAreEndpoints(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		k := open(t, quick(t, rdb))
		exists := func() bool { return rdb.Exists(t.Context(), event.RelayedKey()).Val() == 1 }
		k.emit(t, "job.created", 2) // before there is an endpoint
		a, _ := k.create(t, "http://127.0.0.1:1/")
		b, _ := k.create(t, "http://127.0.0.1:1/")
		k.emit(t, "job.created", 3)
		if n, err := k.backlog(t.Context()); n != 3 || err != nil {
			t.Errorf("got %d events, %v, want 3", n, err)
		}
		for i, e := range []Endpoint{a, b} {
			testutil.Ok(t, k.Remove(t.Context(), e.ID))
			if want := i == 0; exists() != want {
				t.Errorf("after %d removals: passed on %v, want %v", i+1, exists(), want)
			}
		}
		k.emit(t, "job.created", 1)
		if n, err := k.backlog(t.Context()); exists() || n != 0 || err != nil {
			t.Errorf("without endpoints: got %d events, %v, want none", n, err)
		}
	})
}

// A relay that waits for events sends few commands, and passes on an event at once.
func TestRelayWaitsForEvents(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		var reads, waits atomic.Int64
		rdb.AddHook(redistest.Before(func(_ context.Context, cmd redis.Cmder) {
			text := fmt.Sprint(cmd.Args()...)
			switch {
			case cmd.Name() == "get" && strings.Contains(text, event.RelayedKey()):
				reads.Add(1)
			case cmd.Name() == "xread" && strings.Contains(text, "block"):
				waits.Add(1)
			}
		}))
		k := open(t, quick(t, rdb))
		at := newReceiver(t, nil)
		k.create(t, at.URL)
		k.run(t)
		k.emit(t, "job.created", 1)
		testutil.Eventually(t, "the event is sent", func() bool { return len(at.requests()) == 1 })
		from := waits.Load()
		testutil.Eventually(t, "the relay waits", func() bool { return waits.Load() > from+1 })
		before := reads.Load()
		testutil.Eventually(t, "the relay waits on", func() bool { return waits.Load() > from+4 })
		if n := reads.Load() - before; n > 2 {
			t.Errorf("%d rounds without an event, want at most 2", n)
		}
		k.emit(t, "job.created", 1)
		testutil.Eventually(t, "the next event is sent", func() bool { return len(at.requests()) == 2 })
	})
}

// With two secrets both verify, so that a receiver can change from one to the other.
func TestRequestsAreSignedWithAllSecrets(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, nil)
	k := open(t, quick(t, redistest.New(t)))
	k.run(t)
	e, first := k.create(t, r.URL)
	second := webhook.NewSecret()
	for i, secrets := range [][]string{{second, first}, {second}} {
		testutil.Must(k.Edit(t.Context(), e.ID, EndpointEdit{Secrets: &secrets}))(t)
		k.emit(t, "job.completed", 1)
		k.settled(t, e.ID, fmt.Sprintf("map[delivered:%d]", i+1))
		if g := r.requests()[i]; !g.verified(second) || g.verified(first) != (i == 0) {
			t.Errorf("%d secrets: got verified %v and %v", len(secrets), g.verified(second), g.verified(first))
		}
	}
	for _, secrets := range [][]string{{}, {"short"}, {first, second, first}} {
		if _, err := k.Edit(t.Context(), e.ID, EndpointEdit{Secrets: &secrets}); !errors.As(err, new(*jobs.FieldError)) {
			t.Errorf("%q: got %v, want a *job.FieldError", secrets, err)
		}
	}
}

// Deliveries to an endpoint that is removed are not sent, and its log is deleted.
func TestRemovedEndpointLeavesNothing(t *testing.T) {
	t.Parallel()
	rdb := redistest.New(t)
	r := newReceiver(t, nil)
	k := open(t, quick(t, rdb))
	kept, _ := k.create(t, r.URL)
	e, _ := k.create(t, r.URL+"/removed")
	k.emit(t, "job.completed", 20)
	rel := &relay{Service: k.Service}
	if n, err := rel.round(t.Context()); err != nil || n != 20 {
		t.Fatalf("got %d, %v, want 20 events", n, err)
	}
	testutil.Ok(t, k.Remove(t.Context(), e.ID))
	k.run(t)
	k.settled(t, kept.ID, "map[delivered:20]")
	testutil.Eventually(t, "the deliveries to end", func() bool { s, err := k.queue.Stats(t.Context()); return err == nil && s.Skipped == 20 })
	if n := len(r.requests()); n != 20 {
		t.Errorf("got %d requests, want the requests of the remaining endpoint", n)
	}
	now := testutil.Must(k.now(t.Context()))(t)
	testutil.Ok(t, rel.trim(t.Context(), e.ID, now.Add(2*fresh), 0))
	if n := rdb.ZCard(t.Context(), logKey(e.ID)).Val(); n != 0 {
		t.Errorf("got %d entries in the log, want none", n)
	}
	if s, err := k.queue.Stats(t.Context()); err != nil || s.Total != 20 {
		t.Errorf("got %+v, %v, want the items of the other endpoint", s, err)
	}
}

// Endpoints of the configuration get events, keep their state, cannot be edited, and go with it.
func TestEndpointsOfTheConfiguration(t *testing.T) {
	t.Parallel()
	rdb := redistest.New(t)
	r := newReceiver(t, nil)
	secret := webhook.NewSecret()
	cfg := quick(t, rdb)
	cfg.Filter = nil // its address is allowed since the configuration names it
	cfg.Static = []Static{{NewEndpoint{Name: "ops", URL: r.URL, Events: []string{"site.*"}}, []string{secret}}}
	k := open(t, cfg)
	k.run(t)
	id := staticID("ops")
	testutil.Eventually(t, "the relay begins", func() bool { return rdb.Exists(t.Context(), event.RelayedKey()).Val() == 1 })
	k.emit(t, "site.unhealthy", 1)
	k.settled(t, id, "map[delivered:1]")
	if g := r.requests()[0]; !g.verified(secret) {
		t.Error("the secret of the configuration does not verify the request")
	}
	url, off := "https://example.org", true
	_, editErr := k.Edit(t.Context(), id, EndpointEdit{URL: &url})
	for what, err := range map[string]error{"edit": editErr, "remove": k.Remove(t.Context(), id)} {
		if !errors.Is(err, ErrStatic) {
			t.Errorf("%s: got %v, want %v", what, err, ErrStatic)
		}
	}
	if _, _, err := k.Create(t.Context(), NewEndpoint{Name: "ops", URL: "https://example.org"}); !errors.As(err, new(*jobs.FieldError)) {
		t.Errorf("the same name: got %v, want a *job.FieldError", err)
	}
	for _, disabled := range []bool{off, !off} {
		testutil.Must(k.Edit(t.Context(), id, EndpointEdit{Disabled: &disabled}))(t)
		if is, err := open(t, cfg).Get(t.Context(), id); err != nil || (is.State == StateDisabled) != disabled || !is.Static {
			t.Errorf("another process: got %+v, %v, want disabled %v", is, err, disabled)
		}
	}
	// It leaves the configuration.
	after := open(t, quick(t, rdb))
	if _, err := after.Get(t.Context(), id); !errors.Is(err, ErrNoEndpoint) {
		t.Errorf("got %v, want %v", err, ErrNoEndpoint)
	}
	if some, err := after.needed(t.Context()); some || err != nil || rdb.Exists(t.Context(), event.RelayedKey()).Val() == 1 {
		t.Errorf("got needed %v, %v, want the relay ended", some, err)
	}
	if _, err := New(Config{Redis: rdb, Static: []Static{{NewEndpoint{Name: "a", URL: r.URL}, nil}}}); err == nil { // others are in the tests of the settings
		t.Error("without a secret: got no error")
	}
}

func TestEndpointThatCannotBeDecodedNamesItsKey(t *testing.T) {
	t.Parallel()
	k := open(t, quick(t, redistest.New(t)))
	testutil.Ok(t, k.rdb.HSet(t.Context(), endpointsKey, "wh-1", "{").Err())
	if _, err := k.Get(t.Context(), "wh-1"); err == nil || !strings.Contains(err.Error(), endpointsKey) {
		t.Errorf("got %v, want an error with the key %s", err, endpointsKey)
	}
}
