package sim

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"muster/tasks/internal/canvas"
)

// fairBatches is how many batches of others may be taken before the first one of a workflow that is ready.
const fairBatches = 4

// A workflow that is sent while the nodes of a large one are ready has its turn after a few batches, whatever
// order things happen in.
func TestLargeWorkflowKeepsNoOtherWaiting(t *testing.T) {
	t.Parallel()
	sc := newScripts(nil)
	l := newLane(t, sc)
	for seed := range uint64(20) {
		h := newHistory(l, sc, seed)
		h.shards = 1 // shards share a worker by time
		synctest.Test(t, func(*testing.T) { h.crowd() })
		if len(h.problem) > 0 {
			t.Fatal(h.report(keptEvents))
		}
	}
}

// crowd sends a group of a thousand and, while it runs, one of three.
func (h *history) crowd() {
	h.begin()
	defer h.end()
	h.plan, h.calm = plan{workers: h.among(1, 2), programs: 1}, true
	h.addSenders()
	h.recover()
	h.add(group(1000))
	h.send()
	for len(h.batches) < h.among(3, 12) {
		h.goOnQuietly()
	}
	h.add(group(3))
	h.send()
	for h.flows[1].state != "sent" {
		h.goOnQuietly()
	}
	before, small := len(h.batches), h.flows[1].id+"~"
	for !slices.ContainsFunc(h.batches[before:], func(b batch) bool { return b.has(small) }) {
		h.goOnQuietly()
		if len(h.batches) > before+fairBatches {
			h.fail("%d batches were taken, and none of them of the small workflow: %v", len(h.batches)-before, h.batches[before:])
			return
		}
	}
}

// goOnQuietly takes the next step, or lets time pass if there is none.
func (h *history) goOnQuietly() {
	if !h.quietStep() {
		h.sleep(time.Millisecond)
	}
}

// has reports whether b has nodes of the workflow whose elements have a prefix.
func (b *batch) has(prefix string) bool {
	return slices.ContainsFunc(b.elements, func(e string) bool { return strings.HasPrefix(e, prefix) })
}

// group returns a canvas of n tasks that run at once.
func group(n int) *canvas.Scope {
	ints := make([]int, n)
	return &canvas.Scope{Defs: []canvas.Def{{Kind: "each", Ints: ints}, {Kind: "sum", Kids: []int{0}}}}
}
