package store

import (
	"context"
	"time"
)

// How a progress key changes.
const (
	KeyMax  = "max"  // a number that never goes down
	KeyOnce = "once" // the first value is kept
	KeyWord = "word" // a status that only goes forward
	KeySet  = "set"
)

// progressTTL is how many seconds a progress key lives after its last update.
const progressTTL = 3600

// Set writes a public progress key.
func (s ProgressKeys) Set(ctx context.Context, prefix, id, name, how, value string) error {
	return s.scripts["project"].Run(ctx, s.rdb, []string{progressKey(prefix, id, name)}, how, value, progressTTL).Err()
}

// Delete deletes a progress key.
func (s ProgressKeys) Delete(ctx context.Context, prefix, id, name string) error {
	return s.rdb.Del(ctx, progressKey(prefix, id, name)).Err()
}

// Refresh pushes the expiry of progress keys that exist.
func (s ProgressKeys) Refresh(ctx context.Context, prefix, id string, names []string) error {
	pipe := s.rdb.Pipeline()
	for _, n := range names {
		pipe.Expire(ctx, progressKey(prefix, id, n), progressTTL*time.Second)
	}
	_, err := pipe.Exec(ctx)
	return err
}
