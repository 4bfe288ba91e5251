package outbox

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"muster/internal/clip"
	"muster/internal/wrap"
	"muster/tasks"
)

// Config is the configuration of a [Relay].
type Config struct {
	DB      *sql.DB
	Dialect Dialect
	Client  *tasks.Client
	// Batch is how many rows are claimed and sent at once, at most 1,000. Defaults to 200.
	Batch int
	// Poll is the interval at which the relay looks for rows, at least a millisecond. Defaults to one second. See [Relay.Wake].
	Poll time.Duration
	// Claim is how long rows belong to the relay that claimed them: if it was killed, others send them afterwards. It is at least one
	// second. Defaults to 30 s.
	Claim time.Duration
	// Logger gets the first error of an outage of the database or Redis, its end, and refused rows. Defaults to slog.Default().
	Logger *slog.Logger
}

// Relay sends the rows of an outbox.
type Relay struct {
	cfg  Config
	sql  *dialect
	wake chan struct{}

	// Results of sends that the database does not have yet: sequence numbers of rows.
	sent    []int64
	refused map[int64]error
	failed  []int64

	blocked bool // the last batch was not sent completely
}

// The pauses between attempts during an outage: they double from the first to the last.
const (
	minPause = 100 * time.Millisecond
	maxPause = 10 * time.Second
)

const (
	storeTime = 15 * time.Second // limits a transaction of the relay
	maxError  = 2000             // bytes of a stored error
)

// NewRelay returns a relay, which sends while [Relay.Run] runs.
func NewRelay(cfg Config) (*Relay, error) {
	cfg.Batch, cfg.Poll, cfg.Claim = cmp.Or(cfg.Batch, 200), cmp.Or(cfg.Poll, time.Second), cmp.Or(cfg.Claim, 30*time.Second)
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	switch {
	case cfg.DB == nil, cfg.Client == nil, dialects[cfg.Dialect] == nil:
		return nil, fmt.Errorf("outbox: give DB, Client and a known Dialect, not %q", cfg.Dialect)
	case cfg.Batch < 1 || cfg.Batch > 1000 || cfg.Poll < time.Millisecond || cfg.Claim < time.Second:
		return nil, fmt.Errorf("outbox: Batch %d, Poll %s or Claim %s is out of range", cfg.Batch, cfg.Poll, cfg.Claim)
	}
	return &Relay{cfg: cfg, sql: dialects[cfg.Dialect], wake: make(chan struct{}, 1), refused: map[int64]error{}}, nil
}

// Wake makes the relay look for rows now. Call it after a commit, so that the rows do not wait for Poll. It does not block.
func (r *Relay) Wake() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Run sends rows until ctx ends. Then it finishes the batch that it has claimed, and returns nil. During an outage of the database or Redis it
// retries, at least every ten seconds. Run it once at a time.
func (r *Relay) Run(ctx context.Context) error {
	pause, failing := minPause, false
	for {
		n, err := r.round(ctx)
		wait, wake := r.cfg.Poll, r.wake
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			if !failing {
				r.cfg.Logger.WarnContext(ctx, "outbox relay retries", "error", err)
			}
			wait, wake, failing = pause/2+rand.N(pause/2), nil, true
			pause = min(2*pause, maxPause)
		default:
			if failing {
				r.cfg.Logger.InfoContext(ctx, "outbox relay works again")
			}
			pause, failing = minPause, false
			if n == r.cfg.Batch {
				wait = 0
			}
		}
		select {
		case <-ctx.Done():
		case <-wake:
		case <-time.After(wait):
		}
	}
}

// round claims rows, sends them and stores the results. It returns the number of rows.
func (r *Relay) round(ctx context.Context) (int, error) {
	if err := r.settle(ctx); err != nil { // of an earlier round
		return 0, err
	}
	if r.blocked { // do not claim in vain
		if err := r.cfg.Client.Writable(ctx); err != nil {
			return 0, err
		}
		r.blocked = false
	}
	seqs, works, err := r.claim(ctx)
	if err != nil {
		return 0, wrap.Err(err, "claim outbox rows")
	}
	var sends []tasks.Sending
	var sending []int64
	for i, work := range works {
		var s tasks.Sending
		raw, err := base64.StdEncoding.DecodeString(work)
		if err == nil {
			err = s.UnmarshalJSON(raw)
		}
		if err != nil {
			r.refused[seqs[i]] = err
			continue
		}
		sends, sending = append(sends, s), append(sending, seqs[i])
	}
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.cfg.Claim/2)
	defer cancel()
	results, _ := r.cfg.Client.SendMany(limited, sends)
	for i, result := range results {
		switch seq := sending[i]; {
		case result.Err == nil, errors.Is(result.Err, tasks.ErrDuplicate):
			r.sent = append(r.sent, seq)
		case errors.Is(result.Err, tasks.ErrInvalid):
			r.refused[seq] = result.Err
		default:
			r.failed, r.blocked, err = append(r.failed, seq), true, result.Err
		}
	}
	if len(r.sent) > 0 {
		r.failed = nil // Redis accepts other rows: retry these when their claim has expired
	}
	return len(seqs), cmp.Or(r.settle(ctx), err)
}

// claim claims rows for this relay, and returns their sequence numbers and works.
func (r *Relay) claim(ctx context.Context) (seqs []int64, works []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	tx, err := r.cfg.DB.BeginTx(ctx, &sql.TxOptions{Isolation: r.sql.isolation})
	if err != nil {
		return nil, nil, err
	}
	defer tx.Rollback() //nolint:errcheck // after a commit there is nothing to roll back
	if r.sql.begin != "" {
		if _, err := tx.ExecContext(ctx, r.sql.begin); err != nil {
			return nil, nil, err
		}
	}
	query := fmt.Sprintf("SELECT seq, work FROM muster_outbox WHERE refused_at = 0 AND claimed_until <= %s ORDER BY seq LIMIT %d%s", r.sql.now, r.cfg.Batch, r.sql.lock)
	err = each(ctx, tx, query, func(rows *sql.Rows) error {
		seqs, works = append(seqs, 0), append(works, "")
		return rows.Scan(&seqs[len(seqs)-1], &works[len(works)-1])
	})
	if err != nil || len(seqs) == 0 {
		return nil, nil, err
	}
	until := fmt.Sprintf("UPDATE muster_outbox SET claimed_until = %s + %d", r.sql.now, r.cfg.Claim.Milliseconds())
	if _, err := tx.ExecContext(ctx, until+where(seqs...)); err != nil {
		return nil, nil, err
	}
	return seqs, works, tx.Commit()
}

// where returns the condition of a statement for rows.
func where(seqs ...int64) string {
	list := make([]string, len(seqs))
	for i, seq := range seqs {
		list[i] = strconv.FormatInt(seq, 10)
	}
	return " WHERE seq IN (" + strings.Join(list, ",") + ")"
}

// settle stores the results of sends, also after the end of ctx. After an error the next call continues.
func (r *Relay) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTime)
	defer cancel()
	change := func(statement string, args ...any) error {
		_, err := r.cfg.DB.ExecContext(ctx, statement, args...)
		return wrap.Err(err, "settle outbox rows")
	}
	for _, c := range []struct {
		rows      *[]int64
		statement string
	}{{&r.sent, "DELETE FROM muster_outbox"}, {&r.failed, "UPDATE muster_outbox SET claimed_until = 0"}} {
		if len(*c.rows) > 0 {
			if err := change(c.statement + where(*c.rows...)); err != nil {
				return err
			}
			*c.rows = nil
		}
	}
	for seq, reason := range r.refused {
		text := strings.ToValidUTF8(clip.Bytes(strings.ReplaceAll(reason.Error(), "\x00", ""), maxError), "")
		if err := change("UPDATE muster_outbox SET claimed_until = 0, refused_at = "+r.sql.now+", error = "+r.sql.mark+where(seq), text); err != nil {
			return err
		}
		r.cfg.Logger.ErrorContext(ctx, "outbox row was refused", "seq", seq, "error", text)
		delete(r.refused, seq)
	}
	return nil
}
