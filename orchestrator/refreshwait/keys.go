package refreshwait

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// key returns a progress key of a job. tasks.ProgressKeys publishes these keys as strings that expire an hour after their last
// change.
func key(prefix, id, name string) string { return prefix + ":" + id + ":" + name }

// Keys are the values of the progress keys of a job. Missing numbers are 0.
type Keys struct {
	Status          Status
	TotalChunks     int
	CompletedChunks int
	ResultCount     int
	Candidates      int // for a proxy refresh
}

// finished reports whether the job has finished.
func (k Keys) finished() bool { return k.Status == Complete || k.Status == Failed }

// ReadKeys reads the progress keys of the job id. If they do not exist, Status is Unknown.
func ReadKeys(ctx context.Context, rdb redis.UniversalClient, prefix, id string) (Keys, error) {
	// Single commands in a pipeline, because the keys are on different nodes of a cluster.
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
			return keys, fmt.Errorf("progress key %s: invalid number %q", key(prefix, id, names[i+1]), text)
		}
	}
	return keys, nil
}
