package engine

import (
	"context"
	"errors"
	"sync"
	"time"
)

// projectEvery is how often the progress keys of a workflow are written.
const projectEvery = 100 * time.Millisecond

// progressWriter writes the progress keys of the workflows that a worker has run nodes of.
type progressWriter struct {
	*local
	progress *progress

	mu    sync.Mutex       // guards dirty
	dirty map[string]*flow // workflows whose progress keys are to be written, by id
}

func newProgressWriter(l *local, p *progress) *progressWriter {
	return &progressWriter{local: l, progress: p, dirty: map[string]*flow{}}
}

// touch marks a workflow whose progress keys are to be written.
func (w *progressWriter) touch(fl *flow) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dirty[fl.ID] = fl
}

// run writes the progress keys of marked workflows until ctx is done.
func (w *progressWriter) run(ctx context.Context) {
	tick := time.NewTicker(projectEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		w.once(ctx)
	}
}

// once writes the progress keys of the workflows that were marked since the last time.
func (w *progressWriter) once(ctx context.Context) {
	w.mu.Lock()
	dirty := w.dirty
	w.dirty = map[string]*flow{}
	w.mu.Unlock()
	for id, fl := range dirty {
		if err := w.progress.write(ctx, fl); err != nil && ctx.Err() == nil && !errors.Is(err, ErrUnknown) {
			w.log.Warn("progress keys were not written", "workflow", id, "error", err)
		}
	}
}
