package refreshwait

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// key is one of the progress keys of a job, as tasks.ProgressKeys publishes
// them: a string, expiring an hour after its last change.
func key(prefix, id, name string) string { return prefix + ":" + id + ":" + name }

// Keys are the progress keys of a job, read. A number that is missing is 0.
type Keys struct {
	Status          Status
	TotalChunks     int
	CompletedChunks int
	ResultCount     int
	Candidates      int // of a proxy refresh
}

// ended reports whether the keys say that the job is over.
func (k Keys) ended() bool { return k.Status == Complete || k.Status == Failed }

// ReadKeys reads the progress keys of the job id. Keys that are not there are
// no error: Status is Unknown then.
func ReadKeys(ctx context.Context, rdb redis.UniversalClient, prefix, id string) (Keys, error) {
	// One by one in a pipeline: in a cluster they lie on different nodes.
	names := []string{"status", "total_chunks", "completed_chunks", "result_count", "candidates"}
	replies := make([]*redis.StringCmd, len(names))
	_, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, name := range names {
			replies[i] = p.Get(ctx, key(prefix, id, name))
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return Keys{}, fmt.Errorf("read the progress keys of %s: %w", id, err)
	}
	keys := Keys{Status: Status(replies[0].Val())}
	for i, number := range []*int{&keys.TotalChunks, &keys.CompletedChunks, &keys.ResultCount, &keys.Candidates} {
		text := replies[i+1].Val()
		if text == "" {
			continue
		}
		if *number, err = strconv.Atoi(text); err != nil {
			return keys, fmt.Errorf("progress key %s: %q is no number", key(prefix, id, names[i+1]), text)
		}
	}
	return keys, nil
}
