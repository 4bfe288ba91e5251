package limit

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// BreakerConfig configures a Breaker.
type BreakerConfig struct {
	Namespace string        // prefix of all keys. Defaults to "muster".
	Threshold int           // consecutive failures that open the breaker. Defaults to 5.
	Cooldown  time.Duration // time until trials are allowed. Defaults to 60 s.
	// MaxCooldown limits the cooldown, which doubles with each failed trial. Defaults to Cooldown: it is constant.
	MaxCooldown time.Duration
	Trials      int           // concurrent requests in the half-open state. Defaults to 2.
	TrialTTL    time.Duration // timeout of a trial without a report. Defaults to 2 minutes.
	FailOpen    bool          // allow all requests while Redis is unreachable. Defaults to false.
	// Changed is called when a breaker opens or closes, in the process whose call of Success, Failure or Reset caused the
	// change. That call waits for it. Changed is not called when a failed trial reopens the breaker. Defaults to none.
	Changed func(context.Context, BreakerState)
	Logger  *slog.Logger // Defaults to slog.Default().
}

// A Breaker stops the requests to a key after repeated failures, across all processes:
//
//	closed ─ Threshold consecutive failures ▶ open ── cooldown ──▶ half_open
//	   ▲                                       ▲                      │
//	   │                                       └── a trial fails ─────┤
//	   └──────────────────── a trial succeeds ────────────────────────┘
//
// It is safe for concurrent use.
type Breaker struct {
	rdb  redis.UniversalClient
	cfg  BreakerConfig
	warn *warner
}

// NewBreaker returns a breaker for each key. It does no I/O.
func NewBreaker(rdb redis.UniversalClient, cfg BreakerConfig) *Breaker {
	if cfg.Namespace == "" {
		cfg.Namespace = "muster"
	}
	if cfg.Threshold <= 0 {
		cfg.Threshold = 5
	}
	if cfg.Cooldown <= 0 {
		cfg.Cooldown = time.Minute
	}
	cfg.MaxCooldown = max(cfg.MaxCooldown, cfg.Cooldown)
	if cfg.Trials <= 0 {
		cfg.Trials = 2
	}
	if cfg.TrialTTL <= 0 {
		cfg.TrialTTL = 2 * time.Minute
	}
	return &Breaker{rdb: rdb, cfg: cfg, warn: newWarner(cfg.Logger, "breaker")}
}

// A Permit allows one request. The caller reports the result once. Reports on the zero Permit do nothing.
type Permit struct {
	b             *Breaker
	key           string
	token         string // set for a trial
	trialsRunning bool   // see TrialsRunning
}

// Trial reports whether the request is a trial, whose result may close the breaker.
func (p Permit) Trial() bool { return p.token != "" }

// TrialsRunning reports whether the request was rejected because trials are running, which may close the breaker soon.
func (p Permit) TrialsRunning() bool { return p.trialsRunning }

// Allow reports whether a request to key is allowed. If not, it returns the time to wait before the next call. The
// empty key is always allowed.
func (b *Breaker) Allow(ctx context.Context, key string) (p Permit, ok bool, wait time.Duration, err error) {
	if key == "" {
		return Permit{}, true, 0, nil
	}
	token := rand.Text()
	v, err := scripts["allow"].Run(ctx, b.rdb, breakerKeys(b.cfg.Namespace, key),
		token, b.cfg.Cooldown.Milliseconds(), b.cfg.MaxCooldown.Milliseconds(), b.cfg.Trials, b.cfg.TrialTTL.Milliseconds()).Int64Slice()
	if err != nil {
		if b.cfg.FailOpen && ctx.Err() == nil {
			b.warn.open(err)
			return Permit{}, true, 0, nil
		}
		return Permit{}, false, 0, fmt.Errorf("check breaker of %s: %w", key, err)
	}
	switch v[0] {
	case 1:
		return Permit{b: b, key: key}, true, 0, nil
	case 2:
		return Permit{b: b, key: key, token: token}, true, 0, nil
	case 4: // the process that opened the breaker may have died before it listed the breaker
		if err := b.list(ctx, key, v[2]); err != nil {
			b.warn.open(err)
		}
	}
	return Permit{trialsRunning: v[0] == 3}, false, time.Duration(v[1]) * time.Millisecond, nil
}

// Success reports that the request succeeded.
func (p Permit) Success(ctx context.Context) error { return p.report(ctx, "success", "") }

// Failure reports that the request failed, with the type of block, such as "captcha".
func (p Permit) Failure(ctx context.Context, block string) error {
	return p.report(ctx, "failure", block)
}

// Cancel reports that the request was not made, or that its result says nothing about the key.
func (p Permit) Cancel(ctx context.Context) error { return p.report(ctx, "none", "") }

func (p Permit) report(ctx context.Context, outcome, block string) error {
	if p.b == nil {
		return nil
	}
	b := p.b
	v, err := scripts["report"].Run(ctx, b.rdb, breakerKeys(b.cfg.Namespace, p.key), p.token, outcome, b.cfg.Threshold, block,
		b.cfg.Cooldown.Milliseconds(), b.cfg.MaxCooldown.Milliseconds()).Slice()
	if err == nil {
		switch v[0] {
		case "opened":
			err = b.noteOpened(ctx, p.key, block, v)
		case "recovered":
			b.notifyChanged(ctx, BreakerState{Key: p.key, State: "closed"})
		}
	}
	if err != nil {
		if b.cfg.FailOpen && ctx.Err() == nil {
			b.warn.open(err)
			return nil
		}
		return fmt.Errorf("report to breaker of %s: %w", p.key, err)
	}
	return nil
}

// noteOpened logs an opened breaker and calls Changed, with the result of report.lua.
func (b *Breaker) noteOpened(ctx context.Context, key, block string, v []any) error {
	failed, _ := v[1].(int64)
	at, _ := v[2].(int64)
	until, _ := v[3].(int64)
	s := BreakerState{Key: key, State: "open", Failures: b.cfg.Threshold, OpenedAt: time.UnixMilli(at), Since: time.UnixMilli(at), Until: time.UnixMilli(until), LastBlock: block, Now: time.UnixMilli(at)}
	b.warn.log.Warn("breaker opened after repeated failures", "key", key, "block", block, "for", s.Until.Sub(s.OpenedAt))
	err := b.list(ctx, key, at)
	if failed == 0 {
		b.notifyChanged(ctx, s)
	}
	return err
}

// list adds a breaker that opened at a time in unix ms to the list of breakers.
func (b *Breaker) list(ctx context.Context, key string, at int64) error {
	return b.rdb.ZAdd(ctx, breakerIndex(b.cfg.Namespace), redis.Z{Score: float64(at), Member: key}).Err()
}

// notifyChanged calls BreakerConfig.Changed.
func (b *Breaker) notifyChanged(ctx context.Context, s BreakerState) {
	if b.cfg.Changed != nil {
		b.cfg.Changed(ctx, s)
	}
}

// BreakerState is the state of a breaker. Its times are from the clock of Redis; compare them with Now.
type BreakerState struct {
	Key       string    `json:"key"`
	State     string    `json:"state"` // closed, open or half_open
	Failures  int       `json:"failures"`
	OpenedAt  time.Time `json:"opened_at,omitzero"` // most recently
	Since     time.Time `json:"since,omitzero"`     // when it opened after being closed; failed trials do not change it
	Until     time.Time `json:"until,omitzero"`     // end of the cooldown
	LastBlock string    `json:"last_block,omitempty"`
	Allowed   int64     `json:"allowed"` // requests allowed since Since: the trials
	Blocked   int64     `json:"blocked"` // requests rejected since Since
	Now       time.Time `json:"-"`       // time of reading
}

// State returns the state of the breaker of a key. After its cooldown an open breaker is reported as half_open.
func (b *Breaker) State(ctx context.Context, key string) (BreakerState, error) {
	states, err := b.read(ctx, false, key)
	if err != nil {
		return BreakerState{Key: key}, fmt.Errorf("read breaker of %s: %w", key, err)
	}
	return states[0], nil
}

// States returns the breakers that are not closed, ordered by the time of opening. Their fields Until and State are
// computed with the cooldown of the process that opened the breaker, not with the cooldown of b.
func (b *Breaker) States(ctx context.Context) ([]BreakerState, error) {
	keys, err := b.rdb.ZRange(ctx, breakerIndex(b.cfg.Namespace), 0, -1).Result()
	if err != nil {
		return nil, fmt.Errorf("list breakers: %w", err)
	}
	var out []BreakerState
	var closed []any
	for part := range slices.Chunk(keys, 500) {
		states, err := b.read(ctx, true, part...)
		if err != nil {
			return out, fmt.Errorf("list breakers: %w", err)
		}
		for _, s := range states {
			if s.State == "closed" {
				closed = append(closed, s.Key)
			} else {
				out = append(out, s)
			}
		}
	}
	if len(closed) > 0 {
		if err := b.rdb.ZRem(ctx, breakerIndex(b.cfg.Namespace), closed...).Err(); err != nil {
			return out, fmt.Errorf("list breakers: %w", err)
		}
	}
	return out, nil
}

// read reads breakers in one round trip. With recorded it uses the recorded end of the cooldown, otherwise the
// configuration of b.
func (b *Breaker) read(ctx context.Context, recorded bool, keys ...string) ([]BreakerState, error) {
	var clock *redis.TimeCmd
	hashes := make([]*redis.MapStringStringCmd, len(keys))
	_, err := b.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		clock = p.Time(ctx)
		for i, key := range keys {
			hashes[i] = p.HGetAll(ctx, breakerKeys(b.cfg.Namespace, key)[0])
		}
		return nil
	})
	if err != nil && !redis.HasErrorPrefix(err, "WRONGTYPE") {
		return nil, err
	}
	out := make([]BreakerState, len(keys))
	for i, key := range keys {
		h, err := hashes[i].Result()
		if err != nil && !(recorded && redis.HasErrorPrefix(err, "WRONGTYPE")) { // skip a damaged key when listing
			return nil, err
		}
		s := BreakerState{Key: key, State: "closed", LastBlock: h["last_block"], Now: clock.Val()}
		s.Failures, _ = strconv.Atoi(h["failures"])
		if h["state"] == "open" || h["state"] == "half_open" {
			s.State = h["state"]
			ms, _ := strconv.ParseInt(h["opened_at"], 10, 64)
			s.OpenedAt = time.UnixMilli(ms)
			since, _ := strconv.ParseInt(cmp.Or(h["since"], h["opened_at"]), 10, 64)
			s.Since = time.UnixMilli(since)
			failed, _ := strconv.Atoi(h["trials_failed"])
			s.Until = s.OpenedAt.Add(b.cooldown(failed))
			if ms, err := strconv.ParseInt(h["until"], 10, 64); err == nil && recorded {
				s.Until = time.UnixMilli(ms)
			}
			s.Allowed, _ = strconv.ParseInt(h["allowed"], 10, 64)
			s.Blocked, _ = strconv.ParseInt(h["blocked"], 10, 64)
			if s.State == "open" && !clock.Val().Before(s.Until) {
				s.State = "half_open"
			}
		}
		out[i] = s
	}
	return out, nil
}

// cooldown returns the cooldown after a number of failed trials, like allow.lua.
func (b *Breaker) cooldown(failed int) time.Duration {
	d := b.cfg.Cooldown
	for ; failed > 0 && d < b.cfg.MaxCooldown; failed-- {
		d *= 2
	}
	return min(d, b.cfg.MaxCooldown)
}

// Reset closes breakers and deletes their failures.
func (b *Breaker) Reset(ctx context.Context, keys ...string) error {
	var errs []error
	for _, k := range keys {
		before, err := b.State(ctx, k)
		if err == nil || redis.HasErrorPrefix(err, "WRONGTYPE") {
			err = b.rdb.Del(ctx, breakerKeys(b.cfg.Namespace, k)...).Err()
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("reset breaker of %s: %w", k, err))
		} else if before.State != "closed" {
			b.notifyChanged(ctx, BreakerState{Key: k, State: "closed"})
		}
	}
	return errors.Join(errs...)
}
