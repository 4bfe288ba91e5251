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

// scripts are the files of lua by name.
var scripts = luascript.Read(sources)

// Migration changes the form of stored data. It may be stopped at any point and run again, so that each of its steps
// must be one that can be repeated. It runs while no process of this release works; those of older ones may.
type Migration struct {
	Version int      // the schema that the data has afterwards: 1, 2, 3, …
	Name    string   // what it does, in a few words
	Slots   []string // the hash slots that it changes, as jobs for muster:{jobs}:…
	// Count returns how many things it would change.
	Count func(ctx context.Context, rdb redis.UniversalClient) (int64, error)
	// Run does it. Its scripts change nothing unless FenceKey of their slot holds the token of the lock.
	Run func(ctx context.Context, rdb redis.UniversalClient, lock *Lock) error
}

// NewerError says that a newer release wrote the store.
type NewerError struct {
	Have, Know int // the schema of the store, and of this program
}

// Error names both, and the way out.
func (e *NewerError) Error() string {
	return fmt.Sprintf("the store in Redis has schema %d, written by a newer release; this one knows %d: upgrade this program, or use another Redis", e.Have, e.Know)
}

// Store is what the orchestrator keeps in a Redis. It may be used by many goroutines at once.
type Store struct {
	// Lease is how long the lock of a process lasts that is silent; it is renewed three times as often. Set it before
	// the Store is used. Defaults to 30 seconds.
	Lease time.Duration

	rdb        redis.UniversalClient
	migrations []Migration
	log        *slog.Logger
}

// New returns the store of a Redis. The migrations are all that there are, numbered from 1. It does no I/O.
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

// Schema is the schema that this program knows.
func (s *Store) Schema() int { return len(s.migrations) }

// Version returns the schema of the store; 0 is that of a store without a version, or an empty one. It is one command.
func (s *Store) Version(ctx context.Context) (int, error) {
	said, err := s.rdb.HGet(ctx, schemaKey, "version").Result()
	if errors.Is(err, redis.Nil) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the schema of the store: %w", err)
	}
	n, err := strconv.Atoi(said)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("key %s says that the schema is %.40q, which no release wrote: is it the right Redis? If it is, delete the field version of the key %[1]s; the next start migrates the store again", schemaKey, said)
	}
	return n, nil
}

// Open brings the store up to the schema of this program; an empty one gets it, too. It waits while another process
// does so. It returns a *NewerError for a store of a newer schema. With nothing to do it is one command, which needs no
// Redis that accepts writes.
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

// migrate runs the migrations that are missing.
func (s *Store) migrate(ctx context.Context, l *Lock) error {
	v, err := s.Version(ctx)
	if err != nil {
		return err
	}
	if v > s.Schema() {
		return &NewerError{Have: v, Know: s.Schema()}
	}
	for _, m := range s.migrations[v:] {
		began := time.Now()
		err := l.Claim(ctx, m.Slots...)
		if err == nil {
			err = m.Run(ctx, s.rdb, l)
		}
		if isFenced(err) {
			err = ErrLost
		}
		if err != nil {
			return fmt.Errorf("migration %d (%s): %w; what was done stays, and the next start continues", m.Version, m.Name, err)
		}
		n, err := scripts["record"].Run(ctx, s.rdb, []string{schemaKey}, l.token, m.Version).Int()
		if err != nil {
			return fmt.Errorf("note migration %d: %w", m.Version, err)
		}
		if n == 0 {
			return fmt.Errorf("note migration %d: %w", m.Version, ErrLost)
		}
		s.log.InfoContext(ctx, "the store was migrated", "schema", m.Version, "migration", m.Name, "took", time.Since(began).Round(time.Millisecond))
	}
	return nil
}

// fenced begins the error of a script of a process whose slot another has claimed.
const fenced = "FENCED"

// isFenced reports whether an error is that of a script that found the token of a later process in its slot.
func isFenced(err error) bool { return err != nil && strings.Contains(err.Error(), fenced) }

// Status is what the store says about itself.
type Status struct {
	Schema  int    `json:"schema"`            // of the data; 0 if it was written before there were versions, or is empty
	Known   int    `json:"known"`             // of this program
	Locked  string `json:"locked,omitempty"`  // the process that migrates the store
	Pending []Step `json:"pending,omitempty"` // migrations that are missing
}

// Step is a migration that is missing.
type Step struct {
	Version int    `json:"version"`
	Name    string `json:"name"`
	Changes int64  `json:"changes"` // how many things it would change
}

// Newer reports whether a newer release wrote the store.
func (s Status) Newer() bool { return s.Schema > s.Known }

// Status reads it. It changes nothing, and works with a store of any schema.
func (s *Store) Status(ctx context.Context) (Status, error) {
	v, err := s.Version(ctx)
	if err != nil {
		return Status{}, err
	}
	out := Status{Schema: v, Known: s.Schema()}
	at, err := s.rdb.HMGet(ctx, schemaKey, "holder", "until").Result()
	if err != nil {
		return out, fmt.Errorf("read the lock of the store: %w", err)
	}
	now, err := s.rdb.Time(ctx).Result()
	if err != nil {
		return out, fmt.Errorf("read the time of Redis: %w", err)
	}
	until, _ := strconv.ParseInt(fmt.Sprint(at[1]), 10, 64)
	if at[0] != nil && until > now.UnixMilli() {
		out.Locked = fmt.Sprintf("process %v is migrating the store", at[0])
	}
	if v >= s.Schema() {
		return out, nil
	}
	for _, m := range s.migrations[v:] {
		n, err := m.Count(ctx, s.rdb)
		if err != nil {
			return out, fmt.Errorf("look what migration %d would do: %w", m.Version, err)
		}
		out.Pending = append(out.Pending, Step{m.Version, m.Name, n})
	}
	return out, nil
}
