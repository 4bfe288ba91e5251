package redistest

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
)

// ErrDead is the error of all calls of a client whose process is dead.
var ErrDead = errors.New("the process is dead")

// Mortal is the connection of a process that dies, or is frozen, between two
// calls of Redis.
type Mortal struct {
	redis.UniversalClient
	immortal bool
	left     atomic.Int64  // calls until it dies
	calls    atomic.Int64  // so far
	mu       sync.Mutex    // guards frozen
	frozen   chan struct{} // closed when it continues; nil unless it is frozen
}

// NewMortal returns a client of the Redis at an address, as from [URL]. Redis
// carries out that many calls, pipelines counting as one; the last of them has no
// answer, and all later ones fail with ErrDead. Below 0 it does not die.
func NewMortal(tb testing.TB, address string, calls int) *Mortal {
	tb.Helper()
	m := &Mortal{UniversalClient: redis.NewClient(options(tb, address)), immortal: calls < 0}
	m.left.Store(int64(calls))
	m.AddHook(mortalHook{m})
	tb.Cleanup(func() { _ = m.UniversalClient.Close() })
	return m
}

// Freeze stops all calls that begin from now on, as SIGSTOP does, until the
// returned function is called.
func (m *Mortal) Freeze() (thaw func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	frozen := make(chan struct{})
	m.frozen = frozen
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.frozen == frozen {
			m.frozen = nil
			close(frozen)
		}
	}
}

// Calls returns how many calls there were, those that open a connection included.
func (m *Mortal) Calls() int64 { return m.calls.Load() }

// call does what a call does before and after it.
func (m *Mortal) call(do func() error) error {
	m.mu.Lock()
	frozen := m.frozen
	m.mu.Unlock()
	if frozen != nil {
		<-frozen
	}
	m.calls.Add(1)
	if m.immortal {
		return do()
	}
	left := m.left.Add(-1)
	if left < 0 {
		return ErrDead
	}
	err := do()
	if left == 0 {
		return ErrDead
	}
	return err
}

// mortalHook counts the calls of a client.
type mortalHook struct{ m *Mortal }

func (h mortalHook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (h mortalHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := h.m.call(func() error { return next(ctx, cmd) })
		if errors.Is(err, ErrDead) {
			cmd.SetErr(err)
		}
		return err
	}
}

func (h mortalHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := h.m.call(func() error { return next(ctx, cmds) })
		if errors.Is(err, ErrDead) {
			for _, cmd := range cmds {
				cmd.SetErr(err)
			}
		}
		return err
	}
}
