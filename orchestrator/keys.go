package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// The values of the status key of a job. Between them are COLLECTING, PROCESSING (the number of chunks is known) and AGGREGATING.
const (
	statusDispatched = "DISPATCHED" // sent, not started
	statusComplete   = "COMPLETE"
	statusFailed     = "FAILED"
)

// progressKeys are the values of the progress keys of a job, which tasks.ProgressKeys publishes. Missing values are "" and 0.
type progressKeys struct {
	Status      string
	TotalChunks int
	Candidates  int // of a proxy refresh
}

// finished reports whether the job has finished.
func (k progressKeys) finished() bool { return k.Status == statusComplete || k.Status == statusFailed }

// readKeys reads the progress keys of the job id.
func readKeys(ctx context.Context, rdb redis.UniversalClient, prefix, id string) (keys progressKeys, err error) {
	// Single commands in a pipeline, because the keys are on different nodes of a cluster.
	names := []string{"status", "total_chunks", "candidates"}
	replies := make([]*redis.StringCmd, len(names))
	_, err = rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, name := range names {
			replies[i] = p.Get(ctx, prefix+":"+id+":"+name)
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return keys, fmt.Errorf("read the progress keys of %s: %w", id, err)
	}
	keys.Status = replies[0].Val()
	for i, number := range []*int{&keys.TotalChunks, &keys.Candidates} {
		text := replies[i+1].Val()
		if text == "" {
			continue
		}
		if *number, err = strconv.Atoi(text); err != nil {
			return keys, fmt.Errorf("progress key %s:%s:%s: invalid number %q", prefix, id, names[i+1], text)
		}
	}
	return keys, nil
}
