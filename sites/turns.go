package sites

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/sites/internal/store"
)

// turns sees that jobs share the slots of the workers: a job that holds more
// than one gives one back while another that could go on has none. It is for
// all processes; what it knows of one that died is forgotten after a while.
type turns struct{ rdb redis.UniversalClient }

const (
	turn        = 5 * time.Second        // how long a chunk holds its slot before it stands in line again
	collectTurn = time.Minute            // the same of the walk over the listing pages, which begins anew then
	turnLook    = time.Second            // how often a task looks whether others wait
	turnAway    = 300 * time.Millisecond // how long a task keeps away that leaves its slot to others
	turnLost    = 10 * time.Minute       // what was not heard of for so long is gone
	turnBlink   = 50 * time.Millisecond  // between two tasks of a job it has no slot, and wants none of others
)

// want notes that a job could go on in a while.
func (t turns) want(ctx context.Context, run string, in time.Duration) error {
	at := float64(time.Now().Add(in).UnixMilli())
	if err := t.rdb.ZAdd(ctx, store.WaitingJobsKey, redis.Z{Score: at, Member: run}).Err(); err != nil {
		return fmt.Errorf("line up job %s: %w", run, err)
	}
	return nil
}

// drop forgets a job that wants no slot any more.
func (t turns) drop(ctx context.Context, run string) error {
	if err := t.rdb.ZRem(ctx, store.WaitingJobsKey, run).Err(); err != nil {
		return fmt.Errorf("let job %s out of the line: %w", run, err)
	}
	return nil
}

// leave notes that a task has given its slot back, and that its job could go
// on in a while.
func (t turns) leave(ctx context.Context, run, task string, in time.Duration) error {
	pipe := t.rdb.Pipeline()
	pipe.ZRem(ctx, store.SlotsKey, run+" "+task)
	pipe.ZAdd(ctx, store.WaitingJobsKey, redis.Z{Score: float64(time.Now().Add(in).UnixMilli()), Member: run})
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("leave the slot of job %s: %w", run, err)
	}
	return nil
}

// hold notes that a task of a job holds a slot. It tells how many the job has,
// and whether another that could go on has none.
func (t turns) hold(ctx context.Context, run, task string) (mine int, others bool, err error) {
	now := time.Now()
	ago := func(d time.Duration) string { return strconv.FormatInt(now.Add(-d).UnixMilli(), 10) }
	pipe := t.rdb.Pipeline()
	pipe.ZAdd(ctx, store.SlotsKey, redis.Z{Score: float64(now.UnixMilli()), Member: run + " " + task})
	pipe.ZRemRangeByScore(ctx, store.SlotsKey, "-inf", ago(turnLost))
	pipe.ZRemRangeByScore(ctx, store.WaitingJobsKey, "-inf", ago(turnLost))
	held := pipe.ZRange(ctx, store.SlotsKey, 0, -1)
	wants := pipe.ZRangeByScore(ctx, store.WaitingJobsKey, &redis.ZRangeBy{Min: "-inf", Max: ago(turnBlink)})
	if _, err := pipe.Exec(ctx); err != nil {
		return 0, false, fmt.Errorf("look who waits for a slot: %w", err)
	}
	slots := map[string]int{}
	for _, h := range held.Val() {
		of, _, _ := strings.Cut(h, " ")
		slots[of]++
	}
	for _, other := range wants.Val() {
		others = others || slots[other] == 0
	}
	return slots[run], others, nil
}

// slot is the hold of a task on its slot.
type slot struct {
	turns     turns
	run, task string
	most      time.Duration // how long it is held
	dear      bool          // to begin anew: it is held for longer when no other waits
	began     time.Time
	begun     bool // its turn counts from something new on
	looked    time.Time
}

type slotKey struct{}

// in calls fn, which asks look whether to go on, and tells what came of it.
func (s *slot) in(ctx context.Context, log *slog.Logger, fn func(context.Context) error) error {
	s.began = time.Now()
	err := s.look(ctx)
	if err == nil {
		err = fn(context.WithValue(ctx, slotKey{}, s))
	}
	var wait later
	errors.As(err, &wait)
	if lerr := s.turns.leave(context.WithoutCancel(ctx), s.run, s.task, wait.after); lerr != nil {
		log.Warn("others may wait longer for a slot", "error", lerr)
	}
	return err
}

// beginTurn has the turn of a task begin now, the first time: what it did
// before was to come again to where it had been, and alone brings it no further.
func beginTurn(ctx context.Context) {
	if s, ok := ctx.Value(slotKey{}).(*slot); ok && !s.begun {
		s.began, s.begun = time.Now(), true
	}
}

// look returns later when the task should leave its slot to others. Without a
// slot to hold it returns nil.
func look(ctx context.Context) error {
	s, ok := ctx.Value(slotKey{}).(*slot)
	if !ok {
		return nil
	}
	return s.look(ctx)
}

func (s *slot) look(ctx context.Context) error {
	if time.Since(s.looked) < turnLook {
		return nil
	}
	s.looked = time.Now()
	mine, others, err := s.turns.hold(ctx, s.run, s.task)
	switch {
	case err != nil:
		return err
	case others && mine > 1:
		return later{turnAway}
	case time.Since(s.began) >= s.most && (others || !s.dear):
		return later{}
	}
	return nil
}
