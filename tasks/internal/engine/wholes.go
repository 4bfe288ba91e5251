package engine

import (
	"sync"
	"time"

	"muster/tasks/internal/store"
)

// Workflows that were read as a whole are kept in memory for keepWhole after their last use, so that an open page reads
// them from Redis only after changes. They have at most maxWhole fields together.
const (
	keepWhole = 5 * time.Second
	maxWhole  = 200_000
)

// wholes holds workflows that were read as a whole, by reference.
type wholes struct {
	mu     sync.Mutex // guards the fields below
	kept   map[string]*keptWhole
	fields int
}

type keptWhole struct {
	*whole
	revision string
	drop     *time.Timer
}

func newWholes() *wholes { return &wholes{kept: map[string]*keptWhole{}} }

// get returns the workflow with a reference in a revision, or nil.
func (ws *wholes) get(ref, revision string) *whole {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	k := ws.kept[ref]
	if k == nil || k.revision != revision {
		return nil
	}
	k.drop.Reset(keepWhole)
	return k.whole
}

// put keeps a workflow. Its fields must not be changed any more.
func (ws *wholes) put(w *whole) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.remove(ws.kept[w.Ref])
	if ws.fields+len(w.fields) > maxWhole {
		return
	}
	k := &keptWhole{whole: w, revision: store.RevisionOf(w.fields)}
	k.drop = time.AfterFunc(keepWhole, func() {
		ws.mu.Lock()
		defer ws.mu.Unlock()
		ws.remove(k)
	})
	ws.kept[w.Ref] = k
	ws.fields += len(w.fields)
}

// remove drops a workflow unless another one has taken its place. The caller holds mu.
func (ws *wholes) remove(k *keptWhole) {
	if k == nil || ws.kept[k.Ref] != k {
		return
	}
	k.drop.Stop()
	delete(ws.kept, k.Ref)
	ws.fields -= len(k.fields)
}
