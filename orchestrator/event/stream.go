// Package event stores the events of jobs, sites and agents in order. Redis has one stream of all events and one per job. The
// scripts that change jobs add their events; [Stream.Add] adds others.
package event

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/luascript"
	"muster/tasks/tasktype"
)

// An Event is a change of a job, a site or an agent.
type Event struct {
	ID   string          `json:"id"`     // position in both streams, such as 1735689600000-0
	Type string          `json:"type"`   // such as job.completed
	Job  string          `json:"job_id"` // "" without a job
	Time time.Time       `json:"time"`
	Data json.RawMessage `json:"data,omitempty"` // may be nil
}

// A Stream reads and adds events. It is safe for concurrent use.
type Stream struct {
	rdb     redis.UniversalClient
	waiters *waiters
}

// New returns a Stream.
func New(rdb redis.UniversalClient) *Stream {
	return &Stream{rdb: rdb, waiters: &waiters{rdb: rdb, all: map[*waiter]struct{}{}}}
}

// Batch is the result of Read.
type Batch struct {
	Events []Event // oldest first
	// Gap means that events before these may be missing, because the stream no longer has the starting position. A reader that
	// follows a job must read its state again.
	Gap  bool
	Next string // for the next Read
}

const maxBatch = 1000

// Keep is the approximate number of stored events of all jobs.
const Keep = 10_000

// start is the position before all events.
var start = position{}

// Read returns up to limit events after an ID, from 1 to 1000, and waits up to block for the first one. It returns an error when
// ctx is done. A jobID of "" means all jobs. An after of "" is the last existing event; the Next of each Batch, even without
// events, continues without loss. A malformed after is an *IDError.
func (s *Stream) Read(ctx context.Context, jobID, after string, limit int, block time.Duration) (Batch, error) {
	key, what := AllKey(), "events"
	if jobID != "" {
		key, what = JobKey(jobID), "events of job "+jobID
	}
	from, err := s.from(ctx, key, after)
	if errors.As(err, new(*IDError)) {
		return Batch{}, err
	}
	if err != nil {
		return Batch{}, fmt.Errorf("read the %s: %w", what, err)
	}
	limit = min(max(limit, 1), maxBatch)
	var waiting *waiter
	for end := time.Now().Add(block); ; {
		if ctx.Err() != nil {
			return Batch{Next: from.String()}, context.Cause(ctx)
		}
		b, err := s.look(ctx, key, from, limit)
		if ctx.Err() != nil {
			return Batch{Next: from.String()}, context.Cause(ctx)
		}
		if err != nil {
			return b, fmt.Errorf("read the %s: %w", what, err)
		}
		left := time.Until(end)
		if len(b.Events) > 0 || left <= 0 {
			return b, nil
		}
		if waiting == nil {
			waiting = s.waiters.join(jobID)
			defer s.waiters.leave(waiting)
			continue // an event may have been added before join
		}
		waiting.wait(ctx, left)
	}
}

// Last returns the last n events of a job, or of all jobs if jobID is "", newest first, without waiting.
func (s *Stream) Last(ctx context.Context, jobID string, n int) ([]Event, error) {
	key := AllKey()
	if jobID != "" {
		key = JobKey(jobID)
	}
	read, err := s.rdb.XRevRangeN(ctx, key, "+", "-", int64(n)).Result()
	if err != nil {
		return nil, fmt.Errorf("read the last events: %w", err)
	}
	all := make([]Event, len(read))
	for i, m := range read {
		if all[i], err = decode(m); err != nil {
			return nil, fmt.Errorf("read the last events: %w", err)
		}
	}
	return all, nil
}

// from returns the position after which Read starts.
func (s *Stream) from(ctx context.Context, key, after string) (position, error) {
	if after != "" {
		return parse(after)
	}
	last, err := s.rdb.XRevRangeN(ctx, key, "+", "-", 1).Result()
	if err != nil || len(last) == 0 {
		return start, err
	}
	return parse(last[0].ID)
}

// look reads the existing events after a position.
func (s *Stream) look(ctx context.Context, key string, from position, limit int) (Batch, error) {
	b := Batch{Next: from.String()}
	var oldest *redis.XMessageSliceCmd
	var read *redis.XStreamSliceCmd
	// In one transaction: an event that is trimmed between the commands would be missing without a gap.
	_, err := s.rdb.TxPipelined(ctx, func(p redis.Pipeliner) error {
		oldest = p.XRangeN(ctx, key, "-", "+", 1)
		read = p.XRead(ctx, &redis.XReadArgs{Streams: []string{key, b.Next}, Count: int64(limit), Block: -1})
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return b, err
	}
	for _, stream := range read.Val() {
		for _, m := range stream.Messages {
			e, err := decode(m)
			if err != nil {
				return b, err
			}
			b.Events, b.Next = append(b.Events, e), m.ID
		}
	}
	if len(oldest.Val()) == 0 {
		return b, nil
	}
	first, err := parse(oldest.Val()[0].ID)
	if err != nil {
		return b, err
	}
	if b.Gap = from.before(first); b.Gap && from == start {
		b.Gap, err = s.trimmed(ctx, key)
	}
	return b, err
}

// trimmed reports whether a stream has lost its first events. Redis before version 7 does not expose that.
func (s *Stream) trimmed(ctx context.Context, key string) (bool, error) {
	info, err := s.rdb.XInfoStream(ctx, key).Result()
	if err != nil {
		return false, err
	}
	return info.EntriesAdded > info.Length, nil
}

// decode decodes an entry of a stream.
func decode(m redis.XMessage) (Event, error) {
	at, err := parse(m.ID)
	if err != nil {
		return Event{}, err
	}
	text := func(name string) string {
		s, _ := m.Values[name].(string)
		return s
	}
	e := Event{ID: m.ID, Type: text("type"), Job: text("job")}
	ms, err := strconv.ParseInt(text("at"), 10, 64)
	if err != nil {
		ms = int64(at.ms) // also a time
	}
	e.Time = time.UnixMilli(ms).UTC()
	if data := text("data"); json.Valid([]byte(data)) { // keep an event with invalid data
		e.Data = json.RawMessage(data)
	}
	return e, nil
}

// Types are the types of events.
var Types = []string{
	"job.created", "job.started", "job.edited", "job.retried", "job.reopened", "job.paused", "job.resumed", "job.stuck", "job.recovered",
	"job.completed", "job.failed", "job.cancelled", "job.deleted",
	"stage.completed", "item.failed", "item.review", "item.decided",
	"scrape.completed", "scrape.failed", "site.unhealthy", "site.recovered",
	"breaker.opened", "breaker.closed",
	"agent.registered", "agent.removed",
	tasktype.EventSucceeded, tasktype.EventFailed, tasktype.EventRevoked, tasktype.EventStuck, // not in the streams: the index of workflows has them
}

// IDError means that a string is not the ID of an event.
type IDError struct{ ID string }

// Error describes the format of an ID.
func (e *IDError) Error() string {
	return fmt.Sprintf("invalid event id %.60q: want the form 1735689600000-0", e.ID)
}

// position is a place in a stream: the two numbers of an id.
type position struct{ ms, seq uint64 }

// parse parses an ID. A missing second number is 0.
func parse(id string) (position, error) {
	first, second, both := strings.Cut(id, "-")
	if !both {
		second = "0"
	}
	ms, err := strconv.ParseUint(first, 10, 64)
	if err != nil {
		return position{}, &IDError{id}
	}
	seq, err := strconv.ParseUint(second, 10, 64)
	if err != nil {
		return position{}, &IDError{id}
	}
	return position{ms, seq}, nil
}

func (p position) String() string { return fmt.Sprintf("%d-%d", p.ms, p.seq) }

func (p position) before(q position) bool {
	return p.ms < q.ms || p.ms == q.ms && p.seq < q.seq
}

//go:embed lua/*.lua
var sources embed.FS

var scripts = luascript.Read(sources)

// Lua is the function record(all, of_job, relayed, type, job, at, data), by which scripts of other packages add events in
// the step that makes them true. Keys returns the names of the streams.
//
//go:embed lua/common.lua
var Lua string

// Keys returns the keys of the streams for the events of a job.
func Keys(job string) []string { return []string{AllKey(), JobKey(job), RelayedKey()} }

// remembered is how long an event with a once name blocks its repetition.
const remembered = 7 * 24 * time.Hour

// Add adds an event that no script of jobs records to the stream of all events, and returns its ID. The job may be "". Data is
// encoded as JSON. If once is not "", a second event of that name within a week is not added.
func (s *Stream) Add(ctx context.Context, eventType, job, once string, data any) (id string, err error) {
	raw, err := json.Marshal(data)
	if err != nil {
		return "", fmt.Errorf("encode event %s: %w", eventType, err)
	}
	keys := []string{AllKey(), RelayedKey(), AllKey()}
	if once != "" {
		keys[2] = onceKey(eventType + " " + once)
	}
	id, err = scripts["add"].Run(ctx, s.rdb, keys, eventType, job, raw, remembered.Milliseconds()).Text()
	if err != nil {
		return "", fmt.Errorf("add event %s: %w", eventType, err)
	}
	return id, nil
}
