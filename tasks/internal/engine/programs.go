package engine

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"muster/tasks/internal/store"
	"muster/tasks/tasktype"
)

// programs lets programs share a queue. The workers with the same handlers are a program. It has a pool of each queue, with
// separate ready lists, for nodes that workers of other programs cannot run: a worker that takes such a node moves it to the pool
// of a program that can. If only that program can, all processes put such nodes into the pool for some time.
type programs struct {
	*local
	fleet  *Fleet
	tasks  []string // that the worker has handlers for, sorted
	name   string   // of its program
	joined func()   // called when the worker begins to serve a pool
	stale  atomic.Bool

	asking lock // held while the live workers are read
	asked  time.Time
	live   []peer // except for this one
	turn   int    // of the programs among which a node is distributed

	mu        sync.Mutex           // guards the fields below
	pools     []string             // that the worker serves
	announced map[string]time.Time // when a pool was announced for a task
}

// peer is another worker.
type peer struct {
	tasktype.Worker
	program string
}

// programsFor is how long the list of live workers is used.
const programsFor = time.Second

// others returns the other live workers of a queue.
func (p *programs) others(ctx context.Context, queue string) ([]*peer, error) {
	p.asking.Lock()
	defer p.asking.Unlock()
	if now := p.clock.Now(); p.stale.Swap(false) || now.Sub(p.asked) > programsFor {
		live, err := p.fleet.Workers(ctx)
		if err != nil {
			p.stale.Store(true)
			return nil, err
		}
		p.asked, p.live = now, p.live[:0:0]
		for _, w := range live {
			if w.Name != p.cfg.Name {
				p.live = append(p.live, peer{w, store.Program(w.Tasks)})
			}
		}
	}
	var out []*peer
	for i := range p.live {
		if o := &p.live[i]; o.Queues[queue] > 0 {
			out = append(out, o)
		}
	}
	return out, nil
}

// poolFor returns the pool of a program of a queue that has a handler for a task; empty if there is none.
func (p *programs) poolFor(ctx context.Context, queue, task string) (string, error) {
	others, err := p.others(ctx, queue)
	if err != nil {
		return "", err
	}
	var pools []string
	for _, o := range others {
		if _, handles := slices.BinarySearch(o.Tasks, task); handles {
			pools = append(pools, store.PoolOf(queue, o.program))
		}
	}
	if len(pools) == 0 {
		return "", nil
	}
	slices.Sort(pools)
	pools = slices.Compact(pools)
	p.mu.Lock()
	p.turn++
	pool, now := pools[p.turn%len(pools)], p.clock.Now()
	name := queue + " " + task
	announce := now.Sub(p.announced[name]) > programsFor
	if announce {
		maps.DeleteFunc(p.announced, func(_ string, at time.Time) bool { return now.Sub(at) > programsFor })
		p.announced[name] = now
	}
	p.mu.Unlock()
	if announce {
		if err := p.store.Tell(ctx, 0, "pool "+pool); err != nil {
			return "", err
		}
	}
	if announce && len(pools) == 1 {
		if err := p.store.Queues.Route(ctx, queue, task, pool); err != nil {
			return "", err
		}
	}
	return pool, nil
}

// join lets the worker serve a pool, if it is one of its program.
func (p *programs) join(pool string) {
	queue := store.BaseQueue(pool)
	if p.cfg.Queues[queue] == 0 || pool != store.PoolOf(queue, p.name) {
		return
	}
	p.mu.Lock()
	joins := !slices.Contains(p.pools, pool)
	if joins {
		p.pools = append(p.pools, pool)
	}
	p.mu.Unlock()
	if joins {
		p.joined()
	}
}

// queues returns queues, each followed by its pool if the worker serves that.
func (p *programs) queues(of []string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.pools) == 0 {
		return of
	}
	var out []string
	for _, q := range of {
		out = append(out, q)
		for _, pool := range p.pools {
			if store.BaseQueue(pool) == q {
				out = append(out, pool)
			}
		}
	}
	return out
}

// deserted reports whether no live worker serves a pool.
func (p *programs) deserted(ctx context.Context, pool string) (bool, error) {
	queue := store.BaseQueue(pool)
	others, err := p.others(ctx, queue)
	return err == nil && !slices.ContainsFunc(others, func(o *peer) bool { return store.PoolOf(queue, o.program) == pool }), err
}

// attend serves the pools with ready nodes of the program of this worker, and once each pool without a live worker: it runs the
// nodes with a handler, and moves the others.
func (p *programs) attend(ctx context.Context, pools []store.Pool, serve func(Wake)) error {
	for _, pool := range pools {
		q := pool.Wake.Queue
		p.join(q)
		if !pool.Idle || slices.Contains(p.queues([]string{store.BaseQueue(q)}), q) {
			continue
		}
		deserted, err := p.deserted(ctx, q)
		if err != nil {
			return err
		}
		if deserted {
			if err := p.store.Queues.DropRoutes(ctx); err != nil {
				return err
			}
			serve(pool.Wake)
		}
	}
	return nil
}
