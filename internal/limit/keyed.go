package limit

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// KeyedConfig configures a KeyedLimiter.
type KeyedConfig struct {
	Default  int            // slots of keys that are not in PerKey. Defaults to 1.
	PerKey   map[string]int // slots by key
	TTL      time.Duration  // lifetime of the slots of a dead process, identical in all processes. Defaults to 30 s.
	FailOpen bool           // allow all requests while Redis is unreachable. Defaults to false.
	Logger   *slog.Logger   // Defaults to slog.Default().
}

// A KeyedLimiter limits the concurrency of each key across all processes. The waiting callers of one process are served
// in order, and the processes with waiting callers take turns. It is safe for concurrent use.
//
// While slots are held, one goroutine renews them.
type KeyedLimiter struct {
	rdb  redis.UniversalClient
	cfg  KeyedConfig
	warn *warner

	mu      sync.Mutex                 // guards the fields below
	held    map[*Slot]struct{}         // slots to renew
	lines   map[string][]chan struct{} // waiters of this process by key; the first one polls Redis, and a send wakes it
	renewal context.CancelFunc         // nil while no slot is held
	done    chan struct{}              // closed when the renewal goroutine has returned
}

// NewKeyedLimiter returns a limiter. It does no I/O.
func NewKeyedLimiter(rdb redis.UniversalClient, cfg KeyedConfig) *KeyedLimiter {
	cfg.Default = max(cfg.Default, 1)
	cfg.PerKey = maps.Clone(cfg.PerKey)
	if cfg.TTL <= 0 {
		cfg.TTL = 30 * time.Second
	}
	return &KeyedLimiter{
		rdb: rdb, cfg: cfg, warn: newWarner(cfg.Logger, "slots"),
		held: make(map[*Slot]struct{}), lines: make(map[string][]chan struct{}),
	}
}

// A Slot is held until Release or the death of its process.
type Slot struct {
	l      *KeyedLimiter
	key    string
	holder string // empty if Redis was unreachable
}

// Key returns the key of the slot.
func (s *Slot) Key() string { return s.key }

// configuredLimit returns the number of slots of a key. The caller holds mu.
func (l *KeyedLimiter) configuredLimit(key string) int {
	if n, ok := l.cfg.PerKey[key]; ok {
		return max(n, 1)
	}
	return l.cfg.Default
}

// Configure replaces the default and the limits by key of this process, for a reload of the configuration. Additional
// slots are available immediately; a lower limit takes effect as slots are released.
func (l *KeyedLimiter) Configure(byDefault int, perKey map[string]int) {
	l.mu.Lock()
	l.cfg.Default, l.cfg.PerKey = max(byDefault, 1), maps.Clone(perKey)
	keys := slices.Collect(maps.Keys(l.lines))
	l.mu.Unlock()
	for _, k := range keys {
		l.wake(k)
	}
}

// TryAcquire acquires a slot if one is free and no caller is waiting. Otherwise it returns nil and no error.
func (l *KeyedLimiter) TryAcquire(ctx context.Context, key string) (*Slot, error) {
	l.mu.Lock()
	line := len(l.lines[key])
	l.mu.Unlock()
	if line > 0 {
		return nil, nil
	}
	return l.attempt(ctx, key, rand.Text(), false)
}

// TryAcquireFor is like Acquire, but returns nil and no error after patience.
func (l *KeyedLimiter) TryAcquireFor(ctx context.Context, key string, patience time.Duration) (*Slot, error) {
	wait, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s, err := l.Acquire(wait, key)
	if err != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return nil, nil
	}
	return s, err
}

// Polling intervals of a waiter. A release in this process wakes it earlier.
const (
	minPoll = 5 * time.Millisecond
	maxPoll = 100 * time.Millisecond
)

// waiterTTL is the time after which a waiter that does not poll loses its position in the queue.
const waiterTTL = 2 * time.Second

// Acquire acquires a slot. It waits until one is free or ctx is done.
func (l *KeyedLimiter) Acquire(ctx context.Context, key string) (*Slot, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	me := make(chan struct{}, 1)
	l.mu.Lock()
	l.lines[key] = append(l.lines[key], me)
	first := len(l.lines[key]) == 1
	l.mu.Unlock()
	defer l.leave(key, me)

	// Only the first waiter of this process is in the queue in Redis.
	if !first {
		select {
		case <-me:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for a slot of %s: %w", key, context.Cause(ctx))
		}
	}
	holder := rand.Text()
	for pause := minPoll; ; pause = min(2*pause, maxPoll) {
		s, err := l.attempt(ctx, key, holder, true)
		if s != nil || err != nil {
			return s, err
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-me:
			t.Stop()
			pause = minPoll
		case <-ctx.Done():
			t.Stop()
			l.quit(key, holder)
			return nil, fmt.Errorf("wait for a slot of %s: %w", key, context.Cause(ctx))
		}
	}
}

// leave removes a waiter from the local queue and wakes the next one.
func (l *KeyedLimiter) leave(key string, me chan struct{}) {
	l.mu.Lock()
	line := slices.DeleteFunc(l.lines[key], func(c chan struct{}) bool { return c == me })
	if len(line) == 0 {
		delete(l.lines, key)
	} else {
		l.lines[key] = line
	}
	l.mu.Unlock()
	l.wake(key)
}

// wake makes the first local waiter of a key poll immediately.
func (l *KeyedLimiter) wake(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if line := l.lines[key]; len(line) > 0 {
		select {
		case line[0] <- struct{}{}:
		default:
		}
	}
}

// attempt tries to acquire a slot once.
func (l *KeyedLimiter) attempt(ctx context.Context, key, holder string, wait bool) (*Slot, error) {
	waits := 0
	if wait {
		waits = 1
	}
	l.mu.Lock()
	limit := l.configuredLimit(key)
	l.mu.Unlock()
	got, err := scripts["acquire"].Run(ctx, l.rdb, slotKeys(key),
		holder, limit, l.cfg.TTL.Milliseconds(), waits, waiterTTL.Milliseconds()).Bool()
	switch { // after an error the slot may have been acquired, if only the reply was lost
	case err == nil:
		if !got {
			return nil, nil
		}
	case l.cfg.FailOpen && ctx.Err() == nil:
		l.warn.open(err)
	default:
		l.quit(key, holder)
		return nil, fmt.Errorf("acquire slot of %s: %w", key, err)
	}
	s := &Slot{l: l, key: key, holder: holder}
	l.hold(s)
	return s, nil
}

// quit removes a waiter from the queue, or releases a slot whose reply was lost.
func (l *KeyedLimiter) quit(key, holder string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	// On failure the entry expires.
	_, _ = l.free(ctx, key, holder)
}

func (l *KeyedLimiter) free(ctx context.Context, key, holder string) (int, error) {
	return scripts["release"].Run(ctx, l.rdb, slotKeys(key), holder).Int()
}

// Release releases the slot, even if ctx is done. Further calls do nothing. If Redis is unreachable, the slot
// expires; that is an error without FailOpen.
func (s *Slot) Release(ctx context.Context) error {
	if !s.l.drop(s) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_, err := s.l.free(ctx, s.key, s.holder)
	s.l.wake(s.key)
	if err != nil && s.l.cfg.FailOpen {
		s.l.warn.open(err)
	} else if err != nil {
		return fmt.Errorf("release slot of %s: %w", s.key, err)
	}
	return nil
}

// hold starts the renewal of a slot.
func (l *KeyedLimiter) hold(s *Slot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held[s] = struct{}{}
	if l.renewal != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	before, done := l.done, make(chan struct{})
	l.renewal, l.done = cancel, done
	go func() {
		defer close(done)
		if before != nil {
			<-before
		}
		l.renew(ctx)
	}()
}

// drop stops the renewal of a slot. It reports whether the slot was held.
func (l *KeyedLimiter) drop(s *Slot) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.held[s]; !ok {
		return false
	}
	delete(l.held, s)
	if len(l.held) == 0 {
		l.renewal()
		l.renewal = nil
	}
	return true
}

// renew renews the held slots until ctx is done.
func (l *KeyedLimiter) renew(ctx context.Context) {
	tick := time.NewTicker(l.cfg.TTL / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		l.mu.Lock()
		slots := slices.Collect(maps.Keys(l.held))
		l.mu.Unlock()
		for part := range slices.Chunk(slots, 500) {
			// A slot that expired while Redis was unreachable remains lost, because another caller may hold it.
			_, err := l.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
				for _, s := range part {
					scripts["renew"].Eval(ctx, p, slotKeys(s.key)[:1], s.holder, l.cfg.TTL.Milliseconds())
				}
				return nil
			})
			if err != nil && ctx.Err() == nil {
				l.warn.open(err)
			}
		}
	}
}

// Use returns the number of slots held by this process and of its waiters.
func (l *KeyedLimiter) Use() (held, waiting int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		waiting += len(line)
	}
	return len(l.held), waiting
}
