package store

import (
	"context"
	"fmt"
	"time"
)

// SetProgress records how far a running node is.
func (s *Store) SetProgress(ctx context.Context, f Flow, node string, done, total int) error {
	_, err := s.call(ctx, "progress", f.shard, f.ID, node, fmt.Sprintf("%d/%d", done, total))
	return err
}

// How a progress key changes.
const (
	KeyMax  = "max"  // a number that never goes down
	KeyOnce = "once" // the first value stands
	KeyWord = "word" // a status that only goes forward
	KeySet  = "set"
)

// progressTTL is how many seconds a progress key lives after its last update.
const progressTTL = 3600

// Project writes a public progress key.
func (s *Store) Project(ctx context.Context, prefix, id, name, how, value string) error {
	return s.scripts["project"].Run(ctx, s.rdb, []string{progressKey(prefix, id, name)}, how, value, progressTTL).Err()
}

// RefreshProgress pushes the expiry of progress keys that exist.
func (s *Store) RefreshProgress(ctx context.Context, prefix, id string, names []string) error {
	pipe := s.rdb.Pipeline()
	for _, n := range names {
		pipe.Expire(ctx, progressKey(prefix, id, n), progressTTL*time.Second)
	}
	_, err := pipe.Exec(ctx)
	return err
}
