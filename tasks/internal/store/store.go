// Package store keeps workflows, their results and progress in Redis.
//
// A workflow is one hash. The ready lists, the agenda and the leases of its shard are beside it, in the same slot of a
// cluster. Each change is one script, and making it twice changes nothing more. The record of a node, which
// [ParseRecord] reads, is one of these:
//
//	(none)                                    waits, or is ready, without an input of its own
//	i<input>                                  likewise, with a literal input
//	D|attempts|deaths|due|expires|lane|input  waits for its time
//	T|attempts|deaths|due|expires|lane|input  likewise, after a failure
//	Q|attempts|deaths|0|expires|lane|input    ready to run, or to run again
//	P|attempts|deaths|started|worker          its plan runs
//	E                                         a map that has its members
//	e                                         a map whose members have all succeeded
//	k|cause                                   skipped; the nodes that need it do not know yet
//	K|cause                                   skipped
//	S F X|attempts|started|ended|worker|body  success, failure, revoked; times in ms since the workflow was sent
//
// There is no record for a node that runs: it is in a batch.
package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// ErrUnknown says that no workflow has this id.
var ErrUnknown = errors.New("no such workflow: it was never sent, or its retention is over")

// Schema is the version of the data in Redis. That of the first edition is 1.
const Schema = 2

// clusterShards is how many shards a new cluster gets; a single Redis needs one.
const clusterShards = 8

// Store reads and changes workflows. It may be used by many goroutines at once.
type Store struct {
	rdb     redis.UniversalClient
	scripts scripts

	mu     sync.Mutex // held while shards is read from Redis
	shards atomic.Int32
}

// New returns a Store on rdb.
func New(rdb redis.UniversalClient) *Store { return &Store{rdb: rdb, scripts: compiled} }

// Redis returns the connection of the store.
func (s *Store) Redis() redis.UniversalClient { return s.rdb }

// Shards returns how many shards there are. It refuses a store of another schema.
func (s *Store) Shards(ctx context.Context) (int, error) {
	if n := s.shards.Load(); n > 0 {
		return int(n), nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	said, err := s.rdb.Get(ctx, storeKey).Result() // read first, so that it works when Redis takes no writes
	if errors.Is(err, redis.Nil) {
		said, err = s.found(ctx)
	}
	if err != nil {
		return 0, fmt.Errorf("read the schema of the store: %w", err)
	}
	schema, shards, _ := strings.Cut(said, " ")
	v, n := toInt(schema), toInt(shards)
	switch {
	case v > Schema:
		return 0, fmt.Errorf("the store in Redis has schema %d, written by a newer release; this one knows %d: upgrade this program", v, Schema)
	case v != Schema || n < 1:
		return 0, fmt.Errorf("key %s holds %q, which no release wrote: is it the right Redis?", storeKey, said)
	}
	s.shards.Store(int32(n))
	return int(n), nil
}

// found makes an empty Redis a store, and returns what its storeKey holds.
func (s *Store) found(ctx context.Context) (string, error) {
	if err := s.refuseFirst(ctx); err != nil {
		return "", err
	}
	n := 1
	if _, ok := s.rdb.(*redis.ClusterClient); ok {
		n = clusterShards
	}
	return s.scripts["found"].Run(ctx, s.rdb, []string{storeKey}, fmt.Sprintf("%d %d", Schema, n)).Text()
}

// refuseFirst returns an error if workflows of the first edition have not ended.
func (s *Store) refuseFirst(ctx context.Context) error {
	said, err := s.rdb.Get(ctx, firstShardsKey).Result()
	if errors.Is(err, redis.Nil) {
		return nil
	}
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(said)
	if err != nil {
		return fmt.Errorf("key %s of the first edition holds %q: is it the right Redis?", firstShardsKey, said)
	}
	for shard := range min(n, 1024) {
		for _, k := range firstKeys(shard) {
			live, err := s.rdb.Exists(ctx, k).Result()
			if err != nil {
				return err
			}
			if live > 0 {
				return errors.New("it holds workflows of the first edition that have not ended: drain them with the old release first, or use another Redis database")
			}
		}
	}
	return nil
}

// Flow is the address of a workflow, with what scripts need to know of it.
type Flow struct {
	ID        string
	Created   int64 // unix ms
	Root      string
	Retention int64  // ms
	Name      string // what the index calls it
	shard     int
}

// Flow returns the address of a workflow.
func (s *Store) Flow(ctx context.Context, id string) (Flow, error) {
	n, err := s.Shards(ctx)
	if err != nil {
		return Flow{}, err
	}
	return Flow{ID: id, shard: shardOf(id, n)}, nil
}

func (f Flow) key() string { return flowKey(f.shard, f.ID) }

// Shard returns the shard of the workflow.
func (f Flow) Shard() int { return f.shard }

// facts appends the arguments that describe a workflow to scripts.
func (f Flow) facts(args []any) []any {
	return append(args, f.ID, f.Created, f.Root, f.Retention, f.Name)
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

// GraphField returns the field that the graph of a scope is in.
func GraphField(scope string) string { return "g" + scope }

// ErrorField returns the field that the last error of a node is in which is to run again.
func ErrorField(node string) string { return "e" + node }

// Revoke marks a workflow as revoked. ended is true if there was nothing left to stop.
func (s *Store) Revoke(ctx context.Context, f Flow) (ended bool, err error) {
	res, err := s.call(ctx, "revoke", f.shard, f.ID)
	if err != nil {
		return false, fmt.Errorf("mark as revoked: %w", err)
	}
	if toInt(res[0]) < 0 {
		return false, ErrUnknown
	}
	return toInt(res[0]) == 0, nil
}

// Withdraw removes the ready nodes of a revoked workflow from their lists, and returns the wake-tasks that are not
// needed any more. first is the span of its first nodes, or empty. If some of these were taken, the next take drops the
// rest.
func (s *Store) Withdraw(ctx context.Context, f Flow, first string, lanes []string) ([]Wake, error) {
	key, err := s.rdb.HGet(ctx, f.key(), "f").Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, fmt.Errorf("withdraw workflow %s: %w", f.ID, err)
	}
	args := []any{f.ID, key, first}
	for _, l := range lanes {
		args = append(args, l)
	}
	res, err := s.call(ctx, "withdraw", f.shard, args...)
	if err != nil {
		return nil, fmt.Errorf("withdraw workflow %s: %w", f.ID, err)
	}
	return wakes(f.shard, res), nil
}

// Drop deletes a workflow that has ended.
func (s *Store) Drop(ctx context.Context, f Flow) error {
	if err := s.rdb.Del(ctx, f.key()).Err(); err != nil {
		return fmt.Errorf("delete workflow: %w", err)
	}
	return nil
}

// AbortField is the field with the reason why a workflow was given up as a whole.
const AbortField = "!"

// abortRetention is how long a workflow that was given up can be read, in ms. The retention it was sent with is
// unknown.
const abortRetention = 24 * 3600 * 1000

// Abort gives up a workflow that nobody can read.
func (s *Store) Abort(ctx context.Context, f Flow, failure []byte) error {
	if _, err := s.call(ctx, "abort", f.shard, f.ID, failure, abortRetention); err != nil {
		return fmt.Errorf("give up workflow %s: %w", f.ID, err)
	}
	return nil
}

// DropPlaces deletes the sets of members that hold places of groups, and the lists of those that wait for one.
func (s *Store) DropPlaces(ctx context.Context, f Flow, groups []string) error {
	if len(groups) == 0 {
		return nil
	}
	var keys []string
	for _, g := range groups {
		keys = append(keys, f.key()+":h"+g, f.key()+":w"+g)
	}
	return s.rdb.Del(ctx, keys...).Err()
}

// Fields reads fields of a workflow; missing ones are nil.
func (s *Store) Fields(ctx context.Context, f Flow, fields []string) ([][]byte, error) {
	out := make([][]byte, 0, len(fields))
	for part := range slices.Chunk(fields, 1000) {
		vs, err := s.rdb.HMGet(ctx, f.key(), part...).Result()
		if err != nil {
			return nil, fmt.Errorf("read workflow %s: %w", f.ID, err)
		}
		for _, v := range vs {
			if str, ok := v.(string); ok {
				out = append(out, []byte(str))
			} else {
				out = append(out, nil)
			}
		}
	}
	return out, nil
}

// All reads a whole workflow.
func (s *Store) All(ctx context.Context, f Flow) (map[string]string, error) {
	all, err := s.rdb.HGetAll(ctx, f.key()).Result()
	if err != nil {
		return nil, fmt.Errorf("read workflow %s: %w", f.ID, err)
	}
	if len(all) == 0 {
		return nil, ErrUnknown
	}
	return all, nil
}

// List adds a queue to those that operators see.
func (s *Store) List(ctx context.Context, queue string) error {
	if err := s.rdb.SAdd(ctx, queuesKey, queue).Err(); err != nil {
		return fmt.Errorf("list queue %s: %w", queue, err)
	}
	return nil
}

// Tell publishes to all processes.
func (s *Store) Tell(ctx context.Context, message string) error {
	return s.rdb.Publish(ctx, BusChannel, message).Err()
}

// Paused reports whether a queue is paused.
func (s *Store) Paused(ctx context.Context, queue string) (bool, error) {
	n, err := s.rdb.Exists(ctx, pausedKey(queue)).Result()
	if err != nil {
		return false, fmt.Errorf("read queue %s: %w", queue, err)
	}
	return n == 1, nil
}

// errQueueName says that a queue has no name.
var errQueueName = errors.New("a queue needs a name")

// Pause stops workers from taking from a queue, as asynq does. Unlike with asynq, to pause a paused queue is no error.
func (s *Store) Pause(ctx context.Context, queue string) error {
	if strings.TrimSpace(queue) == "" {
		return errQueueName
	}
	if err := s.rdb.SetNX(ctx, pausedKey(queue), time.Now().Unix(), 0).Err(); err != nil {
		return fmt.Errorf("pause queue %s: %w", queue, err)
	}
	return nil
}

// Resume undoes Pause.
func (s *Store) Resume(ctx context.Context, queue string) error {
	if strings.TrimSpace(queue) == "" {
		return errQueueName
	}
	if err := s.rdb.Del(ctx, pausedKey(queue)).Err(); err != nil {
		return fmt.Errorf("resume queue %s: %w", queue, err)
	}
	return nil
}
