package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/sites"
	"muster/sites/definition"
	"muster/tasks"
	"muster/tasks/workqueue"
)

// request is what the scale run asks of a process, a line of JSON. The process answers with a reply.
type request struct {
	Do     string // "work", "send", "check", "usage"
	Work   string // which work
	N      int    // send: tasks
	Per    int    // send: tasks of a workflow
	Queues int    // of items, at which they are worked on or to which they are sent
	URL    string // of the site whose pages are the work
}

type reply struct {
	CPU   float64 // µs that the process has used
	Peak  float64 // bytes of memory that it has had at most
	Done  int64   // tasks or items that it has done
	Error string
}

// scaleProcess is this process as a worker or sender of the scale run.
type scaleProcess struct {
	name   string
	client *tasks.Client
	rdb    redis.UniversalClient
	done   func() int64
	stops  []func() error
	items  int // enqueued

	mu     sync.Mutex                    // guards the field below
	checks []func(context.Context) error // of results of what was sent
}

// runScaleProcess answers the requests that it reads until their end.
func runScaleProcess(ctx context.Context, name, url string, in io.Reader, out io.Writer) (err error) {
	opts, err := tasks.ParseURL(url)
	if err != nil {
		return err
	}
	rdb := redis.NewUniversalClient(opts)
	client := tasks.NewClient(rdb)
	p := &scaleProcess{name: name, client: client, rdb: rdb, done: func() int64 { return 0 }}
	defer func() {
		for _, stop := range slices.Backward(p.stops) {
			err = errors.Join(err, stop())
		}
		err = errors.Join(err, client.Close(), rdb.Close())
	}()
	requests, replies := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var req request
		if err := requests.Decode(&req); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		err := p.answer(ctx, req)
		rep := reply{Done: p.done()} // before the processor time, which so has all of it
		var usageErr error
		if rep.CPU, usageErr = cpuTime(); usageErr == nil {
			rep.Peak, usageErr = peakMemory()
		}
		if err = errors.Join(err, usageErr); err != nil {
			rep.Error = err.Error()
		}
		if err := replies.Encode(rep); err != nil {
			return err
		}
	}
}

func (p *scaleProcess) answer(ctx context.Context, req request) error {
	switch req.Do {
	case "usage":
		return nil
	case "work":
		return p.work(ctx, req)
	case "send":
		return p.send(ctx, req)
	case "check":
		for _, check := range p.checks {
			if err := check(ctx); err != nil {
				return err
			}
		}
		return nil
	default:
		return fmt.Errorf("unknown request %q", req.Do)
	}
}

// work starts what does the work, with eight slots.
func (p *scaleProcess) work(ctx context.Context, req request) error {
	mux, queues := benchMux(), map[string]int(nil)
	switch req.Work {
	case workItems:
		return p.pools(ctx, req.Queues)
	case workPages:
		mux, queues = tasks.NewMux(), siteQueues()
		s, err := registerSites(p.client, mux, os.TempDir())
		if err != nil {
			return err
		}
		p.stops = append(p.stops, s.Close)
	}
	w, stop, err := startWorker(ctx, p.client, mux, tasks.WorkerConfig{Name: p.name, Queues: queues, Concurrency: scaleSlots})
	if err != nil {
		return err
	}
	p.stops = append(p.stops, stop)
	p.done = func() int64 { return w.Stats().Succeeded }
	return nil
}

// pools starts a pool for each queue of items. They have eight slots each.
func (p *scaleProcess) pools(ctx context.Context, queues int) error {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, queues)
	mux := workqueue.NewMux()
	mux.Handle("bench", nothing)
	var pools []*workqueue.Pool
	for i := range queues {
		pool, err := workqueue.NewPool(p.queue(i), mux, workqueue.PoolConfig{Workers: scaleSlots, Name: p.name})
		if err != nil {
			cancel()
			return err
		}
		pools = append(pools, pool)
	}
	for _, pool := range pools {
		go func() { ended <- pool.Run(ctx) }()
	}
	p.stops = append(p.stops, func() (err error) {
		cancel()
		for range pools {
			err = errors.Join(err, <-ended)
		}
		return err
	})
	p.done = func() (n int64) {
		for _, pool := range pools {
			n += pool.Stats().Done
		}
		return n
	}
	return nil
}

func (p *scaleProcess) queue(i int) *workqueue.Queue {
	return workqueue.New(p.rdb, fmt.Sprint("bench", i), workqueue.Config{})
}

// send sends n tasks, as workflows of per tasks each.
func (p *scaleProcess) send(ctx context.Context, req request) error {
	switch req.Work {
	case workItems:
		return p.enqueue(ctx, req.N, req.Queues)
	case workPages:
		return p.scrape(ctx, req.URL)
	case workPaced:
		return p.sendPaced(ctx, req.N)
	}
	send := func(i int) error { return p.sendOne(ctx, req.Work, i, req.Per) }
	if req.Per < 1000 {
		return bySenders(req.N/req.Per, send)
	}
	for i := range req.N / req.Per { // one after the other, as their size is what is measured
		if err := send(i); err != nil {
			return err
		}
	}
	return nil
}

func (p *scaleProcess) sendOne(ctx context.Context, work string, i, per int) error {
	switch work {
	case workSingles:
		return sendChecked(ctx, p, benchStep.S(i), func(got int) bool { return got == i })
	case workChains:
		s := benchStep.S(i)
		for range per - 1 {
			s = tasks.Chain(s, benchStep)
		}
		return sendChecked(ctx, p, s, func(got int) bool { return got == i })
	case workGroups:
		return sendChecked(ctx, p, tasks.Each(seq(per), benchStep), func(got []int) bool { return slices.Equal(got, seq(per)) })
	case workChords:
		n := per - 1 // and the body
		return sendChecked(ctx, p, tasks.Chord(tasks.Each(seq(n), benchStep), benchSum), func(got int) bool { return got == n*(n-1)/2 })
	default:
		return fmt.Errorf("unknown work %q", work)
	}
}

// sendChecked sends a signature. The value of the first hundred is checked later.
func sendChecked[O any](ctx context.Context, p *scaleProcess, s tasks.Signature[O], right func(O) bool) error {
	run, err := s.Send(ctx, p.client)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.checks) < 100 {
		p.checks = append(p.checks, func(ctx context.Context) error {
			got, err := run.Wait(ctx)
			if err == nil && !right(got) {
				err = fmt.Errorf("workflow %s has the wrong value", run.ID())
			}
			return err
		})
	}
	return nil
}

// sendPaced sends tasks of 20 ms, one each 5 ms.
func (p *scaleProcess) sendPaced(ctx context.Context, n int) error {
	tick := time.NewTicker(pacedEvery)
	defer tick.Stop()
	for i := range n {
		if _, err := benchNap.S(i).Send(ctx, p.client); err != nil {
			return err
		}
		<-tick.C
	}
	return nil
}

// enqueue adds n items to the queues in turns, 10,000 at a time.
func (p *scaleProcess) enqueue(ctx context.Context, n, queues int) error {
	const most = 10_000
	items := make([]workqueue.Item, 0, most)
	for i, batch := 0, 0; i < n; batch++ {
		items = items[:0]
		for ; len(items) < min(most, max(1, n/queues)) && i < n; i++ {
			p.items++
			items = append(items, workqueue.Item{ID: fmt.Sprintf("item-%08d", p.items), Kind: "bench", Payload: []byte(`{"url":"http://127.0.0.1/"}`)})
		}
		if _, err := p.queue(batch%queues).Enqueue(ctx, items...); err != nil {
			return err
		}
	}
	return nil
}

// scrape scrapes the site at url and writes its records, as an orchestrator does.
func (p *scaleProcess) scrape(ctx context.Context, url string) error {
	def, err := defineBenchSite(url)
	if err != nil {
		return err
	}
	return withWriter(ctx, p.client, []*definition.Definition{def}, func(_ *tasks.Mux, s *sites.Service) error {
		_, err := scrape(ctx, s, def.Site, sitePages)
		return err
	})
}

// peakMemory is the most memory that this process has had, in bytes. (What getrusage says includes the memory of the
// process that started this one.)
func peakMemory() (float64, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, fmt.Errorf("read the peak of the memory: %w", err)
	}
	for line := range strings.Lines(string(status)) {
		if kb, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(kb), "kB")), 64)
			return n * 1024, err
		}
	}
	return 0, errors.New("read the peak of the memory: /proc/self/status does not have it")
}

// member is such a process, as the scale run sees it.
type member struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	replies *json.Decoder
	last    reply // to the latest request
}

func startMember(ctx context.Context, name, url string) (*member, error) {
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+childScale+" "+name+" "+url)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a process: %w", err)
	}
	return &member{cmd: cmd, in: in, replies: json.NewDecoder(out)}, nil
}

// ask makes the process do something, and returns when it has done so.
func (m *member) ask(req request) (reply, error) {
	err := json.NewEncoder(m.in).Encode(req)
	if err == nil {
		m.last = reply{}
		err = m.replies.Decode(&m.last)
	}
	if err == nil && m.last.Error != "" {
		err = errors.New(m.last.Error)
	}
	if err != nil {
		return reply{}, fmt.Errorf("%s %s: %w", req.Do, req.Work, err)
	}
	return m.last, nil
}

// stop ends the process as its requests end, and returns when it has ended. It may be called again.
func (m *member) stop() error {
	if m.cmd.ProcessState != nil {
		return nil
	}
	return errors.Join(m.in.Close(), m.cmd.Wait())
}
