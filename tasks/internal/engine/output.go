package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"muster/tasks/internal/store"
	"muster/tasks/tasktype"
)

const (
	emitEvery   = 50 * time.Millisecond // how often the output of a run is stored
	emitTimeout = 2 * time.Second
	emitAtOnce  = 1000 // chunks of a call
)

// output holds the output of a run that is not stored yet.
type output struct {
	storing lock      // held while output is stored; it guards calls
	began   time.Time // of the output, by the clock of the machine: it distinguishes the runs
	calls   int       // that have stored some

	mu      sync.Mutex // guards the fields below
	chunks  [][]byte
	bytes   int
	dropped int // before the chunks, because of the limits
	timer   *time.Timer
}

// outputLimits returns how many chunks and bytes of the output of the run are kept.
func (r *Run) outputLimits() (chunks, bytes int) {
	if h := r.w.handlers[r.spec.Task]; h != nil && h.Opts != nil {
		chunks, bytes = h.Opts.OutputChunks, h.Opts.OutputBytes
	}
	return cmp.Or(chunks, store.OutputChunks), cmp.Or(bytes, store.OutputBytes)
}

// Emit adds a value to the output of the run. It does not wait for Redis.
func (r *Run) Emit(value []byte) error {
	r.mu.Lock()
	if r.output == nil && !r.over {
		r.output = &output{storing: newLock(), began: time.Now()}
	}
	o, over := r.output, r.over
	r.mu.Unlock()
	switch {
	case over:
		return errors.New("the handler has returned")
	case r.ctx.Err() != nil:
		return context.Cause(r.ctx)
	}
	chunks, bytes := r.outputLimits()
	raw, err := store.EncodeChunk(r.Info.Attempt, o.began, r.w.clock.Now(), value)
	if err == nil && len(raw) > bytes {
		err = permanently("the chunk has %d bytes, and the output of the task at most %d; see KeepOutput", len(raw), bytes)
	}
	if err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.chunks, o.bytes = append(o.chunks, raw), o.bytes+len(raw)
	for len(o.chunks) > chunks || o.bytes > bytes {
		o.bytes -= len(o.chunks[0])
		o.chunks, o.dropped = o.chunks[1:], o.dropped+1
	}
	if o.timer == nil {
		o.timer = time.AfterFunc(emitEvery, func() { r.storeOutput(false) })
	}
	return nil
}

// storeOutput stores the output of the run. The last call waits for the call before, and drops what it cannot store.
func (r *Run) storeOutput(last bool) {
	o := r.output
	o.storing.Lock()
	defer o.storing.Unlock()
	for {
		o.mu.Lock()
		if o.timer != nil {
			o.timer.Stop()
		}
		o.timer = nil
		n := min(len(o.chunks), emitAtOnce)
		chunks, dropped := o.chunks[:n:n], o.dropped
		o.chunks, o.dropped = o.chunks[n:], 0
		for _, c := range chunks {
			o.bytes -= len(c)
		}
		o.mu.Unlock()
		if n == 0 {
			return
		}
		most, bytes := r.outputLimits()
		ctx, cancel := context.WithTimeout(context.Background(), emitTimeout)
		o.calls++
		held, err := r.w.store.Flows.AddOutput(ctx, r.w.leases.lend(r.it), most, bytes, dropped, fmt.Sprint(o.began.UnixMicro(), ".", o.calls), chunks)
		cancel()
		if err != nil {
			r.w.log.Warn("output was dropped", "workflow", r.Info.Workflow, "node", r.Info.Node, "chunks", n, "error", err)
			o.mu.Lock()
			o.dropped += dropped + n
			o.mu.Unlock()
		} else if !held && !last {
			r.cancel(errLost)
		}
		if err != nil && !last {
			return
		}
	}
}

// Output calls each with the output of a node, or of all nodes if it is empty, until the node or the workflow has ended or each returns false.
func (r *Results) Output(ctx context.Context, refOrID, node string, each func(tasktype.Chunk) bool) error {
	fl, fail, err := r.find(ctx, refOrID)
	if err != nil || fail != nil {
		return err
	}
	if node != "" {
		if _, _, _, err := r.graphs.existing(ctx, fl.Ref, node); err != nil {
			return err
		}
	}
	reader := &store.OutputReader{Flow: fl.Flow, Node: node}
	return r.Follow(ctx, fl.Ref, func(string) (bool, error) {
		over, _, err := r.hasEnded(ctx, fl.Flow) // before reading, so that everything is visible
		if err == nil && !over && node != "" {
			var rec store.Record
			rec, err = r.graphs.values(fl).record(ctx, node)
			over = rec.Terminal()
		}
		if err != nil {
			return false, err
		}
		chunks, err := r.store.Flows.Output(ctx, reader)
		for _, c := range chunks {
			if !each(c) {
				return true, nil
			}
		}
		return over, err
	})
}
