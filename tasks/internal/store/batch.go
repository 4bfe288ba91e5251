package store

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Batcher is a connection that sends the script calls of many goroutines together: those that come
// while a round trip is under way go with the next one.
type Batcher struct {
	redis.UniversalClient

	mu      sync.Mutex // guards the fields below
	waiting []*batched
	sending int
}

type batched struct {
	cmd  *redis.Cmd
	done chan struct{} // closed when cmd has its answer
}

const (
	batchMost    = 128 // calls in one round trip
	batchSenders = 2   // round trips at once
	batchTimeout = 10 * time.Second
)

// NewBatcher returns a Batcher on rdb.
func NewBatcher(rdb redis.UniversalClient) *Batcher { return &Batcher{UniversalClient: rdb} }

// EvalSha implements redis.Scripter. When ctx ends first the call may still be made.
func (b *Batcher) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	all := make([]any, 0, 3+len(keys)+len(args))
	all = append(all, "evalsha", sha, len(keys))
	for _, k := range keys {
		all = append(all, k)
	}
	all = append(all, args...)
	me := &batched{cmd: redis.NewCmd(ctx, all...), done: make(chan struct{})}
	b.mu.Lock()
	b.waiting = append(b.waiting, me)
	start := b.sending < batchSenders
	if start {
		b.sending++
	}
	b.mu.Unlock()
	if start {
		go b.drain()
	}
	select {
	case <-me.done:
		return me.cmd
	case <-ctx.Done():
		given := redis.NewCmd(ctx, all...)
		given.SetErr(ctx.Err())
		return given
	}
}

// drain sends until nothing waits.
func (b *Batcher) drain() {
	for {
		b.mu.Lock()
		n := min(len(b.waiting), batchMost)
		if n == 0 {
			b.sending--
			b.mu.Unlock()
			return
		}
		part := b.waiting[:n:n]
		b.waiting = b.waiting[n:]
		b.mu.Unlock()
		b.send(part)
	}
}

func (b *Batcher) send(part []*batched) {
	ctx, cancel := context.WithTimeout(context.Background(), batchTimeout)
	defer cancel()
	if len(part) == 1 {
		_ = b.Process(ctx, part[0].cmd)
	} else {
		pipe := b.Pipeline()
		for _, p := range part {
			_ = pipe.Process(ctx, p.cmd)
		}
		_, _ = pipe.Exec(ctx) // each call has its own error
	}
	for _, p := range part {
		close(p.done)
	}
}
