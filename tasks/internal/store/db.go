package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
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

// database returns the number of the database; 0 on a Cluster, which has no other.
func (d *db) database() int {
	if one, ok := d.rdb.(*redis.Client); ok {
		return one.Options().DB
	}
	return 0
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

// shardTime bounds the calls of eachShard: servers of a Cluster can be slow.
const shardTime = 2 * time.Second

// eachShard calls f for every shard at once, and returns the errors of all.
func (d *db) eachShard(ctx context.Context, f func(ctx context.Context, shard int) error) error {
	n, err := d.shardCount(ctx)
	if err != nil {
		return err
	}
	if n == 1 {
		return f(ctx, 0)
	}
	ctx, cancel := context.WithTimeout(ctx, shardTime)
	defer cancel()
	var calls sync.WaitGroup
	errs := make([]error, n)
	for shard := range n {
		calls.Go(func() { errs[shard] = f(ctx, shard) })
	}
	calls.Wait()
	return errors.Join(errs...)
}

// callEach runs a script on every shard at once. A shard whose call failed has no reply; err has the errors of all these.
func (d *db) callEach(ctx context.Context, name string, args ...any) ([][]any, error) {
	out := make([][]any, clusterShards)
	err := d.eachShard(ctx, func(ctx context.Context, shard int) (err error) {
		out[shard], err = d.call(ctx, name, shard, args...)
		return err
	})
	return out[:d.shards.Load()], err
}

// onShards is onEach for every shard.
func onShards[C any](ctx context.Context, d *db, what string, add func(pipe redis.Pipeliner, shard int) C) ([]C, error) {
	n, err := d.shardCount(ctx)
	if err != nil {
		return nil, err
	}
	shards := make([]int, n)
	for shard := range shards {
		shards[shard] = shard
	}
	return onEach(ctx, d, what, shards, add)
}

// onEach adds commands for every element of a list to a pipeline, and returns them once they were made. what names them in errors.
func onEach[E, C any](ctx context.Context, d *db, what string, list []E, add func(pipe redis.Pipeliner, e E) C) ([]C, error) {
	if len(list) == 0 {
		return nil, nil
	}
	out, pipe := make([]C, len(list)), d.rdb.Pipeline()
	for i, e := range list {
		out[i] = add(pipe, e)
	}
	cmds, err := pipe.Exec(ctx)
	for _, cmd := range cmds {
		if err == nil || errors.Is(err, redis.Nil) {
			err = cmd.Err()
		}
	}
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return out, nil
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

// Refused reports whether err means that Redis replied but currently rejects writes: its disk or its memory is full,
// it has become a replica, or it has too few replicas.
func Refused(err error) bool {
	return Full(err) || refusedAs(err, "READONLY") || refusedAs(err, "NOREPLICAS")
}

// Full reports whether err is a refusal that ends when there is room again, on the disk of Redis or in its memory.
func Full(err error) bool { return refusedAs(err, "MISCONF") || refusedAs(err, "OOM") }

// refusedAs reports whether err is a refusal of a kind: of a command, or of one inside a script, which
// Redis before 7 reports as "ERR Error running script (…): -OOM …".
func refusedAs(err error, kind string) bool {
	var reply redis.Error
	return errors.As(err, &reply) && (strings.HasPrefix(reply.Error(), kind+" ") || strings.Contains(reply.Error(), ": -"+kind+" "))
}

// Unavailable reports whether err means that Redis was unreachable, timed out or returned an error.
func Unavailable(err error) bool {
	for _, is := range []error{io.EOF, io.ErrUnexpectedEOF, redis.ErrClosed, redis.ErrPoolTimeout, redis.ErrPoolExhausted} {
		if errors.Is(err, is) {
			return true
		}
	}
	var reply redis.Error
	if errors.As(err, &reply) {
		return reply != redis.Nil
	}
	return errors.As(err, new(net.Error))
}

// Writable makes a write that changes nothing, with a command that a full memory forbids. Its error is the reason why Redis
// rejects writes.
func (s *Store) Writable(ctx context.Context) error {
	return s.Explain(ctx, s.rdb.ZAddXX(ctx, s.workersKey(), redis.Z{Member: ""}).Err())
}

// Explain adds the cause and the remedy to the error of a rejected write. It returns other errors unchanged.
func (s *Store) Explain(ctx context.Context, err error) error {
	switch {
	case !Refused(err):
		return err
	case refusedAs(err, "MISCONF"):
		where := "its disk"
		if one, ok := s.rdb.(*redis.Client); ok { // any node of a cluster may reply
			if got, cerr := one.ConfigGet(ctx, "dir").Result(); cerr == nil && got["dir"] != "" {
				where = "the disk of its folder " + got["dir"]
			}
		}
		return fmt.Errorf("redis cannot write to %s; make room there, and it continues by itself: %w", where, err)
	case refusedAs(err, "OOM"):
		return fmt.Errorf("redis rejects writes because it has reached its maxmemory; raise it or delete data: %w", err)
	}
	return fmt.Errorf("redis takes no writes: %w", err)
}

// ErrEvicts means that Redis may evict keys.
var ErrEvicts = errors.New("redis evicts keys when its memory is full, and a workflow that loses one may never end: set maxmemory-policy noeviction, with CONFIG SET and in the configuration of the server")

// MemoryPolicy is the behaviour of a Redis, or of the worst master of a cluster, when its memory is full.
type MemoryPolicy struct {
	Name    string // "" if Redis does not report it
	Limited bool   // its memory has a limit: without one nothing is evicted
}

// Evicts reports whether keys may be evicted. All policies except noeviction can evict our keys: the volatile
// policies evict keys with an expiry, such as finished workflows, locks and live workers.
func (p MemoryPolicy) Evicts() bool { return p.Limited && p.WouldEvict() }

// WouldEvict reports whether keys may be lost once there is a limit.
func (p MemoryPolicy) WouldEvict() bool { return p.Name != "" && p.Name != noEviction }

// MemoryPolicy reads the policy of Redis, on a cluster of each master.
func (s *Store) MemoryPolicy(ctx context.Context) (MemoryPolicy, error) {
	cluster, ok := s.rdb.(*redis.ClusterClient)
	if !ok {
		return memoryPolicy(ctx, s.rdb)
	}
	var mu sync.Mutex // guards the fields below: masters are asked at once
	var all []MemoryPolicy
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error {
		p, err := memoryPolicy(ctx, c)
		mu.Lock()
		defer mu.Unlock()
		all = append(all, p)
		return err
	})
	for _, worse := range []func(MemoryPolicy) bool{MemoryPolicy.Evicts, MemoryPolicy.WouldEvict, func(p MemoryPolicy) bool { return p.Name == "" }} {
		if i := slices.IndexFunc(all, worse); i >= 0 {
			return all[i], err
		}
	}
	return MemoryPolicy{Name: noEviction}, err
}

const noEviction = "noeviction"

// memoryPolicy asks one Redis. A managed one can forbid both questions.
func memoryPolicy(ctx context.Context, rdb redis.Cmdable) (MemoryPolicy, error) {
	settings := map[string]string{}
	text, err := rdb.Info(ctx, "memory").Result()
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			settings[strings.ReplaceAll(name, "_", "-")] = value
		}
	}
	switch {
	case err != nil && !errors.As(err, new(redis.Error)):
		return MemoryPolicy{}, fmt.Errorf("read the maxmemory-policy of Redis: %w", err)
	case err != nil && strings.Contains(err.Error(), "not supported"): // miniredis, which evicts nothing
		return MemoryPolicy{Name: noEviction}, nil
	case settings["maxmemory-policy"] == "":
		if settings, err = rdb.ConfigGet(ctx, "maxmemory*").Result(); err != nil {
			settings = nil
		}
	}
	limit, _ := strconv.ParseInt(settings["maxmemory"], 10, 64)
	return MemoryPolicy{Name: settings["maxmemory-policy"], Limited: limit > 0}, nil
}
