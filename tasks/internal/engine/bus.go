package engine

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// bus acts on the messages that processes publish to all.
type bus struct {
	*local
	slots  *slots
	runs   *runs
	agenda *agenda
	rings  *rings
	wake   chan struct{} // of the poller
}

// run acts on the messages of other processes.
func (b *bus) run(ctx context.Context, bus <-chan *redis.Message) {
	for {
		select {
		case <-ctx.Done():
			return
		case m, ok := <-bus:
			if !ok {
				return
			}
			b.hear(m.Payload)
		}
	}
}

// hear acts on one message.
func (b *bus) hear(message string) {
	kind, rest, _ := strings.Cut(message, " ")
	switch kind {
	case "q":
		for q := range strings.SplitSeq(rest, ",") {
			if b.cfg.Queues[q] > 0 {
				b.rings.resume()
				signal(b.wake)
				return
			}
		}
	case "t":
		if ms, err := strconv.ParseInt(rest, 10, 64); err == nil {
			b.agenda.setTimer(time.Duration(ms) * time.Millisecond)
		}
	case "x":
		b.runs.revoke(rest, nil)
	case "cancel":
		ref, stopped, _ := strings.Cut(rest, " ")
		b.runs.cancel(ref, cancelCause(stopped))
	case "n":
		id, nodes, _ := strings.Cut(rest, " ")
		b.runs.revoke(id, strings.Split(nodes, ","))
	case "p":
		if err := b.store.Workers.Pong(context.Background(), rest, b.cfg.Name); err != nil {
			b.log.Warn("reply to a ping failed", "error", err)
		}
	case "c":
		name, count, _ := strings.Cut(rest, " ")
		if n, err := strconv.Atoi(count); err == nil && !b.cfg.OnDemand && (name == "*" || name == b.cfg.Name) {
			b.slots.setLimit(max(n, 1))
		}
	}
}

// runs holds the attempts that a worker makes at present.
type runs struct {
	mu  sync.Mutex // guards set
	set map[*Run]bool
}

func (rs *runs) add(r *Run) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.set[r] = true
}

func (rs *runs) remove(r *Run) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	delete(rs.set, r)
}

// all returns the attempts, in any order.
func (rs *runs) all() []*Run {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return slices.Collect(maps.Keys(rs.set))
}

// revoke cancels the attempts at nodes of a workflow, or with nil at all of them.
func (rs *runs) revoke(workflow string, nodes []string) {
	for _, r := range rs.all() {
		if r.fl.Ref == workflow && (nodes == nil || slices.Contains(nodes, r.Info.Node)) {
			r.cancel(errRevoked)
		}
	}
}

// cancelFor bounds the reads of graphs for a message, which delay the messages after it.
const cancelFor = time.Second

// cancel cancels the attempts at nodes of a cancelled workflow, except for nodes that handle failures.
func (rs *runs) cancel(workflow string, cause error) {
	ctx, cancel := context.WithTimeout(context.Background(), cancelFor)
	defer cancel()
	for _, r := range rs.all() {
		if r.fl.Ref != workflow {
			continue
		}
		if handles, err := r.w.graphs.values(r.fl).handles(ctx, r.id); err == nil && !handles { // an error: the message is repeated
			r.cancel(cause)
		}
	}
}
