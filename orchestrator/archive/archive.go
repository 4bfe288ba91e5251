// Package archive writes workflows that have ended to a database or a file, where they are found after they have expired in Redis.
//
//	index of ended workflows ─▶ reader "archive" ─▶ documents ─▶ sink
//
// The reader has its position in Redis, which follows what the sink has stored. A process that was killed in between repeats a batch, and the sink has
// each workflow once, by its ID and the time when it was sent. One that is retried replaces itself.
package archive

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"muster/internal/limit"
	"muster/sites/sink"
	"muster/tasks"
	"muster/tasks/api"
	"muster/tasks/tasktype"
)

// Errors for callers to compare.
var (
	ErrNone        = errors.New("there is no archive in a database; see the setting archive")
	ErrNoWorkflow  = errors.New("no such workflow in the archive")
	ErrUnavailable = errors.New("the archive is unavailable")
)

// Config configures an Archive.
type Config struct {
	Client  *tasks.Client
	Address string       // see Check. Defaults to none: nothing is archived.
	Dir     string       // base of relative paths
	Logger  *slog.Logger // Defaults to none.
}

// Archive archives workflows while Run runs, and finds archived ones. It may be used by many goroutines and processes.
type Archive struct {
	cfg Config

	mu   sync.Mutex // guards read
	read *database
}

// store is a database or a file.
type store interface {
	put(ctx context.Context, list []ArchivedWorkflow) error
	Close() error
}

// Check returns an error for an invalid address: jsonl:PATH, sqlite:PATH or postgres://USER@HOST/DB.
func Check(address string) error {
	if path, ok := strings.CutPrefix(address, "jsonl:"); ok && path != "" {
		return nil
	}
	scheme, _, _ := strings.Cut(address, ":")
	if scheme != "sqlite" && !strings.HasPrefix(scheme, "postgres") {
		return fmt.Errorf("archive of scheme %.20q: use jsonl:PATH, sqlite:PATH or postgres://USER@HOST/DB", scheme)
	}
	return sink.Check(address)
}

// New returns an Archive. It does no I/O.
func New(cfg Config) *Archive {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Archive{cfg: cfg}
}

// Set reports whether there is an archive.
func (a *Archive) Set() bool { return a.cfg.Address != "" }

// Listed reports whether List and Get find workflows: a file is read with other tools.
func (a *Archive) Listed() bool { return a.Set() && !strings.HasPrefix(a.cfg.Address, "jsonl:") }

// Close closes connections.
func (a *Archive) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.read == nil {
		return nil
	}
	return a.read.Close()
}

// open opens the sink for writing.
func (a *Archive) open(ctx context.Context) (store, error) {
	if path, ok := strings.CutPrefix(a.cfg.Address, "jsonl:"); ok {
		if !filepath.IsAbs(path) {
			path = filepath.Join(a.cfg.Dir, path)
		}
		return openFile(path)
	}
	d, err := a.database(ctx)
	if err != nil {
		return nil, err // a nil *database is not a nil store
	}
	return d, nil
}

func (a *Archive) database(ctx context.Context) (*database, error) {
	db, err := sink.OpenDB(ctx, a.cfg.Address, a.cfg.Dir, tables)
	if err != nil {
		return nil, err
	}
	return &database{db}, nil
}

// reader returns the database that List and Get read.
func (a *Archive) reader(ctx context.Context) (*database, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.Listed() {
		return nil, ErrNone
	}
	if a.read == nil {
		s, err := a.database(ctx)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		a.read = s
	}
	return a.read, nil
}

// List returns a page of archived workflows that f selects, the latest first, and the cursor of the next page.
func (a *Archive) List(ctx context.Context, f tasktype.WorkflowFilter) (page []api.Workflow, next string, err error) {
	s, err := a.reader(ctx)
	if err != nil {
		return nil, "", err
	}
	if f.Limit == 0 {
		f.Limit = 100
	}
	page, next, err = s.list(ctx, f)
	if err != nil && !errors.Is(err, tasks.ErrCursor) {
		err = fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return page, next, err
}

// Get returns the latest archived workflow with an ID, or ErrNoWorkflow.
func (a *Archive) Get(ctx context.Context, id string) (ArchivedWorkflow, error) {
	s, err := a.reader(ctx)
	if err != nil {
		return ArchivedWorkflow{}, err
	}
	d, err := s.get(ctx, id)
	if err != nil && !errors.Is(err, ErrNoWorkflow) {
		err = fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return d, err
}

// Health describes the archive. It returns an error while workflows cannot be archived.
func (a *Archive) Health(ctx context.Context) (string, error) {
	state, err := a.cfg.Client.Redis().HGetAll(ctx, stateKey).Result()
	if err != nil {
		return "", err
	}
	if state["error"] != "" {
		ms, _ := strconv.ParseInt(state["since"], 10, 64)
		return "", fmt.Errorf("workflows that have ended wait for the archive since %s: %s", time.UnixMilli(ms).UTC().Format(time.DateTime), state["error"])
	}
	if state["missed"] != "" {
		return "about " + state["missed"] + " workflows are missing: they were dropped before they were archived", nil
	}
	return "up to date", nil
}

const (
	batch     = 200
	concur    = 16               // workflows that are read at once
	turnHold  = 30 * time.Second // another process archives then
	roundTime = 25 * time.Second
	idle      = 500 * time.Millisecond
	maxPause  = time.Minute // between two attempts
)

// Run archives workflows until ctx is done, if there is an archive and no other process does so.
func (a *Archive) Run(ctx context.Context) error {
	if !a.Set() {
		return nil
	}
	w := &writer{Archive: a, turn: limit.NewTurn(a.cfg.Client.Redis(), turnKey)}
	for pause := time.Duration(0); ; {
		mine, err := w.turn.Take(ctx, turnHold)
		n := 0
		if mine && err == nil {
			n, err = w.round(ctx)
		}
		switch {
		case err != nil && ctx.Err() == nil:
			w.close() // another process may get its turn, or the connection is broken
			pause = min(max(2*pause, time.Second), maxPause)
			a.cfg.Logger.WarnContext(ctx, "cannot archive workflows; trying again", "after", pause, "err", err)
		case n == batch:
			pause = 0
		default:
			if !mine {
				w.close()
			}
			pause = idle
		}
		select {
		case <-ctx.Done():
			w.close()
			if mine {
				w.turn.Free(ctx)
			}
			return nil
		case <-time.After(pause):
		}
	}
}

// writer archives workflows.
type writer struct {
	*Archive
	turn   *limit.Turn
	store  store // nil until it is open
	failed bool  // the state in Redis has an error, or may have
}

func (w *writer) close() {
	if w.store != nil {
		_ = w.store.Close() // all was stored, or is repeated
		w.store = nil
	}
	w.failed = true
}

// round archives a batch of workflows, and returns the number of events.
func (w *writer) round(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, roundTime)
	defer cancel()
	rdb, reader := w.cfg.Client.Redis(), w.cfg.Client.EventReader("archive", "")
	events, missed, err := reader.Next(ctx, batch)
	if err != nil {
		return 0, err
	}
	ended := make([]*tasktype.WorkflowEvent, 0, len(events))
	for i := range events {
		if events[i].Type != tasktype.EventStuck {
			ended = append(ended, &events[i])
		}
	}
	list := make([]ArchivedWorkflow, len(ended))
	all, reading := errgroup.WithContext(ctx)
	all.SetLimit(concur)
	for i, e := range ended {
		all.Go(func() (err error) { list[i], err = read(reading, w.cfg.Client, e); return err })
	}
	if err := all.Wait(); err != nil {
		return 0, err
	}
	if w.store == nil {
		w.store, err = w.open(ctx)
	}
	if err == nil && len(list) > 0 {
		err = w.store.put(ctx, list)
	}
	if err != nil {
		_ = rdb.HSetNX(ctx, stateKey, "since", time.Now().UnixMilli()).Err()
		return 0, errors.Join(err, rdb.HSet(ctx, stateKey, "error", err.Error()).Err())
	}
	if w.failed {
		if err := rdb.HDel(ctx, stateKey, "error", "since").Err(); err != nil {
			return 0, err
		}
		w.failed = false
	}
	if len(events) == 0 {
		return 0, nil
	}
	if missed > 0 {
		w.cfg.Logger.WarnContext(ctx, "workflows were dropped before they were archived", "about", missed, "continued_at", events[0].Time)
		if err := rdb.HIncrBy(ctx, stateKey, "missed", missed).Err(); err != nil {
			return 0, err
		}
	}
	return len(events), reader.Done(ctx, events[len(events)-1].Position)
}

// turnKey is the string with the process that archives. Expires half a minute after its last round.
const turnKey = "muster:{archive}:turn"

// stateKey is a hash: error, the last one, and since (unix ms), both absent while workflows are archived, and missed, how many workflows about were
// dropped before they were archived. No expiry.
const stateKey = "muster:{archive}:state"
