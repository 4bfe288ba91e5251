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
)

// Limit is the limit of a task and a key: a concurrency, or a rate if Per is not 0.
type Limit struct {
	Task, Key string
	N         int
	Per       time.Duration
}

// mostKey is the longest key that is stored as it is.
const mostKey = 100

// name returns the name of the limit, which begins with "r" for a rate and "c" for a concurrency.
func (l *Limit) name() string {
	key, kind := l.Key, "c"
	if l.Per > 0 {
		kind = "r"
	}
	if len(key) > mostKey {
		sum := sha256.Sum256([]byte(key))
		key = base64.RawURLEncoding.EncodeToString(sum[:])
	}
	return kind + l.Task + "\t" + key
}

func (l *Limit) rule() string {
	return strconv.Itoa(l.N) + " " + strconv.FormatInt(l.Per.Microseconds(), 10)
}

// LimitRef is the workflow of the entries of the agenda for limits. The node of such an entry is the name of a limit.
const LimitRef = "!limit"

// Place is a place of a limit that a node occupies.
type Place struct {
	shard       int
	name, rule  string
	node, owner string
}

func (p *Place) member() string { return p.node + " " + p.owner }

// NewPlace returns the place of a limit for a node. owner distinguishes attempts.
func (s Limits) NewPlace(ctx context.Context, l *Limit, f Flow, node, owner string) (Place, error) {
	n, err := s.shardCount(ctx)
	if err != nil {
		return Place{}, err
	}
	name := l.name()
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

// Acquire takes a place of a limit, or lets the node wait for one. The caller delays a node that waits, with [AgainLimited], continues with
// [Limits.Continue], and calls [Limits.Recheck] once the node is delayed.
func (s Limits) Acquire(ctx context.Context, p *Place) (Passed, error) {
	res, err := s.call(ctx, "acquire", p.shard, p.name, p.rule, p.node, p.owner)
	if err != nil {
		return Passed{}, fmt.Errorf("acquire a place of a limit: %w", err)
	}
	out := passed(res[1:])
	out.Has = toInt(res[0]) == 1
	return out, nil
}

// Release returns a place. The caller continues with [Limits.Continue].
func (s Limits) Release(ctx context.Context, p *Place) (Passed, error) {
	res, err := s.call(ctx, "pass", p.shard, p.name, p.rule, p.member(), 0)
	if err != nil {
		return Passed{}, fmt.Errorf("release a place of a limit: %w", err)
	}
	return passed(res), nil
}

// Expire handles the expired places and the free tokens of a limit with an entry in the agenda.
func (s Limits) Expire(ctx context.Context, shard int, name string) (Passed, error) {
	res, err := s.call(ctx, "pass", shard, name, "", "", 1)
	if err != nil {
		return Passed{}, fmt.Errorf("look after a limit: %w", err)
	}
	return s.proceed(ctx, shard, name, 1, passed(res))
}

// Continue makes the nodes ready for which places were reserved.
func (s Limits) Continue(ctx context.Context, p *Place, r Passed) (Passed, error) {
	return s.proceed(ctx, p.shard, p.name, 0, r)
}

// mostSteps bounds the steps of one call. The agenda has an entry for the rest.
const mostSteps = 100

// proceed takes the steps of a reply until there are none.
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
	err := s.rdb.ZScore(ctx, s.limitKey(p.shard, "waiting", p.name), p.node).Err()
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
