package event

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// Turn is the right of one process at a time to read events for a purpose, in a key of Redis.
type Turn struct {
	rdb     redis.UniversalClient
	key, me string
	hold    time.Duration
}

// NewTurn returns a turn that another process gets hold after the last call of Take of a process that has crashed.
func NewTurn(rdb redis.UniversalClient, key string, hold time.Duration) *Turn {
	return &Turn{rdb, key, rand.Text(), hold}
}

// Take takes or extends the turn, and reports whether this process has it.
func (t *Turn) Take(ctx context.Context) (bool, error) {
	mine, err := t.rdb.SetNX(ctx, t.key, t.me, t.hold).Result()
	if err != nil || mine {
		return mine, err
	}
	owner, err := t.rdb.Get(ctx, t.key).Result()
	if errors.Is(err, redis.Nil) { // it has just expired
		return false, nil
	}
	if err != nil || owner != t.me {
		return false, err
	}
	return true, t.rdb.Expire(ctx, t.key, t.hold).Err()
}

// Free ends the turn, if this process has it, so that the next one does not have to wait.
func (t *Turn) Free(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if owner, err := t.rdb.Get(ctx, t.key).Result(); err == nil && owner == t.me {
		_ = t.rdb.Del(ctx, t.key).Err() // it expires
	}
}
