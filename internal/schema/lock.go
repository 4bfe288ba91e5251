package schema

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// ErrLost means that another process has taken over the lock of the store after the lease expired. The migration may be
// incomplete; another run completes it.
var ErrLost = errors.New("another process has taken over the migration, because the lease expired; run it again")

// Lock is the acquired lock of the store. It is safe for concurrent use.
type Lock struct {
	s     *Store
	token int64
}

// Token returns the token of this lock. Scripts that change data under the lock compare it with [FenceKey] of their slot, after Claim.
func (l *Lock) Token() int64 { return l.token }

// Claim excludes previous lock holders from hash slots. It returns ErrLost if a later holder has claimed one.
func (l *Lock) Claim(ctx context.Context, slots ...string) error {
	for _, slot := range slots {
		n, err := scripts["claim"].Run(ctx, l.s.rdb, []string{FenceKey(slot)}, l.token).Int()
		if err != nil {
			return fmt.Errorf("claim the slot %s: %w", slot, err)
		}
		if n == 0 {
			return ErrLost
		}
	}
	return nil
}

// acquire waits for the lock. It returns nil if enough reports in the meantime that the lock is no longer needed.
func (s *Store) acquire(ctx context.Context, enough func() (bool, error)) (*Lock, error) {
	host, err := os.Hostname()
	if err != nil {
		host = "host"
	}
	logged := false
	for {
		v, err := scripts["acquire"].Run(ctx, s.rdb, []string{schemaKey}, fmt.Sprintf("%s.%d", host, os.Getpid()), s.Lease.Milliseconds()).Slice()
		if err != nil {
			return nil, fmt.Errorf("lock the store: %w", err)
		}
		if token, _ := v[0].(int64); token > 0 {
			return &Lock{s, token}, nil
		}
		if !logged {
			logged = true
			s.log.WarnContext(ctx, "waiting for another process to migrate the store", "process", v[1])
		}
		left, _ := v[2].(int64)
		t := time.NewTimer(min(max(time.Duration(left)*time.Millisecond, time.Millisecond), 200*time.Millisecond))
		select {
		case <-ctx.Done():
			t.Stop()
			return nil, fmt.Errorf("wait for process %v, which migrates the store: %w", v[1], context.Cause(ctx))
		case <-t.C:
		}
		if ok, err := enough(); ok || err != nil {
			return nil, err
		}
	}
}

// run calls fn while renewing the lock, and releases it afterwards.
func (l *Lock) run(ctx context.Context, fn func(context.Context, *Lock) error) error {
	held, lose := context.WithCancelCause(ctx)
	var renewing sync.WaitGroup
	renewing.Go(func() { l.renew(held, lose) })
	err := fn(held, l)
	lost := errors.Is(context.Cause(held), ErrLost)
	lose(nil)
	renewing.Wait()
	if lost && !errors.Is(err, ErrLost) {
		err = errors.Join(ErrLost, err)
	}
	ending, stop := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer stop()
	if endErr := l.extend(ending, 0); endErr != nil && !errors.Is(endErr, ErrLost) {
		l.s.log.WarnContext(ctx, "cannot release the lock of the store; it expires", "in", l.s.Lease, "err", endErr)
	}
	return err
}

// renew extends the lock until ctx is done or the lock is lost. It calls lose with ErrLost if Redis does not respond before expiry.
func (l *Lock) renew(ctx context.Context, lose context.CancelCauseFunc) {
	tick := time.NewTicker(l.s.Lease / 3)
	defer tick.Stop()
	for last := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		start := time.Now()
		switch err := l.extend(ctx, l.s.Lease); {
		case err == nil:
			last = start
		case errors.Is(err, ErrLost) || time.Since(last) > l.s.Lease:
			lose(ErrLost)
			return
		}
	}
}

// extend extends the lock to d from now, or releases it if d is 0. It returns ErrLost if the lock has expired.
func (l *Lock) extend(ctx context.Context, d time.Duration) error {
	n, err := scripts["renew"].Run(ctx, l.s.rdb, []string{schemaKey}, l.token, d.Milliseconds()).Int()
	if err != nil {
		return fmt.Errorf("renew the lock of the store: %w", err)
	}
	if n == 0 {
		return ErrLost
	}
	return nil
}
