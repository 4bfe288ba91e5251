package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Schema is the version of the data in Redis.
const Schema = 3

// db is the connection that the parts of a store share.
type db struct {
	Keys
	rdb     redis.UniversalClient
	scripts Scripts

	mu     sync.Mutex // held while shards is read from Redis
	shards atomic.Int32
}

// clusterShards is how many shards a new cluster gets; a single Redis needs one.
const clusterShards = 12

// shardCount returns how many shards there are. It refuses a store of another schema.
func (d *db) shardCount(ctx context.Context) (int, error) {
	if n := d.shards.Load(); n > 0 {
		return int(n), nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	reply, err := d.rdb.Get(ctx, d.storeKey()).Result() // read first, so that it works when Redis takes no writes
	if errors.Is(err, redis.Nil) {
		if err = d.found(ctx); err == nil {
			reply, err = d.rdb.Get(ctx, d.storeKey()).Result()
		}
	}
	if err != nil {
		return 0, fmt.Errorf("read the schema of the store: %w", err)
	}
	schema, shards, _ := strings.Cut(reply, " ")
	v, n := toInt(schema), toInt(shards)
	switch {
	case v > Schema:
		return 0, fmt.Errorf("the store in Redis has schema %d, written by a newer release; this one knows %d: upgrade this program", v, Schema)
	case v != Schema || n < 1 || n > clusterShards:
		return 0, fmt.Errorf("key %s holds %q, which no release wrote: is it the right Redis?", d.storeKey(), reply)
	}
	d.shards.Store(int32(n))
	return int(n), nil
}

// found makes an empty Redis a store.
func (d *db) found(ctx context.Context) error {
	n := 1
	if _, ok := d.rdb.(*redis.ClusterClient); ok {
		n = clusterShards
	}
	return d.rdb.SetNX(ctx, d.storeKey(), fmt.Sprintf("%d %d", Schema, n), 0).Err()
}

// Clock returns the time of the Redis that has a shard.
func (d *db) Clock(ctx context.Context, shard int) (time.Time, error) {
	res, err := d.call(ctx, "clock", shard)
	if err != nil {
		return time.Time{}, fmt.Errorf("read the clock of Redis: %w", err)
	}
	return time.UnixMilli(toInt(res[0])), nil
}

// How long a call waits for the slot of its shard, which moves to another server of a Cluster.
const (
	moveTime  = 10 * time.Second
	movePause = 50 * time.Millisecond
)

// call runs a script on a shard and returns its reply as a list. While the slot of the shard moves, it waits.
func (d *db) call(ctx context.Context, name string, shard int, args ...any) ([]any, error) {
	for began := time.Now(); ; {
		reply, err := d.scripts[name].Run(ctx, d.rdb, d.scriptKeys(shard), args...).Result()
		if err == nil {
			return asList(reply), nil
		}
		if !redis.HasErrorPrefix(err, "TRYAGAIN") || time.Since(began) > moveTime {
			return nil, err
		}
		select {
		case <-time.After(movePause):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// asList returns the reply of a script as a list; one that is no list is its only element.
func asList(reply any) []any {
	if list, ok := reply.([]any); ok {
		return list
	}
	return []any{reply}
}

// shardTime bounds a call of callEach: servers of a Cluster can be slow.
const shardTime = 2 * time.Second

// callEach runs a script on every shard at once. A shard whose call failed has no reply; err has the errors of all these.
func (d *db) callEach(ctx context.Context, name string, args ...any) ([][]any, error) {
	n, err := d.shardCount(ctx)
	if err != nil {
		return nil, err
	}
	out, errs := make([][]any, n), make([]error, n)
	if n == 1 {
		out[0], err = d.call(ctx, name, 0, args...)
		return out, err
	}
	ctx, cancel := context.WithTimeout(ctx, shardTime)
	defer cancel()
	var calls sync.WaitGroup
	for shard := range n {
		calls.Go(func() { out[shard], errs[shard] = d.call(ctx, name, shard, args...) })
	}
	calls.Wait()
	return out, errors.Join(errs...)
}

func toInt(v any) int64 {
	switch v := v.(type) {
	case int64:
		return v
	case string:
		n, _ := strconv.ParseInt(v, 10, 64)
		return n
	}
	return 0
}

func text(v any) string {
	s, _ := v.(string)
	return s
}

// raw returns a string in a reply; nil for none.
func raw(v any) []byte {
	if s := text(v); s != "" {
		return []byte(s)
	}
	return nil
}
