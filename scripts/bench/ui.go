package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"time"

	"muster/orchestrator/ui"
	"muster/tasks"
	"muster/tasks/tasktype"
)

const (
	storedFlows = 10_000 // workflows that the pages list
	nodesOfBig  = 10_000 // of one more
	openPages   = 100
	watchPages  = 10 * time.Second
)

// uiRows are the rows of the web pages.
func uiRows() []row {
	stored := shared(askPages)
	ms := func(d time.Duration) float64 { return d.Seconds() * 1e3 }
	page := func(path string, value func(shownPage) float64) measureFunc {
		return stored(func(all map[string]shownPage) float64 { return value(all[path]) })
	}
	first := func(p shownPage) float64 { return ms(p.first) }
	size := func(p shownPage) float64 { return float64(p.bytes) / (1 << 10) }
	return []row{
		// These come from one store: 10,000 workflows and one of 10,000 nodes. The first byte is the 95th percentile of
		// 100 requests; the page is made as a whole before it is sent.
		{name: "ui.overview", unit: "ms", rounds: 1, measure: page("/", first), bar: atMost(50)},
		{name: "ui.workflows", unit: "ms", rounds: 1, measure: page("/workflows", first), bar: atMost(50)},
		{name: "ui.overview_size", unit: "KB", rounds: 1, measure: page("/", size), bar: atMost(150)},
		{name: "ui.workflows_size", unit: "KB", rounds: 1, measure: page("/workflows", size), bar: atMost(150)},
		{name: "ui.workflow_10000", unit: "ms", rounds: 1, measure: page("big", first), bar: atMost(300)},
		{name: "ui.workflow_10000_size", unit: "KB", rounds: 1, measure: page("big", size), bar: atMost(300)},
		// A hundred readers of ten different pages, beside a worker that waits; what Redis does without them is subtracted.
		{name: "ui.redis_100_open", unit: "commands/s", rounds: 1, measure: openPagesLoad, bar: atMost(50)},
		// From the answer to the last task of a workflow to the event of its open page: the slowest of 20.
		{name: "ui.change", unit: "ms", rounds: 1, measure: changeToEvent, bar: atMost(1000)},
	}
}

// pageLab serves the pages beside a fleet.
type pageLab struct {
	*fleet
	server *httptest.Server
	http   *http.Client
}

// openPageLab starts a fleet of one worker and the pages of it. Call close when done.
func openPageLab(ctx context.Context, l *lab) (*pageLab, error) {
	f, err := startFleet(ctx, l, 1, 8)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	for _, r := range ui.Routes(ui.Config{Client: f.client, Logger: slog.New(slog.DiscardHandler)}) {
		mux.Handle(r.Pattern, r.Handler)
	}
	return &pageLab{f, httptest.NewServer(mux), &http.Client{Transport: &http.Transport{
		DialContext: (&net.Dialer{}).DialContext, MaxIdleConnsPerHost: 8,
	}}}, nil
}

func (p *pageLab) close() error {
	p.http.CloseIdleConnections()
	p.server.CloseClientConnections()
	p.server.Close()
	return p.stop()
}

// tasksAt is where the pages of the fleet are.
const tasksAt = "/ui/tasks"

// get opens a page, as a stream of events if accept says so.
func (p *pageLab) get(ctx context.Context, path, accept string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.server.URL+tasksAt+path, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", accept)
	res, err := p.http.Do(req)
	if err == nil && res.StatusCode != http.StatusOK {
		res.Body.Close()
		err = fmt.Errorf("open %s: %s", path, res.Status)
	}
	return res, err
}

// shownPage is what a page costs its readers.
type shownPage struct {
	first time.Duration // until the first byte, of 95 of 100 requests at most
	bytes int
}

// askPages fills a store and asks for its pages, by path.
func askPages(ctx context.Context, l *lab) (_ map[string]shownPage, err error) {
	p, err := openPageLab(ctx, l)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	if err := sendSingles(ctx, p.fleet, storedFlows); err != nil {
		return nil, err
	}
	if err := runGroup(ctx, p.fleet, nodesOfBig); err != nil {
		return nil, err
	}
	newest, _, err := p.client.Workflows(ctx, tasks.WorkflowFilter{State: tasktype.WorkflowSucceeded, Limit: 1})
	if err != nil || len(newest) != 1 {
		return nil, fmt.Errorf("find the big workflow: %d found: %w", len(newest), err)
	}
	all := map[string]shownPage{}
	for name, path := range map[string]string{"/": "/", "/workflows": "/workflows", "big": "/workflows/" + newest[0].ID} {
		if all[name], err = p.show(ctx, path); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// show asks for a page a hundred times.
func (p *pageLab) show(ctx context.Context, path string) (s shownPage, err error) {
	const asks = 100
	took := make([]time.Duration, asks)
	for i := range took {
		began := time.Now()
		res, err := p.get(ctx, path, "text/html")
		if err != nil {
			return s, err
		}
		took[i] = time.Since(began)
		text, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil {
			return s, err
		}
		s.bytes = max(s.bytes, len(text))
	}
	slices.Sort(took)
	s.first = took[asks*95/100]
	return s, nil
}

// openPagesLoad is how many commands a second Redis gets from a hundred open pages.
func openPagesLoad(ctx context.Context, l *lab) (_ float64, err error) {
	p, err := openPageLab(ctx, l)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	var ids []string
	for range 4 {
		run, err := benchStep.S(1).Send(ctx, p.client)
		if err != nil {
			return 0, err
		}
		if _, err := run.Wait(ctx); err != nil {
			return 0, err
		}
		ids = append(ids, run.ID())
	}
	paths := []string{"/", "/workflows", "/names", "/queues", "/workers", "/schedule"}
	for _, id := range ids {
		paths = append(paths, "/workflows/"+id)
	}
	idle, err := l.load(ctx)
	if err != nil {
		return 0, err
	}
	reading, stop := context.WithCancel(ctx)
	defer stop()
	for i := range openPages {
		res, err := p.get(reading, paths[i%len(paths)], "text/event-stream")
		if err != nil {
			return 0, err
		}
		defer res.Body.Close()
		go func() { _, _ = io.Copy(io.Discard, res.Body) }() // until its page is closed
	}
	busy, err := l.load(ctx)
	return busy - idle, err
}

// load is how many commands a second Redis carries out now, those of scripts among them.
func (l *lab) load(ctx context.Context) (float64, error) {
	before, err := l.info(ctx, "total_commands_processed")
	if err != nil {
		return 0, err
	}
	select {
	case <-time.After(watchPages):
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	after, err := l.info(ctx, "total_commands_processed")
	return (after - before) / watchPages.Seconds(), err
}

// changeToEvent is how long the event of a change takes at most to reach a reader of the page.
func changeToEvent(ctx context.Context, l *lab) (_ float64, err error) {
	p, err := openPageLab(ctx, l)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	var most time.Duration
	for range 20 {
		took, err := p.change(ctx)
		if err != nil {
			return 0, err
		}
		most = max(most, took)
	}
	return most.Seconds() * 1e3, nil
}

// change answers the task of a workflow, and returns how long it takes until its open page has got that.
func (p *pageLab) change(ctx context.Context) (time.Duration, error) {
	run, err := benchAsk.S(1).Send(ctx, p.client)
	if err != nil {
		return 0, err
	}
	open, err := waitOpen(ctx, p.fleet, 1)
	if err != nil {
		return 0, err
	}
	token, err := p.client.NewToken(ctx, run.ID(), open[0].Node)
	if err != nil {
		return 0, err
	}
	reading, stop := context.WithCancel(ctx)
	defer stop()
	res, err := p.get(reading, "/workflows/"+run.ID(), "text/event-stream")
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	lines := bufio.NewReader(res.Body)
	var asked time.Time
	for {
		line, err := lines.ReadString('\n')
		switch {
		case err != nil:
			return 0, err
		case asked.IsZero() && strings.Contains(line, "w-running"):
			asked = time.Now()
			if err := p.client.Complete(ctx, token, []byte("1")); err != nil {
				return 0, err
			}
		case !asked.IsZero() && strings.Contains(line, "w-success"):
			return time.Since(asked), nil
		}
	}
}
