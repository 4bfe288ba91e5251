// Package schema stores the schema version of the data of the orchestrator in Redis and migrates older data. Each process calls
// [Store.Open] when it connects: it rejects a newer schema and runs the missing migrations, in one process at a time.
package schema

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Migration changes the format of stored data. It may be interrupted at any point and run again, so all of its steps must be
// idempotent. No process of this release runs meanwhile, but processes of older releases may.
type Migration struct {
	Version int    // schema version of the data afterwards: 1, 2, 3, …
	Name    string // short description
	Run     func(ctx context.Context, rdb redis.UniversalClient) error
}

// NewerError means that a newer release wrote the store.
type NewerError struct {
	Have, Know int // schema version of the store and of this program
}

// Error contains both versions and advice.
func (e *NewerError) Error() string {
	return fmt.Sprintf("the store in Redis has schema %d, written by a newer release; this one knows %d: upgrade this program, or use another Redis", e.Have, e.Know)
}

// Store is the data of the orchestrator in a Redis. It is safe for concurrent use.
type Store struct {
	// Lease is the duration of the lock without renewal; it is renewed three times as often. It must be set before the
	// first use. Default: 30 seconds.
	Lease time.Duration

	rdb        redis.UniversalClient
	migrations []Migration
	log        *slog.Logger
}

// New returns the store in a Redis. migrations must be complete and numbered from 1. New does not connect.
func New(rdb redis.UniversalClient, migrations []Migration, log *slog.Logger) *Store {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Store{Lease: 30 * time.Second, rdb: rdb, migrations: migrations, log: log}
}

// Version returns the schema version of the store, or 0 for an empty store or one without a version. It sends one command.
func (s *Store) Version(ctx context.Context) (int, error) {
	text, err := s.rdb.HGet(ctx, schemaKey, "version").Result()
	if errors.Is(err, redis.Nil) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the schema of the store: %w", err)
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("invalid schema %.40q in key %s: is it the right Redis? If it is, delete the field version of the key %[2]s; the next start migrates the store again", text, schemaKey)
	}
	if n > len(s.migrations) {
		return n, &NewerError{Have: n, Know: len(s.migrations)}
	}
	return n, nil
}

// Open migrates the store to the schema of this program. It waits while another process does so, and returns a *NewerError for a
// newer schema. If the schema is current, it sends one read command.
func (s *Store) Open(ctx context.Context) error {
	host, _ := os.Hostname()
	me := fmt.Sprintf("%s.%d", host, os.Getpid())
	for {
		v, err := s.Version(ctx)
		if err != nil || v == len(s.migrations) {
			return err
		}
		locked, err := s.rdb.SetNX(ctx, lockKey, me, s.Lease).Result()
		if err != nil {
			return fmt.Errorf("lock the store: %w", err)
		}
		if locked {
			return s.migrate(ctx)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for process %s, which migrates the store: %w", s.rdb.Get(context.WithoutCancel(ctx), lockKey).Val(), context.Cause(ctx))
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// migrate runs the missing migrations while renewing the lock, and releases the lock.
func (s *Store) migrate(ctx context.Context) error {
	renewing, stop := context.WithCancel(ctx)
	var renewal sync.WaitGroup
	renewal.Go(func() {
		for renewing.Err() == nil {
			select {
			case <-renewing.Done():
			case <-time.After(s.Lease / 3):
				s.rdb.PExpire(renewing, lockKey, s.Lease)
			}
		}
	})
	defer func() {
		stop()
		renewal.Wait()
		s.rdb.Del(context.WithoutCancel(ctx), lockKey) // else it expires
	}()
	v, err := s.Version(ctx)
	if err != nil {
		return err
	}
	for _, m := range s.migrations[v:] {
		start := time.Now()
		err := m.Run(ctx, s.rdb)
		if err == nil {
			err = s.rdb.HSet(ctx, schemaKey, "version", m.Version).Err()
		}
		if err != nil {
			return fmt.Errorf("migration %d (%s): %w; completed steps remain, and the next start continues", m.Version, m.Name, err)
		}
		s.log.InfoContext(ctx, "migrated the store", "schema", m.Version, "migration", m.Name, "took", time.Since(start).Round(time.Millisecond))
	}
	return nil
}
