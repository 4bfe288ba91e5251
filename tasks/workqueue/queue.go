package workqueue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"

	"muster/internal/wrap"
)

// Errors that callers branch on.
var (
	// ErrLeaseLost means that a lease has expired or was returned. Nothing was changed.
	ErrLeaseLost = errors.New("the lease was lost")
	// ErrNewer means that a newer version of the program wrote the queue.
	ErrNewer = errors.New("the queue was written by a newer version; use that version, or another queue")
	// ErrFull means that Redis has no memory left. The call changed nothing.
	ErrFull = errors.New("redis has reached its maxmemory; raise it or delete data, and retry")
)

// Config sets up a Queue.
type Config struct {
	Namespace   string        // prefix of all keys. Defaults to "muster".
	MaxAttempts int           // failed runs that end an item in error. Defaults to 3.
	Backoff     Backoff       // delay before a failed item is tried again. Defaults to DefaultBackoff.
	LeaseTTL    time.Duration // how long a lease holds without a heartbeat. Defaults to 10 minutes.
	MaxPayload  int           // bytes of a payload, a result or an output. Defaults to 8 MiB.
	MaxItems    int           // items of the queue; further ones are not added, and counted by Stats.Refused. Defaults to 0: no limit.
	Logger      *slog.Logger  // Defaults to slog.Default().

	// CountLanes keeps the counters by lane too, for LaneStats, in memory that
	// grows with the number of lanes. The queue remembers it: it is decided when
	// the first item is added, and then holds for every process.
	CountLanes bool

	// KeepEndings stores the outcomes of items that fail or are amended, for Endings. Such a queue must have no
	// outputs. The setting is stored with the next item that is added, and then applies to every process.
	KeepEndings bool

	// Keep is how long ended items are kept: then they are forgotten, as by Forget, so that the counts of Stats fall and an item with the same
	// ID can be added again. Defaults to 0: forever. The setting is stored with the next items that are added, and then applies to every
	// process and to the items that end from then on. Leases forget items, so a queue that nobody leases from forgets none.
	Keep time.Duration
}

// storedSettings returns MaxItems and the settings that are stored with the queue, as arguments of the script that adds items.
func (c Config) storedSettings() []any {
	return []any{c.CountLanes, c.KeepEndings, c.MaxItems, c.Keep.Milliseconds()}
}

// Backoff is how long to wait after a failed attempt: Base doubled with each
// attempt, at most Max, plus a random part of Jitter.
type Backoff struct {
	Base   time.Duration
	Jitter time.Duration
	Max    time.Duration // 0: one hour
}

// DefaultBackoff is 60 s, 120 s, 240 s, … up to an hour, each with up to 15 s
// of jitter.
var DefaultBackoff = Backoff{Base: time.Minute, Jitter: 15 * time.Second, Max: time.Hour}

// Delay returns how long to wait after the n-th failed attempt, n from 1.
func (b Backoff) Delay(n int) time.Duration {
	limit := b.Max
	if limit <= 0 {
		limit = time.Hour
	}
	d := b.Base
	for ; n > 1 && d < limit; n-- {
		d *= 2
	}
	d = min(max(d, 0), limit)
	if b.Jitter > 0 {
		d += rand.N(b.Jitter + 1)
	}
	return d
}

// Queue is a named set of items in Redis. It is safe for concurrent use and
// holds nothing itself: any number of them, in any number of processes, are
// the same queue.
type Queue struct {
	store
	cfg Config
}

// New returns the queue with a name, like "scrape_shop.example:JOB". It does no
// I/O. A name or config that cannot be used is reported by the first call.
func New(rdb redis.UniversalClient, name string, cfg Config) *Queue {
	if cfg.Namespace == "" {
		cfg.Namespace = "muster"
	}
	if cfg.MaxAttempts == 0 {
		cfg.MaxAttempts = 3
	}
	if cfg.Backoff == (Backoff{}) {
		cfg.Backoff = DefaultBackoff
	}
	if cfg.LeaseTTL == 0 {
		cfg.LeaseTTL = 10 * time.Minute
	}
	if cfg.MaxPayload == 0 {
		cfg.MaxPayload = 8 << 20
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	err := errors.Join(checkName("queue name", name), checkName("namespace", cfg.Namespace), cfg.check())
	return &Queue{store{rdb, name, newKeys(rdb, cfg.Namespace, name), err}, cfg}
}

func (c Config) check() error {
	switch {
	case c.MaxAttempts < 0:
		return fmt.Errorf("max attempts is %d; it must be at least 1", c.MaxAttempts)
	case c.LeaseTTL < time.Millisecond:
		return fmt.Errorf("lease TTL is %v; it must be at least 1ms", c.LeaseTTL)
	case c.Backoff.Base < 0 || c.Backoff.Jitter < 0 || c.Backoff.Max < 0:
		return fmt.Errorf("backoff %+v has a negative part", c.Backoff)
	case c.MaxItems < 0:
		return fmt.Errorf("max items is %d; it must be at least 0", c.MaxItems)
	case c.Keep < 0 || c.Keep > 0 && c.Keep < time.Millisecond:
		return fmt.Errorf("keep is %v; it must be 0 or at least 1ms", c.Keep)
	case c.MaxPayload < 0:
		return fmt.Errorf("max payload is %d; it must be above zero", c.MaxPayload)
	}
	return nil
}

func checkName(what, s string) error {
	if s == "" || len(s) > 512 || !utf8.ValidString(s) || strings.ContainsAny(s, "{}") ||
		strings.ContainsFunc(s, func(r rune) bool { return unicode.IsControl(r) || unicode.IsSpace(r) }) {
		return fmt.Errorf("%s %.80q must be 1 to 512 bytes of text without braces and spaces", what, s)
	}
	return nil
}

// Name returns the queue's name.
func (q *Queue) Name() string { return q.name }

// Get reads items. IDs that do not exist are left out.
func (q *Queue) Get(ctx context.Context, ids ...string) ([]Info, error) {
	var infos []Info
	for part := range slices.Chunk(ids, 200) {
		v, err := q.run(ctx, "read items", "get", anys(part)...)
		if err != nil {
			return nil, err
		}
		list, _ := v.([]any)
		now, redisNow := time.Now(), toInt(list[len(list)-1])
		for i, id := range part {
			at := list[7*i : 7*i+7]
			if toString(at[0]) == "" {
				continue
			}
			info, err := parseInfo(id, at, now)
			if err != nil {
				return nil, err
			}
			info.setTimes(at, redisNow, q.cfg.LeaseTTL)
			infos = append(infos, info)
		}
	}
	return infos, nil
}

// Peek returns an item without its note, its result and its times, or nil if it does not exist. Expires is by the clock of
// Redis. It is cheaper than Get.
func (q *Queue) Peek(ctx context.Context, id string) (*Info, error) {
	if q.err != nil {
		return nil, q.err
	}
	var spec, rec *redis.SliceCmd
	var lease *redis.FloatSliceCmd
	if _, err := q.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		spec, rec, lease = p.HMGet(ctx, q.keys.spec, id), p.HMGet(ctx, q.keys.rec, id), p.ZMScore(ctx, q.keys.leased, id)
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read an item of queue %s: %w", q.name, err)
	}
	record := toString(rec.Val()[0])
	if record == "" {
		return nil, nil
	}
	it, passed, err := parseSpec(id, toString(spec.Val()[0]))
	if err != nil {
		return nil, err
	}
	info := &Info{Item: it, Passed: passed, Expires: time.UnixMilli(int64(lease.Val()[0]))}
	return info, info.setRecord(record)
}

// Results returns the results of items, nil for items without one.
func (q *Queue) Results(ctx context.Context, ids ...string) ([][]byte, error) {
	if q.err != nil || len(ids) == 0 {
		return nil, q.err
	}
	values, err := q.rdb.HMGet(ctx, q.keys.result, ids...).Result()
	if err != nil {
		return nil, fmt.Errorf("read results of queue %s: %w", q.name, err)
	}
	results := make([][]byte, len(ids))
	for i, v := range values {
		if text, ok := v.(string); ok {
			results[i] = []byte(text)
		}
	}
	return results, nil
}

// Pause stops the leasing of items, in every process, until Resume. Items that
// are leased continue. It reports whether the queue was running.
func (q *Queue) Pause(ctx context.Context) (bool, error) { return setPaused(ctx, &q.store, 1) }

// Resume ends Pause. It reports whether the queue was paused.
func (q *Queue) Resume(ctx context.Context) (bool, error) { return setPaused(ctx, &q.store, 0) }

func setPaused(ctx context.Context, s *store, on int) (bool, error) {
	v, err := s.run(ctx, "pause or resume", "pause", on)
	if toInt(v) < 0 {
		err = fmt.Errorf("queue %s: %w", s.name, ErrNoQueue)
	}
	return toInt(v) == 1, err
}

// ErrNoQueue means that no item was ever added to a queue, or that the queue was deleted.
var ErrNoQueue = errors.New("no such queue: it has had no items, or was deleted")

// Expire makes Redis delete the whole queue after ttl. Call it when all items
// are terminal: a key that is written after that may outlive the rest.
func (q *Queue) Expire(ctx context.Context, ttl time.Duration) error {
	if q.err != nil {
		return q.err
	}
	_, err := q.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, k := range q.keys.all() {
			p.PExpire(ctx, k, ttl)
		}
		return nil
	})
	return wrap.Err(err, "expire queue %s", q.name)
}

// Delete removes the queue with all its items and outputs.
func (q *Queue) Delete(ctx context.Context) error {
	if q.err != nil {
		return q.err
	}
	return wrap.Err(q.rdb.Unlink(ctx, q.keys.all()...).Err(), "delete queue %s", q.name)
}

// ErrSealed means that a queue is sealed. Nothing was changed.
var ErrSealed = errors.New("the queue is sealed: it accepts and leases no items until it is unsealed")

// sealChunk is how many leases one script ends.
const sealChunk = 500

// Seal stops all work on the queue, in every process, until Unseal. A sealed queue leases no items, as if it was
// paused; Enqueue and Amend return ErrSealed; and all leases are lost: their items are queued again, in their old
// position, without an attempt counted. Items without a lease keep their states; Requeue still works.
//
// Seal takes effect at once, but queues the leased items again in chunks: after an error of Redis some may still be
// in progress, without a worker. Then call Seal again; sealing a sealed queue succeeds.
func (q *Queue) Seal(ctx context.Context) error { return seal(ctx, &q.store, 1) }

// Unseal ends Seal. Leases that were held before stay lost. Unsealing a queue
// that is not sealed changes nothing.
func (q *Queue) Unseal(ctx context.Context) error { return seal(ctx, &q.store, 0) }

func seal(ctx context.Context, s *store, on int) error {
	for {
		left, err := s.run(ctx, "seal or unseal", "seal", on, sealChunk)
		if err != nil || toInt(left) == 0 {
			return err
		}
	}
}

// ForgetEnded forgets the items, as [Queue.Forget] does, that have been in a terminal state for longer than age, and returns their
// number. It reads the whole queue: Config.Keep forgets items as they age.
func (q *Queue) ForgetEnded(ctx context.Context, age time.Duration) (n int, err error) {
	for cursor := ""; ; {
		items, next, err := q.Scan(ctx, cursor, maxScan)
		if err != nil {
			return n, err
		}
		var ids []string
		for i := range items {
			if it := &items[i]; it.State.Terminal() && time.Since(it.Updated) > age {
				ids = append(ids, it.ID)
			}
		}
		gone, err := q.Forget(ctx, ids...)
		if n += len(gone); err != nil || next == "" {
			return n, err
		}
		cursor = next
	}
}

// Forget removes items in a terminal state with their results, so that an item with the same ID can be added again.
// Their outputs are kept. It returns the IDs that are no longer in the queue, including unknown ones; open items are
// unchanged. It is for queues without an end.
func (q *Queue) Forget(ctx context.Context, ids ...string) (gone []string, err error) {
	for part := range slices.Chunk(ids, 500) {
		v, err := q.run(ctx, "forget items", "forget", anys(part)...)
		if err != nil {
			return gone, err
		}
		list, _ := v.([]any)
		for _, id := range list {
			gone = append(gone, toString(id))
		}
	}
	return gone, q.err
}
