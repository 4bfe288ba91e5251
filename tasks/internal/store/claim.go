package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// claimGrace is how long a workflow may take from its claim of a unique key until it is stored.
const claimGrace = 10 * time.Second

// Claim gives a unique key to the workflow with a reference, which is about to be stored. It is for clusters,
// where key and workflow can lie in different slots, and needs no call where [Flows.Submit] does it
// by itself: then elsewhere is false. A key of another live workflow is a
// [DuplicateError].
func (s Flows) Claim(ctx context.Context, unique, ref string, ttl time.Duration) (elsewhere bool, err error) {
	n, err := s.shardCount(ctx)
	if err != nil || n == 1 {
		return false, err
	}
	replace := ""
	for range 10 {
		res, err := s.scripts["claim"].Run(ctx, s.rdb, []string{uniqueKey(shardOf(unique, n), unique)}, ref, max(1, ttl.Milliseconds()), replace).Slice()
		if err != nil {
			return true, fmt.Errorf("claim unique key: %w", err)
		}
		have := fmt.Sprint(res[0])
		if have == "" {
			return true, nil
		}
		other, _, _ := strings.Cut(have, " ")
		left, err := s.rdb.PTTL(ctx, flowKey(shardOf(IDOf(other), n), other)).Result()
		if err != nil {
			return true, fmt.Errorf("look up workflow %s: %w", IDOf(other), err)
		}
		// go-redis gives -1 for a key without expiry and -2 for none.
		fresh := time.Duration(toInt(res[1]))*time.Millisecond < claimGrace
		if left == -1 || left == -2 && fresh {
			return true, &DuplicateError{other}
		}
		replace = have
	}
	return true, errors.New("claim unique key: other senders changed it ten times in a row")
}
