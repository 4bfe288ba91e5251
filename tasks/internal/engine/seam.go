package engine

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/tasks/internal/store"
)

// seam is the connection that asynq's server works on. It sees every script asynq runs, knows it by
// the shape of its keys, and changes three things: a server that found its queues empty sleeps until
// it is woken rather than polling; it takes no task while the worker runs as many as it may; and
// what follows a task is written with a context of its own, because asynq hands its retries one that
// is cancelled already.
type seam struct {
	redis.UniversalClient
	scripts *store.Batcher // for what follows a task
	queues  int            // how many queues one round asks
	poll    time.Duration  // longest sleep
	wake    chan struct{}  // has a value when there may be work
	room    chan struct{}  // has a value when a slot may be free
	closed  chan struct{}  // closed when the server must not take any more
	once    sync.Once

	empty  int // queues found empty in this round; only asynq's processor touches it
	limit  atomic.Int64
	active atomic.Int64
}

func newSeam(rdb redis.UniversalClient, scripts *store.Batcher, queues int, poll time.Duration) *seam {
	return &seam{UniversalClient: rdb, scripts: scripts, queues: queues, poll: poll,
		wake: make(chan struct{}, 1), room: make(chan struct{}, 1), closed: make(chan struct{})}
}

type scriptKind int

const (
	otherScript scriptKind = iota
	dequeueScript
	finishScript // done, complete, retry, archive, requeue
)

// kindOf knows asynq's scripts by their keys.
func kindOf(keys []string) scriptKind {
	switch {
	case len(keys) == 4 && strings.HasSuffix(keys[0], ":pending") && strings.HasSuffix(keys[1], ":paused"):
		return dequeueScript
	case len(keys) >= 4 && strings.HasSuffix(keys[0], ":active") && strings.HasSuffix(keys[1], ":lease"),
		len(keys) >= 4 && strings.Contains(keys[0], "}:t:") && strings.HasSuffix(keys[1], ":active"):
		return finishScript
	}
	return otherScript
}

func ring(bell chan struct{}) {
	select {
	case bell <- struct{}{}:
	default:
	}
}

// stop lets the server find nothing from now on.
func (s *seam) stop() { s.once.Do(func() { close(s.closed) }) }

func (s *seam) stopped() bool {
	select {
	case <-s.closed:
		return true
	default:
		return false
	}
}

// done gives a slot back.
func (s *seam) done() {
	s.active.Add(-1)
	ring(s.room)
}

// EvalSha implements redis.Scripter.
func (s *seam) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	switch kindOf(keys) {
	case dequeueScript:
		return s.dequeue(ctx, sha, keys, args)
	case finishScript:
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		return s.scripts.EvalSha(ctx, sha, keys, args...)
	}
	return s.UniversalClient.EvalSha(ctx, sha, keys, args...)
}

// Eval implements redis.Scripter: the way asynq falls back to when Redis has lost its scripts.
func (s *seam) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	if kindOf(keys) == finishScript {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		return s.UniversalClient.Eval(ctx, script, keys, args...)
	}
	cmd := s.UniversalClient.Eval(ctx, script, keys, args...)
	if kindOf(keys) == dequeueScript && cmd.Err() == nil {
		s.active.Add(1)
	}
	return cmd
}

func (s *seam) dequeue(ctx context.Context, sha string, keys []string, args []any) *redis.Cmd {
	nothing := func() *redis.Cmd {
		cmd := redis.NewCmd(ctx)
		cmd.SetErr(redis.Nil)
		return cmd
	}
	for s.active.Load() >= s.limit.Load() {
		if s.stopped() {
			return nothing()
		}
		select {
		case <-s.room:
		case <-s.closed:
		case <-time.After(s.poll):
		}
	}
	if s.stopped() {
		return nothing()
	}
	cmd := s.UniversalClient.EvalSha(ctx, sha, keys, args...)
	switch err := cmd.Err(); {
	case err == nil:
		s.active.Add(1)
		s.empty = 0
	case errors.Is(err, redis.Nil):
		if s.empty++; s.empty >= s.queues {
			s.empty = 0
			s.sleep(s.poll)
		}
	case !redis.HasErrorPrefix(err, "NOSCRIPT"):
		// asynq would ask again at once.
		s.sleep(200 * time.Millisecond)
	}
	return cmd
}

func (s *seam) sleep(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-s.wake:
	case <-s.closed:
	case <-t.C:
	}
}
