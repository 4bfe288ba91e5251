package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// ClaimTime is how long a unique key belongs to a workflow that is not stored. After it, the workflow must not be stored without
// another claim.
const ClaimTime = 10 * time.Second

// Claim gives a unique key to the workflow with a reference, which is about to be stored. It is for clusters,
// where key and workflow can lie in different slots, and needs no call where [Flows.Submit] does it
// by itself: then elsewhere is false. Otherwise the workflow must be stored within [ClaimTime] from before the call. A key of other live workflows is a
// [DuplicateError], unless all their references are in after; with once, workflows that have succeeded count as live.
func (s Flows) Claim(ctx context.Context, unique, ref string, ttl time.Duration, once bool, after []string) (elsewhere bool, err error) {
	n, err := s.shardCount(ctx)
	if err != nil || n == 1 {
		return false, err
	}
	replace := ""
	for range 10 {
		res, err := s.scripts["claim"].Run(ctx, s.rdb, []string{s.uniqueKey(shardOf(unique, n), unique)}, ref, max(1, ttl.Milliseconds()), replace, strings.Join(after, " ")).Slice()
		if err != nil {
			return true, fmt.Errorf("claim unique key: %w", err)
		}
		have := fmt.Sprint(res[0])
		if have == "" {
			return true, nil
		}
		fresh := time.Duration(toInt(res[1]))*time.Millisecond < ClaimTime
		refs := strings.Fields(have)
		var live []string
		for i, other := range refs[:len(refs)-1] { // the last is the time
			f := Flow{Ref: other, shard: shardOf(IDOf(other), n)}
			left, err := s.rdb.PTTL(ctx, s.Key(f)).Result()
			succeeded := false
			if err == nil && once && left >= 0 {
				raws, failed := s.Fields(ctx, f, []string{FieldRoot})
				succeeded, err = failed == nil && string(raws[0]) == string(StateSucceeded), failed
			}
			if err != nil {
				return true, fmt.Errorf("look up workflow %s: %w", f.ID(), err)
			}
			// go-redis gives -1 for a key without expiry and -2 for none.
			if left == -1 || left == -2 && fresh && i == 0 || succeeded {
				live = append(live, other)
			}
		}
		if slices.ContainsFunc(live, func(ref string) bool { return !slices.Contains(after, ref) }) {
			return true, &DuplicateError{live}
		}
		replace = have
	}
	return true, errors.New("claim unique key: other senders changed it ten times in a row")
}
