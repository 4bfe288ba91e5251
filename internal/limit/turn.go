package limit

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// Turn is the right of one process at a time to do something, in a key of Redis.
type Turn struct {
	rdb     redis.UniversalClient
	key, me string
}

// NewTurn returns a turn. It does no I/O.
func NewTurn(rdb redis.UniversalClient, key string) *Turn { return &Turn{rdb, key, rand.Text()} }

// Take takes or extends the turn, and reports whether this process has it. Should it crash, another one gets the turn after hold.
func (t *Turn) Take(ctx context.Context, hold time.Duration) (bool, error) {
	mine, err := t.rdb.SetNX(ctx, t.key, t.me, hold).Result()
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
	return true, t.rdb.PExpire(ctx, t.key, hold).Err()
}

// Free ends the turn, if this process has it, so that the next one does not have to wait.
func (t *Turn) Free(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if owner, err := t.rdb.Get(ctx, t.key).Result(); err == nil && owner == t.me {
		_ = t.rdb.Del(ctx, t.key).Err() // it expires
	}
}
