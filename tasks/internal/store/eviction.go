package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

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
