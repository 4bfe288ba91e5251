package engine

import (
	"context"
	"sync"
	"time"

	"muster/tasks/internal/store"
)

// routes caches the pools to which nodes of a task are sent. Workers that move nodes to a pool store its route.
type routes struct {
	mu     sync.Mutex // guards the fields below; not held during calls to Redis
	known  map[string]route
	failed time.Time // when they could not be read
}

// route is the pool of a task in a queue, empty for none, and when it was read.
type route struct {
	pool string
	at   time.Time
}

const (
	routeFor   = 2 * time.Second // how long a route is used without reading it again
	routeWait  = time.Second     // how long a call waits for them; nodes can be moved later
	mostRoutes = 10_000          // in the cache
)

// routed is a node that becomes ready without a delay.
type routed struct {
	task string
	lane *string
}

// edges returns the nodes at the ends of the edges of changes.
func edges(changes []store.Change) (out []routed) {
	for i := range changes {
		for k := range changes[i].Edges {
			if e := &changes[i].Edges[k]; e.Delay == "" && e.Lim == "" {
				out = append(out, routed{e.Task, &e.Lane})
			}
		}
	}
	return out
}

// roots returns the first nodes of a graph.
func roots(g *store.Grow) (out []routed) {
	for i := range g.Roots {
		if r := &g.Roots[i]; r.Delay == "" && r.Lim == "" {
			out = append(out, routed{r.Task, &r.Lane})
		}
	}
	return out
}

// route sets the lanes of nodes to the pools of their tasks. Without Redis they stay as they are: a worker moves the nodes then.
func (e *env) route(ctx context.Context, nodes []routed) {
	now := e.clock.Now()
	var unknown []string
	asked := map[string]bool{}
	e.routes.mu.Lock()
	for _, n := range nodes {
		name := n.name()
		if r, ok := e.routes.known[name]; name != "" && !asked[name] && (!ok || now.Sub(r.at) > routeFor) {
			asked[name] = true
			unknown = append(unknown, name)
		}
	}
	if now.Sub(e.routes.failed) < routeFor {
		unknown = nil
	}
	e.routes.mu.Unlock()
	if len(unknown) > 0 {
		brief, cancel := context.WithTimeout(ctx, routeWait)
		defer cancel()
		pools, err := e.store.Queues.Routes(brief, unknown)
		if err != nil {
			e.routes.mu.Lock()
			e.routes.failed = e.clock.Now()
			e.routes.mu.Unlock()
			e.log.DebugContext(ctx, "pools of tasks were not read", "error", err)
			return
		}
		e.routes.mu.Lock()
		if len(e.routes.known) > mostRoutes {
			clear(e.routes.known)
		}
		for i, name := range unknown {
			e.routes.known[name] = route{pools[i], now}
		}
		e.routes.mu.Unlock()
	}
	e.routes.mu.Lock()
	defer e.routes.mu.Unlock()
	for _, n := range nodes {
		if pool := e.routes.known[n.name()].pool; pool != "" {
			*n.lane = (*n.lane)[:2] + pool
		}
	}
}

// name returns the name of the route of a node; empty for none.
func (n routed) name() string {
	if n.task == "" || len(*n.lane) < 3 {
		return ""
	}
	return (*n.lane)[2:] + " " + n.task
}
