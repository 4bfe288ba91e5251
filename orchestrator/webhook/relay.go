package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/limit"
	"muster/orchestrator/event"
	"muster/tasks/workqueue"
)

const (
	relayBatch = 500              // events per round
	relayHold  = 15 * time.Second // lease of the relay after a crash
	tidyEvery  = 30 * time.Second
	keepCount  = 10_000 // ended deliveries kept of each endpoint
)

// relay creates deliveries of events. Several concurrent relays are harmless.
type relay struct {
	*Service
	turn *limit.Turn

	last   string    // the last event that round has passed on; "" if there are no endpoints
	tidied time.Time // last run of tidy
	follow state     // of events of workflows
	looked time.Time // last call of FindStuck
}

func (r *relay) run(ctx context.Context) {
	for {
		mine, err := r.turn.Take(ctx, relayHold)
		n := 0
		if err == nil && mine {
			if n, err = r.round(ctx); err == nil {
				var ends int
				ends, err = r.workflows(ctx)
				n = max(n, ends)
			}
			if err == nil {
				err = r.tidy(ctx)
			}
		}
		r.warn(ctx, "relay events", err)
		pause := r.cfg.Tick
		switch {
		case err != nil || !mine:
			pause = max(pause, time.Second)
		case n == relayBatch:
			pause = 0
		case n == 0 && r.last != "" && r.follow != following: // nothing to do until there is an event, or the lease must be extended
			if _, err = r.cfg.Events.Read(ctx, "", r.last, 1, relayHold/3); err == nil {
				continue
			}
			r.warn(ctx, "wait for events", err)
			pause = max(pause, time.Second)
		}
		if !sleep(ctx, pause) {
			if mine {
				r.turn.Free(ctx)
			}
			return
		}
	}
}

func ignoreNil(err error) error {
	if errors.Is(err, redis.Nil) {
		return nil
	}
	return err
}

// entry is an event.
type entry struct {
	msg Message
	to  []string // subscribed endpoints
}

// round creates the deliveries of a batch of events and returns the number of events.
func (r *relay) round(ctx context.Context) (int, error) {
	last, err := r.rdb.Get(ctx, event.RelayedKey()).Result()
	if errors.Is(err, redis.Nil) && len(r.static) > 0 {
		last, err = r.begin(ctx)
	}
	r.last = last
	if err != nil {
		return 0, ignoreNil(err) // nil: no endpoints
	}
	raw, stored, err := r.read(ctx, last)
	if err != nil || len(raw) == 0 {
		return 0, err
	}
	r.forgetKnown() // an endpoint that was added before an event receives it
	known, err := r.records(ctx)
	if err != nil {
		return 0, err
	}
	var entries []entry
	for _, x := range raw {
		e, err := parseEntry(x)
		if err != nil {
			r.log.ErrorContext(ctx, "webhooks: skipping an undecodable event", "entry", x.ID, "err", err)
			continue
		}
		for id, rec := range known {
			if rec.wants(e.msg.Type) {
				e.to = append(e.to, id)
			}
		}
		if len(e.to) > 0 {
			entries = append(entries, e)
		}
	}
	if err := r.addJobs(ctx, entries); err != nil {
		return 0, err
	}
	if err := r.enqueue(ctx, entries, known); err != nil {
		return 0, err
	}
	length := ""
	if len(raw) < relayBatch {
		length = strconv.FormatInt(stored, 10)
	}
	err = scripts["pass"].Run(ctx, r.rdb, []string{event.RelayedKey(), event.AllKey()}, last, raw[len(raw)-1].ID, event.Keep, length).Err()
	return len(raw), err
}

// begin starts the relay for endpoints of the configuration, after the last event.
func (r *relay) begin(ctx context.Context) (string, error) {
	last := "0-0"
	newest, err := r.rdb.XRevRangeN(ctx, event.AllKey(), "+", "-", 1).Result()
	if err != nil {
		return "", err
	}
	if len(newest) > 0 {
		last = newest[0].ID
	}
	return last, r.rdb.SetNX(ctx, event.RelayedKey(), last, 0).Err()
}

// read returns a batch of the events after an ID, and the number of stored events.
func (r *relay) read(ctx context.Context, after string) ([]redis.XMessage, int64, error) {
	var all *redis.IntCmd
	var read *redis.XStreamSliceCmd
	_, err := r.rdb.TxPipelined(ctx, func(p redis.Pipeliner) error {
		all = p.XLen(ctx, event.AllKey())
		read = p.XRead(ctx, &redis.XReadArgs{Streams: []string{event.AllKey(), after}, Count: relayBatch, Block: -1})
		return nil
	})
	if ignoreNil(err) != nil || len(read.Val()) == 0 {
		return nil, 0, ignoreNil(err)
	}
	return read.Val()[0].Messages, all.Val(), nil
}

// yearTenThousand is the first time, in unix ms, that JSON cannot represent.
const yearTenThousand = 253402300800000

// parseEntry decodes an entry of the stream of events.
func parseEntry(x redis.XMessage) (entry, error) {
	text := func(name string) string {
		s, _ := x.Values[name].(string)
		return s
	}
	ms, err := strconv.ParseInt(text("at"), 10, 64)
	if err != nil || text("type") == "" || ms < 0 || ms >= yearTenThousand {
		return entry{}, fmt.Errorf("event %.50q of type %.50q at %.50q", x.ID, text("type"), text("at"))
	}
	e := entry{msg: Message{Type: text("type"), Timestamp: time.UnixMilli(ms).UTC(), Data: Data{EventID: x.ID, JobID: text("job")}}}
	if data := text("data"); json.Valid([]byte(data)) { // "" is not
		e.msg.Data.Details = json.RawMessage(data)
	}
	return e, nil
}

// addJobs adds the states of their jobs to events.
func (r *relay) addJobs(ctx context.Context, entries []entry) error {
	known := map[string]json.RawMessage{"": nil}
	for i := range entries {
		d := &entries[i].msg.Data
		raw, ok := known[d.JobID]
		if !ok {
			j, err := r.cfg.Job(ctx, d.JobID)
			if err == nil && j != nil {
				raw, err = json.Marshal(j)
			}
			if err != nil && r.rdb.Ping(ctx).Err() != nil {
				return err // Redis is unavailable, or this process stops
			}
			if err != nil { // one unreadable job does not block the events of others
				r.log.ErrorContext(ctx, "webhooks: cannot read a job; sending its events without it", "job", d.JobID, "err", err)
			}
			known[d.JobID] = raw
		}
		d.Job = raw
	}
	return nil
}

// enqueue adds the deliveries of events unless they exist.
func (r *relay) enqueue(ctx context.Context, entries []entry, known map[string]record) error {
	var items []workqueue.Item
	logs := map[string][]redis.Z{}
	for _, e := range entries {
		for _, id := range e.to {
			body, err := e.msg.encode(known[id].Format)
			if err != nil {
				return err
			}
			items = append(items, item(e.msg.Data.EventID, id, e.msg.Type, body))
			logs[id] = append(logs[id], redis.Z{Score: scoreOf(e.msg), Member: e.msg.Data.EventID})
		}
	}
	return r.add(ctx, items, logs)
}

// scoreOf returns the score of a message in logs: the unix ms of its event's ID, with the number of the event within that
// millisecond as decimals. A test event has no such ID.
func scoreOf(m Message) float64 {
	first, second, _ := strings.Cut(m.Data.EventID, "-")
	ms, err := strconv.ParseUint(first, 10, 52)
	n, other := strconv.ParseUint(second, 10, 64)
	if err != nil || other != nil {
		return float64(m.Timestamp.UnixMilli())
	}
	return float64(ms) + float64(min(n, 999))/1000
}

// add adds deliveries, first to the log, so that each item is in it.
func (s *Service) add(ctx context.Context, items []workqueue.Item, logs map[string][]redis.Z) error {
	if len(items) == 0 {
		return nil
	}
	_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for id, list := range logs {
			for part := range slices.Chunk(list, relayBatch) {
				p.ZAdd(ctx, logKey(id), part...)
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("log deliveries: %w", err)
	}
	_, err = s.queue.Enqueue(ctx, items...)
	return err
}

const (
	tidyBatch = 500
	// fresh is the minimum retention of an ended delivery: a relay that repeats a round must find it.
	fresh = time.Minute
)

// tidy periodically removes deliveries that are too many or too old, or whose endpoint was removed, and disables endpoints with
// too many waiting deliveries.
func (r *relay) tidy(ctx context.Context) error {
	if time.Since(r.tidied) < tidyEvery {
		return nil
	}
	r.tidied = time.Now()
	known, err := r.records(ctx)
	if err != nil {
		return err
	}
	now, err := r.now(ctx)
	if err != nil {
		return err
	}
	lanes, err := r.queue.LaneStats(ctx)
	if err != nil {
		return err
	}
	for id, n := range lanes {
		rec, exists := known[id]
		keep := 0
		if exists {
			keep = keepCount
		}
		if n.Queued > int64(r.cfg.MaxPending) && exists && !rec.Disabled {
			if err := r.disable(ctx, id, fmt.Sprintf("%d waiting deliveries", n.Queued)); err != nil {
				return err
			}
		}
		if err := r.trim(ctx, id, now, keep); err != nil {
			return err
		}
	}
	return nil
}

// trim removes the oldest ended deliveries of an endpoint that exceed keep or are older than Config.Keep.
func (r *relay) trim(ctx context.Context, endpoint string, now time.Time, keep int) error {
	total, err := r.rdb.ZCard(ctx, logKey(endpoint)).Result()
	if err != nil || total == 0 {
		return err
	}
	latest := now.Add(-fresh).UnixMilli()
	tooOld := now.Add(-r.cfg.Keep).UnixMilli()
	for offset, seen := int64(0), int64(0); ; {
		page, err := r.rdb.ZRangeWithScores(ctx, logKey(endpoint), offset, offset+tidyBatch-1).Result()
		if err != nil || len(page) == 0 {
			return err
		}
		var ids []string
		for _, z := range page {
			if int64(z.Score) > latest || total-seen <= int64(keep) && int64(z.Score) > tooOld {
				break
			}
			seen++
			message, _ := z.Member.(string)
			ids = append(ids, itemID(message, endpoint))
		}
		gone, err := r.queue.Forget(ctx, ids...)
		if err != nil {
			return err
		}
		if len(gone) > 0 {
			messages := make([]any, len(gone))
			for i, id := range gone {
				messages[i] = messageOf(id, endpoint)
			}
			if err := r.rdb.ZRem(ctx, logKey(endpoint), messages...).Err(); err != nil {
				return fmt.Errorf("trim the log of webhook %s: %w", endpoint, err)
			}
		}
		if len(ids) < len(page) {
			return nil
		}
		offset += int64(len(page) - len(gone))
	}
}
