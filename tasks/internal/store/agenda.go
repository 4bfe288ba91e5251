package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// Records reads the states of what agenda entries stand for, as [ParseRecord] reads them; nil where
// there is none.
func (s *Store) Records(ctx context.Context, entries []Entry) ([][]byte, error) {
	return s.eachField(ctx, "read states", len(entries), func(i int) (Flow, string) {
		return entries[i].Flow, entries[i].Node
	})
}

// eachField reads one field of each of n workflows in one round trip; missing ones are nil.
func (s *Store) eachField(ctx context.Context, doing string, n int, at func(i int) (Flow, string)) ([][]byte, error) {
	if n == 0 {
		return nil, nil
	}
	pipe := s.rdb.Pipeline()
	cmds := make([]*redis.StringCmd, n)
	for i := range cmds {
		f, field := at(i)
		cmds[i] = pipe.HGet(ctx, f.key(), field)
	}
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	out := make([][]byte, n)
	for i, c := range cmds {
		raw, err := c.Bytes()
		if err != nil && !errors.Is(err, redis.Nil) {
			return nil, fmt.Errorf("%s: %w", doing, err)
		}
		out[i] = raw
	}
	return out, nil
}

// Backlog returns how many tasks are in a queue of asynq or taken from it.
func (s *Store) Backlog(ctx context.Context, queue string) (int64, error) {
	pipe := s.rdb.Pipeline()
	pending, active := pipe.LLen(ctx, asynqKey(queue, "pending")), pipe.LLen(ctx, asynqKey(queue, "active"))
	if _, err := pipe.Exec(ctx); err != nil {
		return 0, fmt.Errorf("read queue %s: %w", queue, err)
	}
	return pending.Val() + active.Val(), nil
}

// Overdue returns how many lines all agendas have, and for how long the earliest has been due.
func (s *Store) Overdue(ctx context.Context) (entries int64, overdue time.Duration, err error) {
	n, err := s.Shards(ctx)
	if err != nil {
		return 0, 0, err
	}
	pipe := s.rdb.Pipeline()
	now := pipe.Time(ctx)
	counts, firsts := make([]*redis.IntCmd, n), make([]*redis.ZSliceCmd, n)
	for shard := range n {
		counts[shard] = pipe.ZCard(ctx, agendaKey(shard))
		firsts[shard] = pipe.ZRangeWithScores(ctx, agendaKey(shard), 0, 0)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return 0, 0, fmt.Errorf("read agenda: %w", err)
	}
	for shard := range n {
		entries += counts[shard].Val()
		for _, z := range firsts[shard].Val() {
			overdue = max(overdue, now.Val().Sub(time.UnixMilli(int64(z.Score))))
		}
	}
	return entries, overdue, nil
}
