package engine

import (
	"context"
	"time"
)

// suspects holds a value while a suspected node runs. Only one of them runs in a process: if the process dies, the
// others were not the cause.
var suspects = make(chan struct{}, 1)

// suspectPause is about how long a suspected node is put back when another one runs in this process.
const suspectPause = 100 * time.Millisecond

// alone lets a suspected node run if no other one runs in this process, until leave is called; leave is nil if another
// one runs. mine is false if the worker does not have the batch any more.
func (rn *runner) alone(ctx context.Context, b *batch) (leave func(), mine bool, err error) {
	select {
	case suspects <- struct{}{}:
	default:
		return nil, true, nil
	}
	leave = func() { <-suspects }
	mine, err = rn.store.Batches.Enter(ctx, b.shard, rn.cfg.Name, b.name())
	if err != nil || !mine {
		leave()
		return nil, mine, err
	}
	return leave, true, nil
}
