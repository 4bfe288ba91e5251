package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// The scale run measures how processor time and memory grow with the number of processes, of nodes of Redis and of tasks.
// It has no yardsticks and no bars: the capacity model (docs/concepts/capacity.md) is made of its numbers. It looks at
// processor time and not at how long work takes, because all processes share one machine.

// The works of the scale run. Each task does nothing, but for those of workPaced, which sleep, and the pages.
const (
	workSingles = "single" // workflows of one task, as fast as they can be sent
	workPaced   = "paced"  // the same at a pace that leaves workers idle in between
	workChains  = "chain"
	workGroups  = "group"
	workChords  = "chord"
	workItems   = "item" // of work queues
	workPages   = "page" // of a site: fetched, extracted, written to a file
)

const (
	scaleSlots  = 8                    // of a worker, and of each of its pools
	pacedEvery  = 5 * time.Millisecond // 200 tasks a second
	itemQueues  = 6                    // over which the nodes of a cluster share the items: the keys of a queue are on one node
	idleSpan    = 5 * time.Second
	groupLimit  = 100_000   // tasks of a workflow: more are sent as several. A send takes 200,000 nodes at most
	cellTimeout = time.Hour // for a process that hangs
)

// cell is the cost of a task of one work on so many processes and nodes.
type cell struct {
	Work     string  `json:"work"`
	Workers  int     `json:"workers"`
	Nodes    int     `json:"redis_nodes"`
	Tasks    int     `json:"tasks"`
	Redis    float64 `json:"redis_us"`  // µs of the main threads of all nodes
	Worker   float64 `json:"worker_us"` // µs of all workers
	Sender   float64 `json:"sender_us"` // µs of the process that sends, or of the one that writes records
	Commands float64 `json:"commands"`  // those inside of scripts, too
	Scripts  float64 `json:"scripts"`
	Traffic  float64 `json:"bytes_to_and_from_redis"`
	Bytes    float64 `json:"bytes_in_redis"` // once all have ended
	Busiest  float64 `json:"busiest_node"`   // its share of the time of Redis
}

// idleCell is what workers without work cost in a second.
type idleCell struct {
	Workers  int     `json:"workers"`
	Nodes    int     `json:"redis_nodes"`
	Redis    float64 `json:"redis_us"`
	Worker   float64 `json:"worker_us"`
	Commands float64 `json:"commands"`
}

// plan is what a scale run measures.
type plan struct {
	workers []int
	nodes   []int
	cells   map[string]int // tasks in a cell, by work
	groups  []int          // tasks of a group, and of a chord
	items   []int          // items of a queue
	memory  float64        // bytes that Redis may use
}

// defaultPlan takes some minutes. It goes as far as maxItems items.
func defaultPlan(maxItems int, memory float64) plan {
	p := plan{
		workers: []int{1, 2, 4, 8},
		nodes:   []int{1, 2, 3},
		cells: map[string]int{
			workSingles: 10_000, workPaced: 1000, workChains: 15_000, workGroups: 30_000, workChords: 30_300, workItems: 60_000, workPages: sitePages,
		},
		groups: []int{1000, 10_000, 100_000, 1_000_000},
		memory: memory,
	}
	for n := 10_000; n <= maxItems; n *= 10 {
		p.items = append(p.items, n)
	}
	return p
}

// perWorkflow is how many tasks a workflow of the work has in a cell.
func perWorkflow(work string) int {
	switch work {
	case workChains:
		return 10
	case workGroups:
		return 100
	case workChords:
		return 101
	default:
		return 1
	}
}

// scaleWorks are the works of the cells in the order of the tables.
var scaleWorks = []string{workSingles, workPaced, workChains, workGroups, workChords, workItems}

// runScale measures all of a plan. It writes to progress what it is at.
func runScale(ctx context.Context, p plan, progress io.Writer) (*scaleReport, error) {
	rep, loadBefore := &scaleReport{}, loadAverage()
	for _, nodes := range p.nodes {
		// As muster start runs its own.
		f, err := openFarm(ctx, nodes, "--appendonly", "yes", "--appendfsync", "everysec")
		if err != nil {
			return nil, err
		}
		err = rep.addCells(ctx, f, p, progress)
		f.close()
		if err != nil {
			return nil, err
		}
	}
	// Without a file: it would have gigabytes.
	f, err := openFarm(ctx, 1)
	if err != nil {
		return nil, err
	}
	defer f.close()
	if err := rep.addSizes(ctx, f, p, progress); err != nil {
		return nil, err
	}
	info, err := f.nodes[0].infos(ctx)
	rep.Machine = describeMachine(ctx, info["redis_version"], loadBefore)
	return rep, err
}

func (rep *scaleReport) addCells(ctx context.Context, f *farm, p plan, progress io.Writer) error {
	nodes := len(f.nodes)
	for i, workers := range p.workers {
		ends := i == 0 || i == len(p.workers)-1 // what waits takes seconds: not for each number
		for _, work := range scaleWorks {
			n := p.cells[work]
			if n == 0 || work == workPaced && !ends {
				continue
			}
			fmt.Fprintf(progress, "%s: %s, %s of Redis …\n", work, count(workers, "worker"), count(nodes, "node"))
			c, err := measureCell(ctx, f, work, workers, n)
			if err != nil {
				return fmt.Errorf("%s with %s on %s: %w", work, count(workers, "worker"), count(nodes, "node"), err)
			}
			rep.Cells = append(rep.Cells, c)
		}
		if !ends {
			continue
		}
		fmt.Fprintf(progress, "idle: %s, %s of Redis …\n", count(workers, "worker"), count(nodes, "node"))
		c, err := measureIdle(ctx, f, workers)
		if err != nil {
			return fmt.Errorf("idle with %s on %s: %w", count(workers, "worker"), count(nodes, "node"), err)
		}
		rep.Idle = append(rep.Idle, c)
	}
	if nodes > 1 || p.cells[workPages] == 0 {
		return nil
	}
	fmt.Fprintf(progress, "page: 1 worker, 1 node of Redis …\n")
	c, err := measurePages(ctx, f)
	rep.Cells = append(rep.Cells, c)
	return err
}

// crew is the processes of a cell.
type crew struct {
	sender  *member
	workers []*member
}

// startCrew starts a sender and workers, which take the work of first.
func startCrew(ctx context.Context, f *farm, workers int, first request) (*crew, error) {
	c := &crew{}
	var err error
	if c.sender, err = startMember(ctx, "sender", f.url()); err != nil {
		return nil, err
	}
	for i := range workers {
		if err := c.hire(ctx, f, fmt.Sprint("worker", i), first); err != nil {
			return nil, errors.Join(err, c.stop())
		}
	}
	_, err = c.sender.ask(request{Do: "usage"})
	return c, err
}

// hire starts one more worker.
func (c *crew) hire(ctx context.Context, f *farm, name string, first request) error {
	m, err := startMember(ctx, name, f.url())
	if err != nil {
		return err
	}
	c.workers = append(c.workers, m)
	first.Do = "work"
	_, err = m.ask(first)
	return err
}

func (c *crew) stop() error {
	err := c.sender.stop()
	for _, w := range c.workers {
		err = errors.Join(err, w.stop())
	}
	return err
}

// usage is the processor time and the results of all workers, and the largest peak of their memory.
func (c *crew) usage() (sum reply, err error) {
	for _, w := range c.workers {
		r, err := w.ask(request{Do: "usage"})
		if err != nil {
			return reply{}, err
		}
		sum.CPU += r.CPU
		sum.Done += r.Done
		sum.Peak = max(sum.Peak, r.Peak)
	}
	return sum, nil
}

// await returns the usage of the workers when they have done so many.
func (c *crew) await(ctx context.Context, done int64) (reply, error) {
	for {
		u, err := c.usage()
		if err != nil || u.Done >= done {
			return u, err
		}
		if err := pause(ctx, 25*time.Millisecond); err != nil {
			return u, fmt.Errorf("%d of %d have ended: %w", u.Done, done, err)
		}
	}
}

// used is what was used while something was done.
type used struct {
	redis          redisLoad
	worker, sender float64 // µs
}

// measure is what do uses.
func (c *crew) measure(ctx context.Context, f *farm, do func() error) (used, error) {
	type state struct {
		redis           redisLoad
		workers, sender reply
	}
	look := func() (s state, err error) {
		if s.workers, err = c.usage(); err == nil {
			s.sender, err = c.sender.ask(request{Do: "usage"})
		}
		if err == nil {
			s.redis, err = f.load(ctx)
		}
		return s, err
	}
	before, err := look()
	if err != nil {
		return used{}, err
	}
	if err := do(); err != nil {
		return used{}, err
	}
	after, err := look()
	return used{
		redis:  after.redis.since(before.redis),
		worker: after.workers.CPU - before.workers.CPU,
		sender: after.sender.CPU - before.sender.CPU,
	}, err
}

// sendAndAwait sends n tasks, and returns when the workers have done them.
func (c *crew) sendAndAwait(ctx context.Context, req request, n int) error {
	u, err := c.usage()
	if err != nil {
		return err
	}
	req.Do, req.N = "send", n
	if _, err := c.sender.ask(req); err != nil {
		return err
	}
	_, err = c.await(ctx, u.Done+int64(n))
	return err
}

// withCrew calls use with processes on an empty Redis, and returns how much more memory Redis has once they have ended.
func withCrew(ctx context.Context, f *farm, workers int, req request, use func(ctx context.Context, c *crew) error) (float64, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, cellTimeout, fmt.Errorf("it takes longer than %v", cellTimeout))
	defer cancel() // which kills processes that hang
	if err := f.empty(ctx); err != nil {
		return 0, err
	}
	before, err := f.load(ctx)
	if err != nil {
		return 0, err
	}
	c, err := startCrew(ctx, f, workers, req)
	if err != nil {
		return 0, err
	}
	if err := errors.Join(use(ctx, c), c.stop()); err != nil {
		return 0, errors.Join(err, context.Cause(ctx))
	}
	after, err := f.load(ctx)
	return after.since(before).memory, err
}

// measureCell sends n tasks while the workers run them.
func measureCell(ctx context.Context, f *farm, work string, workers, n int) (cell, error) {
	req := request{Work: work, Per: perWorkflow(work), Queues: itemQueues}
	warmUp := 10 * workers * req.Per // loads the scripts, fills the pools of connections
	var u used
	memory, err := withCrew(ctx, f, workers, req, func(ctx context.Context, c *crew) error {
		err := c.sendAndAwait(ctx, req, warmUp)
		if err == nil {
			u, err = c.measure(ctx, f, func() error { return c.sendAndAwait(ctx, req, n) })
		}
		if err == nil {
			_, err = c.sender.ask(request{Do: "check"})
		}
		return err
	})
	if err != nil {
		return cell{}, err
	}
	return newCell(work, workers, n, u, memory/float64(n+warmUp)), nil
}

func newCell(work string, workers, n int, u used, bytes float64) cell {
	per := func(v float64) float64 { return v / float64(n) }
	return cell{
		Work: work, Workers: workers, Nodes: len(u.redis.nodes), Tasks: n,
		Redis: per(u.redis.cpu), Worker: per(u.worker), Sender: per(u.sender),
		Commands: per(u.redis.commands), Scripts: per(u.redis.scripts), Traffic: per(u.redis.traffic),
		Bytes: bytes, Busiest: u.redis.busiest(),
	}
}

// measurePages scrapes a site that this process serves.
func measurePages(ctx context.Context, f *farm) (cell, error) {
	srv, _, err := benchSite()
	if err != nil {
		return cell{}, err
	}
	defer srv.Close()
	req := request{Work: workPages, URL: srv.URL}
	var u used
	memory, err := withCrew(ctx, f, 1, req, func(ctx context.Context, c *crew) error {
		u, err = c.measure(ctx, f, func() error {
			req.Do = "send"
			_, err := c.sender.ask(req)
			return err
		})
		return err
	})
	if err != nil {
		return cell{}, err
	}
	return newCell(workPages, 1, sitePages, u, memory/sitePages), nil
}

func measureIdle(ctx context.Context, f *farm, workers int) (idleCell, error) {
	var u used
	_, err := withCrew(ctx, f, workers, request{}, func(ctx context.Context, c *crew) error {
		err := pause(ctx, 2*time.Second) // until all have started
		if err == nil {
			u, err = c.measure(ctx, f, func() error { return pause(ctx, idleSpan) })
		}
		return err
	})
	per := idleSpan.Seconds()
	return idleCell{Workers: workers, Nodes: len(f.nodes), Redis: u.redis.cpu / per, Worker: u.worker / per, Commands: u.redis.commands / per}, err
}
