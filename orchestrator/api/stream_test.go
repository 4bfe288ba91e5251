package api

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"muster/internal/testutil"
	"muster/jobs/agent"
	"muster/orchestrator/event"
	"muster/tasks"
)

func TestEventsAsAStream(t *testing.T) {
	t.Parallel()
	cfg := served(t)
	h, f := handler(t, cfg), populate(t, cfg, "")
	read := func(path string, change ...func(*http.Request)) string {
		w := ask(t, h, "GET", path, change...)
		return w.Header().Get("Content-Type") + "\n" + w.Body.String()
	}
	const begin, of = "text/event-stream\n: events follow\n\n", "/events?follow=false"
	for _, path := range []string{"/v1", "/v1/jobs/" + f.job} {
		if got := read(path + of); !strings.HasPrefix(got, begin+"id: ") || !strings.Contains(got, "\nevent: job.created\ndata: {\"id\":\"") {
			t.Errorf("%s: got %q, want the stored events", path, got)
		}
	}
	all, err := cfg.Events.Last(t.Context(), f.job, 10)
	if err != nil || len(all) < 2 {
		t.Fatalf("got %v, %v, want events", all, err)
	}
	last, before := all[0], all[len(all)-1]
	testutil.Ok(t, cfg.Client.Redis().XTrimMaxLen(t.Context(), event.JobKey(f.job), 1).Err())
	want := begin + "event: gap\ndata: {\"after\":\"" + before.ID + "\"}\n\nid: " + last.ID + "\nevent: " + last.Type + "\n"
	if got := read("/v1/jobs/"+f.job+of, header("Last-Event-ID", before.ID)); !strings.HasPrefix(got, want) {
		t.Errorf("Last-Event-ID: got %q, want %q", got, want)
	}
	if got := read("/v1/jobs/" + f.job + of + "&after=" + before.ID); !strings.HasPrefix(got, want) {
		t.Errorf("after: got %q, want %q", got, want)
	}
	if got := read("/v1/jobs/" + f.job + of + "&after=$"); got != begin {
		t.Errorf("after=$: got %q, want no event", got)
	}
	if w := ask(t, h, "GET", "/v1/jobs/"+noJob+"/events"); w.Code != http.StatusNotFound {
		t.Errorf("events of no job: got %d, want 404", w.Code)
	}
}

// Ends of workflows are a source of events.
func TestEndsOfWorkflowsAsAStream(t *testing.T) {
	t.Parallel()
	cfg := served(t)
	h := handler(t, cfg)
	const path = "/v1/events?source=workflows&follow=false"
	run := testutil.Must(tasks.New[int, struct{}]("none").S(1).Send(t.Context(), cfg.Client, tasks.Name("nightly"), tasks.In(time.Hour)))(t)
	testutil.Ok(t, run.Revoke(t.Context()))
	var got string
	testutil.Eventually(t, "the end", func() bool {
		got = ask(t, h, "GET", path).Body.String()
		return strings.Contains(got, "\nevent: workflow.revoked\ndata: {\"id\":\"") && strings.Contains(got, `"name":"nightly"`)
	})
	_, id, _ := strings.Cut(got, "\nid: ")
	id, _, _ = strings.Cut(id, "\n")
	if after := ask(t, h, "GET", path+"&after="+id).Body.String(); after != ": events follow\n\n" {
		t.Errorf("after the last event: got %q, want none", after)
	}
	if w := ask(t, h, "GET", path+"&after=x"); w.Code != http.StatusBadRequest {
		t.Errorf("an invalid position: got %d", w.Code)
	}
}

// quiet reads a stream to which nothing is added.
func quiet(ctx context.Context, _, after string, _ int, block time.Duration) (event.Batch, error) {
	select {
	case <-ctx.Done():
		return event.Batch{}, ctx.Err()
	case <-time.After(block):
		return event.Batch{Next: after}, nil
	}
}

// pipeListener accepts connections that are pipes in this process.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8000} }

func (l *pipeListener) dial(context.Context, string, string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case l.conns <- there:
		return here, nil
	case <-l.closed:
		return nil, syscall.ECONNREFUSED
	}
}

// A stream ends, at the latest with the next heartbeat, when its key becomes invalid.
func TestStreamEndsWithItsKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const key, local = "a key that is long enough for tests", "the key of commands on this machine"
		cfg := Config{Gate: gate(t, key)}.withDefaults()
		cfg.Gate.SetLocal(local)
		h := testutil.Must(only(cfg, func(s *server) { addEvents(s, quiet) }))(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		follow := func(key string) <-chan struct{} {
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				ask(t, h, "GET", "/v1/events", bearer(key), func(r *http.Request) { *r = *r.WithContext(ctx) })
			}()
			return ended
		}
		ended, endedLocal := follow(key), follow(local)
		select {
		case <-ended:
			t.Fatal("the stream ended while its key counts")
		case <-time.After(time.Minute):
		}
		testutil.Ok(t, cfg.Gate.SetStatic([]string{"another key that is long enough, too"}))
		select {
		case <-ended:
		case <-time.After(2 * heartbeat):
			t.Error("the stream continues without its key")
		}
		select {
		case <-endedLocal:
			t.Error("the stream of a command on this machine ended")
		default:
		}
	})
}

// A stream of events outlives the write timeout, and ends at shutdown.
func TestStreamsOutliveTheWriteTimeoutAndEndAtShutdown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, shutdown := context.WithCancel(t.Context())
		cfg := Config{}.withDefaults()
		cfg.closing = ctx
		h := testutil.Must(only(cfg, func(s *server) { addEvents(s, quiet) }))(t)
		l := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
		served := make(chan error, 1)
		go func() { served <- serveOn(ctx, l, cfg, h, "HTTP interface", "/") }()
		client := &http.Client{Transport: &http.Transport{DialContext: l.dial}}
		defer client.CloseIdleConnections()

		stream := testutil.Must(client.Get("http://localhost/v1/events"))(t)
		defer stream.Body.Close()
		lines, beats := bufio.NewScanner(stream.Body), 0
		for begun := time.Now(); time.Since(begun) < 5*time.Minute && lines.Scan(); {
			if lines.Text() == ": heartbeat" {
				beats++
			}
		}
		if beats < 15 {
			t.Fatalf("got %d heartbeats, want at least 15 in 5 minutes: %v", beats, lines.Err())
		}

		stopped := time.Now()
		shutdown()
		for lines.Scan() {
		}
		if err := <-served; err != nil || time.Since(stopped) > time.Second {
			t.Errorf("got %v after %v, want the end immediately", err, time.Since(stopped))
		}
	})
}

// A poll for work ends at shutdown, with a response.
func TestPollsEndAtShutdown(t *testing.T) {
	t.Parallel()
	ctx, shutdown := context.WithCancel(t.Context())
	defer shutdown()
	cfg := served(t)
	cfg.closing, cfg.Timing = ctx, NewTiming()
	a, _, err := cfg.Agents.Register(t.Context(), agent.Registration{Name: "one", Roles: []string{"creator"}})
	testutil.Ok(t, err)
	h, polled := handler(t, cfg), make(chan string, 1)
	go func() {
		w := post(t, h, "POST", "/v1/agents/"+a.ID+"/lease", `{"wait_seconds": 30}`)
		polled <- fmt.Sprint(w.Code, " ", strings.TrimSpace(w.Body.String()))
	}()
	testutil.Eventually(t, "the poll waits", func() bool { return samples(t, cfg.Timing)["muster_http_requests_in_flight{state=waiting}"] == 1 })
	shutdown()
	select {
	case got := <-polled:
		if got != `200 {"assignments":[]}` {
			t.Errorf("got %s, want no work", got)
		}
	case <-time.After(20 * time.Second):
		t.Error("the poll continues after the shutdown")
	}
}

// only serves the operations that add adds, with all layers.
func only(cfg Config, add func(*server)) (http.Handler, error) {
	served := newRoutes()
	s := &server{cfg: cfg, api: newHuma(served.mux), started: time.Now(), streams: newShares("streams of events", maxStreams, maxStreamsEach)}
	add(s)
	served.addOperations(s.api)
	return cfg.layered(served)
}

// A response is complete however long its handler takes, and other requests are not delayed.
func TestSlowResponsesAreComplete(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, shutdown := context.WithCancel(t.Context())
		cfg := Config{Write: true}.withDefaults()
		cfg.closing = ctx
		h, err := only(cfg, func(s *server) {
			route(s, describe(s, http.MethodGet, "/report", "report", tagJobs, "Write a part every 20 seconds"), 0, func(context.Context, *nothing) (*streamOutput, error) {
				return s.stream(http.Header{}, func(_ context.Context, w io.Writer) error {
					for range 10 {
						if _, err := io.WriteString(w, strings.Repeat("part\n", 2000)); err != nil {
							return err
						}
						<-time.After(20 * time.Second)
					}
					return nil
				}), nil
			})
			route(s, describe(s, http.MethodGet, "/job", "job", tagJobs, "Respond immediately"), 0, func(context.Context, *nothing) (*nothing, error) { return nil, nil })
			register(s, describe(s, http.MethodPost, "/jobs", "create", tagJobs, "Download for nine minutes"), "body.", func(_ context.Context, in *createInput) (*createOutput, error) {
				if _, p := readJSON(in.w, in.r, maxBody); p != nil {
					return nil, p
				}
				<-time.After(9 * time.Minute)
				return &createOutput{Status: http.StatusCreated}, nil
			})
		})
		testutil.Ok(t, err)
		l := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
		served := make(chan error, 1)
		go func() { served <- serveOn(ctx, l, cfg, h, "HTTP interface", "/") }()
		client := &http.Client{Transport: &http.Transport{DialContext: l.dial}}
		resp := testutil.Must(client.Get("http://localhost/report"))(t)
		begun := time.Now()
		beside, err := client.Get("http://localhost/job")
		if err != nil || beside.StatusCode/100 != 2 || time.Since(begun) > 100*time.Millisecond { // the clock is stopped
			t.Errorf("another request beside the report: got %v, %v after %v; want its response immediately", beside, err, time.Since(begun))
		} else {
			_ = beside.Body.Close()
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || len(body) != 10*5*2000 {
			t.Errorf("got %d bytes and %v, want 100000", len(body), err)
		}
		resp, err = client.Post("http://localhost/jobs", "application/json", strings.NewReader(`{}`))
		if err != nil {
			t.Errorf("a slow document: %v", err)
		} else if _ = resp.Body.Close(); resp.StatusCode != http.StatusCreated {
			t.Errorf("a slow document: got %s, want 201", resp.Status)
		}
		client.CloseIdleConnections()
		shutdown()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

// At shutdown a running request completes, unless it takes longer than Grace; new requests are refused.
func TestShutdownWaitsForRequests(t *testing.T) {
	t.Parallel()
	for takes, want := range map[time.Duration]string{2 * time.Second: "done", time.Minute: ""} {
		synctest.Test(t, func(t *testing.T) {
			ctx, shutdown := context.WithCancel(t.Context())
			cfg := Config{Grace: 10 * time.Second}.withDefaults()
			began := make(chan struct{})
			slow := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				close(began)
				select {
				case <-time.After(takes):
					_, _ = io.WriteString(w, "done")
				case <-r.Context().Done():
				}
			})
			l := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
			served, answered := make(chan error, 1), make(chan string, 1)
			go func() { served <- serveOn(ctx, l, cfg, slow, "HTTP interface", "/") }()
			client := &http.Client{Transport: &http.Transport{DialContext: l.dial, DisableKeepAlives: true}}
			go func() {
				resp, err := client.Get("http://localhost/")
				if err != nil {
					answered <- ""
					return
				}
				defer resp.Body.Close()
				body, _ := io.ReadAll(resp.Body)
				answered <- string(body)
			}()
			<-began
			stopped := time.Now()
			shutdown()
			synctest.Wait()
			if resp, err := client.Get("http://localhost/"); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("a new request: got %v, %v; want that it is refused", resp, err)
			}
			if got := <-answered; got != want {
				t.Errorf("a request of %v: got %q, want %q", takes, got, want)
			}
			if err := <-served; err != nil || time.Since(stopped) > min(takes, cfg.Grace)+time.Second {
				t.Errorf("got %v after %v, want the end with the request, or after %v", err, time.Since(stopped), cfg.Grace)
			}
		})
	}
}
