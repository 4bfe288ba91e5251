package api

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestEventsAsAStream(t *testing.T) {
	t.Parallel()
	cfg, f := faked(t)
	h := handler(t, cfg)
	for what, c := range map[string]struct {
		path   string
		change func(*http.Request)
		after  string
		want   string
	}{
		"from the start": {"/v1/events", func(*http.Request) {}, "0-0", "id: 1-0\nevent: job.created\ndata: {\"id\":\"1-0\""},
		"Last-Event-ID":  {"/v1/jobs/" + aJob + "/events", header("Last-Event-ID", "0-1"), "0-1", "event: gap\ndata: {\"after\":\"0-1\"}\n\nid: 2-0\nevent: job.started\n"},
		"after":          {"/v1/jobs/" + aJob + "/events?after=0-1", func(*http.Request) {}, "0-1", "event: gap\n"},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan string, 1)
		go func() {
			w := ask(t, h, "GET", c.path, func(r *http.Request) { *r = *r.WithContext(ctx) }, c.change)
			done <- w.Header().Get("Content-Type") + "\n" + w.Body.String()
		}()
		if got := <-f.events.reading; got != c.after {
			t.Errorf("%s: read after %q, want %q", what, got, c.after)
		}
		<-f.events.reading // what was read first is sent
		cancel()
		if got := <-done; !strings.HasPrefix(got, "text/event-stream\n: events follow\n\n") || !strings.Contains(got, c.want) {
			t.Errorf("%s: got %q, want %q", what, got, c.want)
		}
	}
	if w := ask(t, h, "GET", "/v1/jobs/"+noJob+"/events"); w.Code != http.StatusNotFound {
		t.Errorf("events of no job: got %d, want 404", w.Code)
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

// A stream ends when its key no longer counts, at the latest with the next heartbeat.
func TestStreamEndsWithItsKey(t *testing.T) {
	t.Parallel()
	cfg, f := faked(t)
	synctest.Test(t, func(t *testing.T) {
		f.events = &fakeEvents{reading: make(chan string)}
		cfg := cfg
		cfg.Events, cfg.Gate = f.events, gate(t, "a long enough key")
		h, err := Handler(cfg.withDefaults())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			ask(t, h, "GET", "/v1/events", bearer("a long enough key"), func(r *http.Request) { *r = *r.WithContext(ctx) })
		}()
		select {
		case <-ended:
			t.Fatal("the stream ended while its key counts")
		case <-time.After(time.Minute):
		}
		if err := cfg.Gate.SetStatic([]string{"another long key"}); err != nil {
			t.Fatal(err)
		}
		select {
		case <-ended:
		case <-time.After(2 * heartbeat):
			t.Error("the stream continues without its key")
		}
	})
}

// A stream of events is longer than any answer may take, and ends at shutdown as a poll for work does.
func TestStreamsOutliveTheWriteTimeoutAndEndAtShutdown(t *testing.T) {
	t.Parallel()
	cfg, f := faked(t)
	synctest.Test(t, func(t *testing.T) {
		f.events = &fakeEvents{reading: make(chan string)}
		f.agents.waiting = make(chan struct{}, 1)
		cfg := cfg
		cfg.Events, cfg.Agents = f.events, f.agents
		ctx, shutdown := context.WithCancel(t.Context())
		cfg = cfg.withDefaults()
		cfg.closing = ctx
		h, err := Handler(cfg)
		if err != nil {
			t.Fatal(err)
		}
		l := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
		served := make(chan error, 1)
		go func() { served <- serveOn(ctx, l, cfg, h, "HTTP interface", "/") }()
		client := &http.Client{Transport: &http.Transport{DialContext: l.dial}}
		defer client.CloseIdleConnections()

		stream, err := client.Get("http://localhost/v1/events")
		if err != nil {
			t.Fatal(err)
		}
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

		polled := make(chan string, 1)
		go func() {
			resp, err := client.Post("http://localhost/v1/agents/agent-1/lease", "application/json", strings.NewReader(`{"wait_seconds": 30}`))
			if err != nil {
				polled <- err.Error()
				return
			}
			defer resp.Body.Close()
			body, _ := io.ReadAll(resp.Body)
			polled <- resp.Status + " " + strings.TrimSpace(string(body))
		}()
		<-f.agents.waiting
		stopped := time.Now()
		shutdown()
		if got := <-polled; got != `200 OK {"assignments":[]}` {
			t.Errorf("the poll got %s, want no work", got)
		}
		for lines.Scan() {
		}
		if err := <-served; err != nil || time.Since(stopped) > time.Second {
			t.Errorf("got %v after %v, want the end at once", err, time.Since(stopped))
		}
	})
}

// only serves the operations that add adds, with all layers.
func only(cfg Config, add func(*server)) (http.Handler, error) {
	served := newRoutes()
	s := &server{cfg: cfg, api: newHuma(served.mux), started: time.Now()}
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
			route(s, describe(s, http.MethodGet, "/job", "job", tagJobs, "Respond at once"), 0, func(context.Context, *nothing) (*nothing, error) { return nil, nil })
			register(s, describe(s, http.MethodPost, "/jobs", "create", tagJobs, "Download for nine minutes"), "body.", func(_ context.Context, in *createInput) (*createOutput, error) {
				if _, p := readJSON(in.w, in.r, maxBody); p != nil {
					return nil, p
				}
				<-time.After(9 * time.Minute)
				return &createOutput{Status: http.StatusCreated}, nil
			})
		})
		if err != nil {
			t.Fatal(err)
		}
		l := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
		served := make(chan error, 1)
		go func() { served <- serveOn(ctx, l, cfg, h, "HTTP interface", "/") }()
		client := &http.Client{Transport: &http.Transport{DialContext: l.dial}}
		resp, err := client.Get("http://localhost/report")
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		beside, err := client.Get("http://localhost/job")
		if err != nil || beside.StatusCode/100 != 2 || time.Since(begun) > 100*time.Millisecond { // of a clock that stands still
			t.Errorf("another request beside the report: got %v, %v after %v; want its response at once", beside, err, time.Since(begun))
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

// At shutdown a request that is under way is answered, unless it takes longer than Grace; a new one is refused.
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
