package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"muster/orchestrator/agent"
	"muster/orchestrator/api"
	"muster/orchestrator/job"
	"muster/orchestrator/pipeline"
	jobreport "muster/orchestrator/report"
	"muster/tasks"
)

// jobLab is a system of jobs with its API, in this process.
type jobLab struct {
	client *tasks.Client
	jobs   *job.Service
	agents *agent.Service
	server *httptest.Server
	http   *http.Client
	stop   func() error
}

// jobReports writes reports for the API.
type jobReports struct{ jobs *job.Service }

func (r jobReports) Write(ctx context.Context, w io.Writer, id, _ string) error {
	return jobreport.WriteJSON(ctx, w, r.jobs, id)
}

// openJobs starts a system of jobs, with a worker if asked for. Call stop when done.
func openJobs(ctx context.Context, l *lab, worker bool) (*jobLab, error) {
	client, err := tasks.Connect(ctx, l.url())
	if err != nil {
		return nil, err
	}
	pipelines, err := pipeline.Load("")
	if err != nil {
		return nil, err
	}
	jl := &jobLab{client: client}
	jl.jobs, err = job.New(job.Config{
		Client: client, Pipelines: pipelines.Get, Limits: job.Limits{MaxRetries: 5, Dedupe: job.DedupeAllow},
		Roles: func(ctx context.Context) (map[string]int, error) { return jl.agents.Roles(ctx) },
	})
	if err != nil {
		return nil, err
	}
	if jl.agents, err = agent.New(agent.Config{Client: client, Jobs: jl.jobs}); err != nil {
		return nil, err
	}
	handler, err := api.Handler(api.Config{Client: client, Jobs: jl.jobs, Agents: jl.agents, Pipelines: pipelines, Reports: jobReports{jl.jobs}, Write: true})
	if err != nil {
		return nil, err
	}
	running, cancel := context.WithCancel(ctx)
	var all errgroup.Group
	if worker {
		mux := tasks.NewMux()
		jl.jobs.Register(mux)
		w, err := tasks.NewWorker(client, mux, tasks.WorkerConfig{Queues: map[string]int{job.Queue: 1}})
		if err != nil {
			cancel()
			return nil, err
		}
		all.Go(func() error { return w.Run(running) })
		all.Go(func() error { return jl.jobs.Run(running) })
		all.Go(func() error { return jl.agents.Run(running) })
	}
	jl.server = httptest.NewServer(handler)
	jl.http = &http.Client{Transport: &http.Transport{
		DialContext: (&net.Dialer{}).DialContext, MaxIdleConnsPerHost: 64,
	}}
	jl.stop = func() error {
		jl.http.CloseIdleConnections()
		cancel()
		jl.server.Close()
		return errors.Join(all.Wait(), client.Close())
	}
	return jl, nil
}

// call calls the API and reads the answer into v, unless that is nil. It returns how long that took.
func (jl *jobLab) call(ctx context.Context, method, path string, body, v any) (time.Duration, error) {
	var data []byte
	if body != nil {
		var err error
		if data, err = json.Marshal(body); err != nil {
			return 0, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, jl.server.URL+path, bytes.NewReader(data))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	start := time.Now()
	resp, err := jl.http.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	took := time.Since(start)
	if err == nil && resp.StatusCode >= 300 {
		err = fmt.Errorf("%s %s: %s: %.300s", method, path, resp.Status, text)
	}
	if err == nil && v != nil {
		err = json.Unmarshal(text, v)
	}
	return took, err
}

// many calls do n times, a few at a time, and returns the first error.
func many(ctx context.Context, n, atOnce int, do func(ctx context.Context, i int) error) error {
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(atOnce)
	for i := range n {
		all.Go(func() error { return do(ctx, i) })
	}
	return all.Wait()
}

// createJobs is how many jobs a second one process creates with one pool of connections. Nothing works on them.
func createJobs(byHTTP bool) measureFunc {
	return func(ctx context.Context, l *lab) (float64, error) {
		const n = 5000
		jl, err := openJobs(ctx, l, false)
		if err != nil {
			return 0, err
		}
		start := time.Now()
		err = many(ctx, n, 16, func(ctx context.Context, i int) error {
			prompt := fmt.Sprint("do ", i)
			if byHTTP {
				_, err := jl.call(ctx, http.MethodPost, "/jobs", map[string]any{"prompt": prompt, "context": map[string]any{"i": i}}, nil)
				return err
			}
			_, _, err := jl.jobs.Create(ctx, job.Request{Prompt: prompt, Context: fmt.Appendf(nil, `{"i":%d}`, i)})
			return err
		})
		took := time.Since(start).Seconds()
		totals, err2 := jl.jobs.Totals(ctx)
		if err2 == nil && totals[job.Created] != n {
			err2 = fmt.Errorf("got %v jobs, want %d created ones", totals, n)
		}
		return n / took, errors.Join(err, err2, jl.stop())
	}
}

// The store that the API is asked about.
const (
	manyJobs    = 10_000
	itemsOfEach = 100
	itemsOfBig  = 100_000 // of one more job, which is reported
	asks        = 2000    // of each kind
)

// asked is what the API did with a store of manyJobs jobs.
type asked struct {
	list, status, progress time.Duration // of which 99 of 100 requests took less
	report                 float64       // MB more of the heap while the report of the big job was written
}

// askMany fills a store, and asks the API about it while the system runs.
func askMany(ctx context.Context, l *lab) (a asked, err error) {
	jl, err := openJobs(ctx, l, true)
	if err != nil {
		return a, err
	}
	defer func() { err = errors.Join(err, jl.stop()) }()
	ids, big, err := jl.fill(ctx)
	if err != nil {
		return a, err
	}
	pages, err := jl.pages(ctx)
	if err != nil {
		return a, err
	}
	some := func(i int) string { return "/jobs/" + ids[i*7919%len(ids)] }
	for to, path := range map[*time.Duration]func(int) string{
		&a.list: func(i int) string { return pages[i%len(pages)] }, &a.status: some, &a.progress: func(i int) string { return some(i) + "/progress" },
	} {
		if *to, err = jl.p99(ctx, path); err != nil {
			return a, err
		}
	}
	a.report, err = jl.reportHeap(ctx, big)
	return a, err
}

// pages are the paths of all pages of the list of jobs.
func (jl *jobLab) pages(ctx context.Context) (paths []string, err error) {
	for cursor := ""; ; {
		path := "/jobs?limit=50&cursor=" + cursor
		paths = append(paths, path)
		var page struct{ Next string }
		if _, err := jl.call(ctx, http.MethodGet, path, nil, &page); err != nil {
			return nil, err
		}
		if cursor = page.Next; cursor == "" {
			return paths, nil
		}
	}
}

// fill creates jobs with items, as agents do.
func (jl *jobLab) fill(ctx context.Context) (ids []string, big string, err error) {
	ids = make([]string, manyJobs)
	err = many(ctx, manyJobs, 16, func(ctx context.Context, i int) error {
		j, _, err := jl.jobs.Create(ctx, job.Request{Prompt: fmt.Sprint("do ", i)})
		ids[i] = j.ID
		return err
	})
	if err != nil {
		return nil, "", err
	}
	if err := jl.emit(ctx, manyJobs, itemsOfEach); err != nil {
		return nil, "", err
	}
	j, _, err := jl.jobs.Create(ctx, job.Request{Prompt: "the big one"})
	if err != nil {
		return nil, "", err
	}
	return ids, j.ID, jl.emit(ctx, 1, itemsOfBig)
}

// emit completes the first stage of n jobs, as the agent of role creator: each gets items.
func (jl *jobLab) emit(ctx context.Context, n, items int) error {
	var done atomic.Int64
	return many(ctx, 4, 4, func(ctx context.Context, worker int) error {
		for done.Load() < int64(n) {
			work, _, err := jl.jobs.Take(ctx, "creator", fmt.Sprint("creator-", worker), 10)
			if err != nil {
				return err
			}
			if len(work) == 0 { // the workflows of the jobs are not that far yet
				select {
				case <-time.After(20 * time.Millisecond):
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			for _, w := range work {
				for at := 0; at < items; at += 1000 {
					if _, err := jl.jobs.Add(ctx, w, emitted(at, min(1000, items-at))); err != nil {
						return err
					}
				}
				if err := jl.jobs.Complete(ctx, w, job.Answer{}); err != nil {
					return err
				}
				done.Add(1)
			}
		}
		return nil
	})
}

// emitted returns n items.
func emitted(first, n int) []job.Item {
	items := make([]job.Item, n)
	for i := range items {
		items[i] = job.Item{
			Key: fmt.Sprintf("req-%06d", first+i), Text: fmt.Sprintf("The part %d must be there, and it must do what the page about it says.", first+i),
			SourceLocation: fmt.Sprint("page ", (first+i)/30), Labels: map[string]bool{"gobd": i%7 == 0},
		}
	}
	return items
}

// p99 is how long 99 of 100 requests take at most. Two clients send them.
func (jl *jobLab) p99(ctx context.Context, path func(i int) string) (time.Duration, error) {
	took := make([]time.Duration, asks)
	err := many(ctx, asks, 2, func(ctx context.Context, i int) (err error) {
		took[i], err = jl.call(ctx, http.MethodGet, path(i), nil, nil)
		return err
	})
	slices.Sort(took)
	return took[len(took)*99/100], err
}

// reportHeap is how many MB the heap grows at most while a report is streamed.
func (jl *jobLab) reportHeap(ctx context.Context, id string) (float64, error) {
	debug.FreeOSMemory()
	before, most := heap(), 0.0
	sampled, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for {
			most = max(most, heap())
			select {
			case <-sampled.Done():
				return
			case <-tick.C:
			}
		}
	}()
	n, err := jl.readReport(ctx, id)
	cancel()
	<-ended
	if err == nil && n < 100*itemsOfBig {
		err = fmt.Errorf("got a report of %d bytes, want %d items", n, itemsOfBig)
	}
	return (most - before) / (1 << 20), err
}

// readReport reads a report without keeping it.
func (jl *jobLab) readReport(ctx context.Context, id string) (int64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, jl.server.URL+"/jobs/"+id+"/report?format=json", nil)
	if err != nil {
		return 0, err
	}
	resp, err := jl.http.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("read a report: %s", resp.Status)
	}
	return io.Copy(io.Discard, resp.Body)
}

// heap is how many bytes objects on the heap have, those that are no longer used among them.
func heap() float64 {
	s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(s)
	return float64(s[0].Value.Uint64())
}

// settleItems is how many items a second agents settle through the API: eight of them lease up to 50 at a time and
// complete each by a call of its own.
func settleItems(ctx context.Context, l *lab) (_ float64, err error) {
	const n, agents, capacity = 20_000, 8, 50
	jl, err := openJobs(ctx, l, true)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, jl.stop()) }()
	j, _, err := jl.jobs.Create(ctx, job.Request{Prompt: "settle"})
	if err != nil {
		return 0, err
	}
	if err := jl.emit(ctx, 1, n); err != nil {
		return 0, err
	}
	var settled atomic.Int64
	start := time.Now()
	err = many(ctx, agents, agents, func(ctx context.Context, i int) error {
		return jl.validate(ctx, fmt.Sprint("validator-", i), capacity, func() bool { return settled.Add(1) >= n }, func() bool { return settled.Load() >= n })
	})
	took := time.Since(start).Seconds()
	if err != nil {
		return 0, err
	}
	got, err := jl.jobs.Get(ctx, j.ID)
	if err == nil && got.Items.Integrated != n {
		err = fmt.Errorf("got %+v, want %d integrated items", got.Items, n)
	}
	return n / took, err
}

// validate is an agent that accepts items until all are settled.
func (jl *jobLab) validate(ctx context.Context, name string, capacity int, settled, all func() bool) error {
	var me struct{ ID string }
	if _, err := jl.call(ctx, http.MethodPost, "/agents", map[string]any{"name": name, "roles": []string{"validator"}, "capacity": capacity}, &me); err != nil {
		return err
	}
	for !all() {
		var got struct {
			Assignments []struct {
				ID    string
				Fence int64
			}
		}
		if _, err := jl.call(ctx, http.MethodPost, "/agents/"+me.ID+"/lease", map[string]any{"max": capacity, "wait_seconds": 1}, &got); err != nil {
			return err
		}
		for _, a := range got.Assignments {
			if _, err := jl.call(ctx, http.MethodPost, "/assignments/"+a.ID+"/complete", map[string]any{"agent": me.ID, "fence": a.Fence, "verdict": "accept"}, nil); err != nil {
				return err
			}
			if settled() {
				return nil
			}
		}
	}
	return nil
}

// heartbeats is how many heartbeats a second the API answers: a request and one script of Redis.
func heartbeats(ctx context.Context, l *lab) (_ float64, err error) {
	const n = 20_000
	jl, err := openJobs(ctx, l, true)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, jl.stop()) }()
	var me struct{ ID string }
	if _, err := jl.call(ctx, http.MethodPost, "/agents", map[string]any{"name": "a", "roles": []string{"validator"}}, &me); err != nil {
		return 0, err
	}
	start := time.Now()
	err = many(ctx, n, 8, func(ctx context.Context, _ int) error {
		_, err := jl.call(ctx, http.MethodPost, "/agents/"+me.ID+"/heartbeat", map[string]any{}, nil)
		return err
	})
	return n / time.Since(start).Seconds(), err
}
