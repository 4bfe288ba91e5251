package engine

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/tasks/internal/store"
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
		ctx, cancel := context.WithTimeout(context.Background(), stopFor)
		defer cancel()
		if err := b.runs.stop(ctx, rest); err != nil {
			b.log.Warn("attempts at nodes of a stopped workflow continue until the next look", "error", err)
		}
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
	mu    sync.Mutex // guards the fields below
	set   map[*Run]bool
	ended error // why none begins any more
}

// add adds an attempt. It returns the reason if the handler must not be called any more.
func (rs *runs) add(r *Run) error {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.set[r] = true
	return rs.ended
}

// end lets no further handler be called, for a reason, and returns the attempts.
func (rs *runs) end(cause error) []*Run {
	rs.mu.Lock()
	rs.ended = cause
	rs.mu.Unlock()
	return rs.all()
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

// stopFor bounds the reads for a message, which delay the messages after it.
const stopFor = time.Second

// stop cancels the attempts at nodes that were revoked, and of cancelled workflows except at nodes that handle failures: of one
// workflow, or of all if it is empty.
func (rs *runs) stop(ctx context.Context, workflow string) error {
	runs := slices.DeleteFunc(rs.all(), func(r *Run) bool { return workflow != "" && r.fl.Ref != workflow })
	if len(runs) == 0 {
		return nil
	}
	nodes := make([]store.Entry, len(runs))
	for i, r := range runs {
		nodes[i] = store.Entry{Flow: r.fl.Flow, Node: r.Info.Node}
	}
	w := runs[0].w
	stopped, err := w.store.Flows.Stopped(ctx, nodes)
	for i, why := range stopped {
		switch why {
		case store.StoppedByRevoke:
			runs[i].cancel(errRevoked)
		case store.StoppedByCancel, store.StoppedByDeadline:
			handles, failed := w.graphs.values(runs[i].fl).handles(ctx, runs[i].id)
			if err = cmp.Or(err, failed); failed == nil && !handles {
				runs[i].cancel(cancelCause(why))
			}
		}
	}
	return err
}
