package schema

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/luascript"
)

//go:embed lua/*.lua
var sources embed.FS

// scripts contains the Lua scripts by name.
var scripts = luascript.Read(sources)

// Migration changes the format of stored data. It may be interrupted at any point and run again, so all of its steps must be
// idempotent. No process of this release runs meanwhile, but processes of older releases may.
type Migration struct {
	Version int      // schema version of the data afterwards: 1, 2, 3, …
	Name    string   // short description
	Slots   []string // hash slots that it changes, such as jobs for muster:{jobs}:…
	// Run runs the migration. Its scripts must not change data unless FenceKey of their slot contains the token of the lock.
	Run func(ctx context.Context, rdb redis.UniversalClient, lock *Lock) error
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
	for i, m := range migrations {
		if m.Version != i+1 {
			panic(fmt.Sprintf("migration %d has the number %d", i+1, m.Version))
		}
	}
	return &Store{Lease: 30 * time.Second, rdb: rdb, migrations: migrations, log: log}
}

// Schema returns the schema version of this program.
func (s *Store) Schema() int { return len(s.migrations) }

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
	return n, nil
}

// Open migrates the store to the schema of this program. It waits while another process does so, and returns a *NewerError for a
// newer schema. If the schema is current, it sends one read command.
func (s *Store) Open(ctx context.Context) error {
	current := func() (bool, error) {
		v, err := s.Version(ctx)
		if err == nil && v > s.Schema() {
			err = &NewerError{Have: v, Know: s.Schema()}
		}
		return v == s.Schema(), err
	}
	if ok, err := current(); ok || err != nil {
		return err
	}
	l, err := s.acquire(ctx, current)
	if err != nil || l == nil {
		return err
	}
	return l.run(ctx, s.migrate)
}

// migrate runs the missing migrations.
func (s *Store) migrate(ctx context.Context, l *Lock) error {
	v, err := s.Version(ctx)
	if err != nil {
		return err
	}
	if v > s.Schema() {
		return &NewerError{Have: v, Know: s.Schema()}
	}
	for _, m := range s.migrations[v:] {
		start := time.Now()
		err := l.Claim(ctx, m.Slots...)
		if err == nil {
			err = m.Run(ctx, s.rdb, l)
		}
		if isFenced(err) {
			err = ErrLost
		}
		if err != nil {
			return fmt.Errorf("migration %d (%s): %w; completed steps remain, and the next start continues", m.Version, m.Name, err)
		}
		n, err := scripts["record"].Run(ctx, s.rdb, []string{schemaKey}, l.token, m.Version).Int()
		if err != nil {
			return fmt.Errorf("record migration %d: %w", m.Version, err)
		}
		if n == 0 {
			return fmt.Errorf("record migration %d: %w", m.Version, ErrLost)
		}
		s.log.InfoContext(ctx, "migrated the store", "schema", m.Version, "migration", m.Name, "took", time.Since(start).Round(time.Millisecond))
	}
	return nil
}

// fenced is the prefix of the error of a script whose slot was claimed by another process.
const fenced = "FENCED"

// isFenced reports whether a script found the token of a later process in its slot.
func isFenced(err error) bool { return err != nil && strings.Contains(err.Error(), fenced) }
