package store

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/tasks/tasktype"
)

// Limit is a limit for one of its keys: a concurrency, or a rate if Per is not 0. The key is empty for a limit without keys.
type Limit struct {
	Name, Key string
	N         int
	Per       time.Duration
}

// mostKey is the longest key that is stored as it is.
const mostKey = 100

// limitName returns the name of the state of a limit for a key.
func limitName(limit, key string) string {
	if len(key) > mostKey {
		sum := sha256.Sum256([]byte(key))
		key = base64.RawURLEncoding.EncodeToString(sum[:])
	}
	return limit + "\t" + key
}

func (l *Limit) rule() string {
	return strconv.Itoa(l.N) + " " + strconv.FormatInt(l.Per.Milliseconds(), 10)
}

// LimitRef is the workflow of the entries of the agenda for limits. The node of such an entry is the name of a limit.
const LimitRef = "!limit"

// Place is a place of a limit that a node occupies.
type Place struct {
	shard       int
	name, rule  string
	node, owner string
}

// Rate reports whether the place is of a rate, which needs no renewal.
func (p *Place) Rate() bool { return !strings.HasSuffix(p.rule, " 0") }

func (p *Place) member() string { return p.node + " " + p.owner }

// NewPlace returns the place of a limit for a node. owner distinguishes attempts.
func (s Limits) NewPlace(ctx context.Context, l *Limit, f Flow, node, owner string) (Place, error) {
	n, err := s.shardCount(ctx)
	if err != nil {
		return Place{}, err
	}
	name := limitName(l.Name, l.Key)
	return Place{shardOf(name, n), name, l.rule(), strconv.Itoa(f.shard) + " " + f.Ref + "/" + node, owner}, nil
}

// Passed is a reply of the scripts of limits.
type Passed struct {
	Has   bool          // of Acquire: the node has a place
	Timer time.Duration // until the agenda has the limit next, or -1
	steps []string
}

func passed(res []any) Passed {
	out := Passed{Timer: time.Duration(toInt(res[0])) * time.Millisecond}
	for _, v := range res[1:] {
		out.steps = append(out.steps, text(v))
	}
	return out
}

// Acquire takes a place of a limit, or lets the node wait for one. The caller delays a node that waits, with [AgainLimited], and calls
// [Limits.Recheck] once the node is delayed. An error can come with a place.
func (s Limits) Acquire(ctx context.Context, p *Place) (Passed, error) {
	res, err := s.call(ctx, "acquire", p.shard, p.name, p.rule, p.node, p.owner)
	if err != nil {
		return Passed{}, fmt.Errorf("acquire a place of a limit: %w", err)
	}
	out, err := s.proceed(ctx, p.shard, p.name, 0, passed(res[1:]))
	out.Has = toInt(res[0]) == 1
	return out, err
}

// Release returns a place: one of a rate only if the node did not start.
func (s Limits) Release(ctx context.Context, p *Place) (Passed, error) {
	res, err := s.call(ctx, "pass", p.shard, p.name, p.rule, p.member(), 0)
	if err != nil {
		return Passed{}, fmt.Errorf("release a place of a limit: %w", err)
	}
	return s.proceed(ctx, p.shard, p.name, 0, passed(res))
}

// Expire handles the expired and the free places of a limit with an entry in the agenda.
func (s Limits) Expire(ctx context.Context, shard int, name string) (Passed, error) {
	res, err := s.call(ctx, "pass", shard, name, "", "", 1)
	if err != nil {
		return Passed{}, fmt.Errorf("look after a limit: %w", err)
	}
	return s.proceed(ctx, shard, name, 1, passed(res))
}

// mostSteps bounds the steps of one call. The agenda has an entry for the rest.
const mostSteps = 100

// proceed takes the steps of a reply until there are none: it makes the nodes ready for which places were reserved.
func (s Limits) proceed(ctx context.Context, shard int, name string, expire int, r Passed) (Passed, error) {
	for range mostSteps {
		if len(r.steps) == 0 {
			break
		}
		args := []any{name, "", "", expire}
		var nodes []string
		for i := 0; i+2 < len(r.steps); i += 3 {
			node := r.steps[i]
			if r.steps[i+2] == "place" {
				node = node[:strings.LastIndexByte(node, ' ')]
			}
			nodes = append(nodes, node)
		}
		states, err := s.hasten(ctx, nodes)
		if err != nil {
			return r, err
		}
		for i := range nodes {
			switch since := r.steps[3*i+2]; {
			case since == "place", since == "reserved", states[i] == nodeElsewhere:
				args = append(args, r.steps[3*i], r.steps[3*i+1], since)
			case states[i] == nodeEnded:
				args = append(args, r.steps[3*i], r.steps[3*i+1], "ended")
			}
		}
		if len(args) == 4 {
			break
		}
		res, err := s.call(ctx, "pass", shard, args...)
		if err != nil {
			return r, fmt.Errorf("pass a place of a limit on: %w", err)
		}
		r = passed(res)
	}
	return r, nil
}

// The results of hasten for a node. The third is 1: it is ready.
const (
	nodeElsewhere = 0
	nodeEnded     = 2
)

// hasten makes nodes ready, each "<shard> <workflow>/<node>", that wait for a limit.
func (s Limits) hasten(ctx context.Context, nodes []string) (states []int64, err error) {
	states = make([]int64, len(nodes))
	args, at := map[int][]any{}, map[int][]int{}
	for i, node := range nodes {
		shard, rest, _ := strings.Cut(node, " ")
		ref, id, _ := strings.Cut(rest, "/")
		k := int(toInt(shard))
		if args[k] == nil {
			args[k] = []any{AgainLimited, ""}
		}
		args[k], at[k] = append(args[k], ref, id), append(at[k], i)
	}
	for k := range at {
		res, err := s.call(ctx, "hasten", k, args[k]...)
		if err != nil {
			return nil, fmt.Errorf("make nodes ready that waited for a limit: %w", err)
		}
		for i, v := range res {
			states[at[k][i]] = toInt(v)
		}
	}
	return states, nil
}

// Recheck makes a node ready that was delayed after a place was reserved for it.
func (s Limits) Recheck(ctx context.Context, p *Place) error {
	err := s.rdb.ZScore(ctx, s.limitKey(p.shard, "waiting:"+p.name), p.node).Err()
	switch {
	case err == nil:
		return nil
	case !errors.Is(err, redis.Nil):
		return fmt.Errorf("look for a place of a limit: %w", err)
	}
	_, err = s.hasten(ctx, []string{p.node})
	return err
}

// Renew keeps places for a time. A shard whose server is slow does not delay the others.
func (s Limits) Renew(ctx context.Context, places []Place) error {
	slices.SortFunc(places, func(a, b Place) int { return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.member(), b.member())) })
	for part := range slices.Chunk(places, 1000) {
		args := map[int][]any{}
		for i := range part {
			p := &part[i]
			if args[p.shard] == nil {
				args[p.shard] = []any{PlaceLease.Milliseconds()}
			}
			args[p.shard] = append(args[p.shard], p.name, p.member())
		}
		errs := make([]error, len(args))
		var calls sync.WaitGroup
		for i, shard := range slices.Sorted(maps.Keys(args)) {
			calls.Go(func() { _, errs[i] = s.call(ctx, "renew", shard, args[shard]...) })
		}
		calls.Wait()
		if err := errors.Join(errs...); err != nil {
			return fmt.Errorf("renew places of limits: %w", err)
		}
	}
	return nil
}

// PlaceLease is how long a node has a place unless its worker renews it.
const PlaceLease = 10 * time.Second

// What [Limits.Change] can change.
const (
	LimitN    = "n" // the number; the value is decimal
	LimitHold = "h" // until when nothing starts; the value is in unix ms
)

// limitChanges is how many limits and keys of a shard can be changed.
const limitChanges = 100_000

// ErrLimitChanges means that a limit was changed for too many keys.
var ErrLimitChanges = fmt.Errorf("limits are changed for %d keys: change them for all keys, or reset some", limitChanges)

// Change changes a limit for a key, or for all keys if key is nil. Without a value it ends the change. The caller handles the agenda of
// the shards that are returned.
func (s Limits) Change(ctx context.Context, limit string, key *string, what, value string) (shards []int, err error) {
	n, err := s.shardCount(ctx)
	if err != nil {
		return nil, err
	}
	name := limit
	if key != nil {
		name = limitName(limit, *key)
		shards = []int{shardOf(name, n)}
	} else {
		for shard := range n {
			shards = append(shards, shard)
		}
	}
	for _, shard := range shards {
		res, err := s.scripts["limit"].Run(ctx, s.rdb, []string{s.Prefix(shard)}, what, name, value, limitChanges).Int()
		if err != nil {
			return nil, err
		}
		if res == 0 {
			return nil, ErrLimitChanges
		}
	}
	return shards, nil
}

// List returns the states of a limit, or of all limits if it is empty: at most so many, sorted.
func (s Limits) List(ctx context.Context, limit string, most int) ([]tasktype.Limit, error) {
	type read struct{ rules, set *redis.MapStringStringCmd }
	shards, err := onShards(ctx, s.db, "read limits", func(pipe redis.Pipeliner, shard int) read {
		return read{pipe.HGetAll(ctx, s.limitKey(shard, "rules")), pipe.HGetAll(ctx, s.limitKey(shard, "set"))}
	})
	if err != nil {
		return nil, err
	}
	all := map[[2]string]*tasktype.Limit{}
	for shard, r := range shards {
		at := func(name string) *tasktype.Limit {
			of, key, ok := strings.Cut(name, "\t")
			if !ok {
				key = tasktype.AllKeys
			}
			if limit != "" && of != limit {
				return nil
			}
			id := [2]string{of, key}
			if all[id] == nil && len(all) < most {
				all[id] = &tasktype.Limit{Limit: of, Key: key, N: -1}
			}
			return all[id]
		}
		pipe, counts := s.rdb.Pipeline(), map[*tasktype.Limit][2]*redis.IntCmd{}
		for name, rule := range r.rules.Val() {
			l := at(name)
			if l == nil {
				continue
			}
			n, per, _ := strings.Cut(rule, " ")
			l.N, l.Per = int(toInt(n)), time.Duration(toInt(per))*time.Millisecond
			counts[l] = [2]*redis.IntCmd{pipe.ZCard(ctx, s.limitKey(shard, "places:"+name)), pipe.ZCard(ctx, s.limitKey(shard, "waiting:"+name))}
		}
		if _, err := pipe.Exec(ctx); err != nil && len(counts) > 0 {
			return nil, fmt.Errorf("read limits: %w", err)
		}
		for l, n := range counts {
			l.Running, l.Waiting = n[0].Val(), n[1].Val()
		}
		for field, value := range r.set.Val() {
			what, name, _ := strings.Cut(field, " ")
			switch l := at(name); {
			case l == nil:
			case what == LimitN:
				l.N, l.Changed = int(toInt(value)), true
			case what == LimitHold && time.UnixMilli(toInt(value)).After(time.Now()):
				l.Held = time.UnixMilli(toInt(value)).UTC()
			}
		}
	}
	out := make([]tasktype.Limit, 0, len(all))
	for _, l := range all {
		if every := all[[2]string{l.Limit, tasktype.AllKeys}]; every != nil && l != every {
			if every.Changed && !l.Changed {
				l.N, l.Changed = every.N, true
			}
			if every.Held.After(l.Held) {
				l.Held = every.Held
			}
		}
		out = append(out, *l)
	}
	slices.SortFunc(out, func(a, b tasktype.Limit) int { return cmp.Or(cmp.Compare(a.Limit, b.Limit), cmp.Compare(a.Key, b.Key)) })
	return out, nil
}
