package workqueue

import (
	"context"
	"errors"
	"slices"
	"time"
)

// settler stores the outcomes of the jobs of a pool, during one Run.
type settler struct {
	p    *Pool
	held *held
	jobs chan finished // closed when all workers have ended
	over chan struct{} // closed when outcomes are not worth further tries
}

func newSettler(p *Pool, h *held) *settler {
	return &settler{p, h, make(chan finished, 2*p.cfg.Workers), make(chan struct{})}
}

// run stores outcomes until jobs is closed; simultaneous outcomes are one batch.
func (s *settler) run(ctx context.Context) {
	for first := range s.jobs {
		batch := s.more(first)
		var ended []finished
		for _, f := range batch {
			if f.err != nil {
				s.fail(ctx, f)
			} else {
				ended = append(ended, f)
			}
		}
		s.settle(ctx, ended)
		for _, f := range batch {
			s.held.remove(f.job)
		}
	}
}

// more returns a job with the jobs that have finished by now, 100 at most.
func (s *settler) more(first finished) []finished {
	batch := []finished{first}
	for len(batch) < 100 {
		select {
		case f, ok := <-s.jobs:
			if !ok {
				return batch
			}
			batch = append(batch, f)
		default:
			return batch
		}
	}
	return batch
}

// settle settles items, again and again while Redis is away.
func (s *settler) settle(ctx context.Context, ended []finished) {
	p := s.p
	for try := 0; len(ended) > 0; try++ {
		settlements := make([]Settlement, len(ended))
		for i, f := range ended {
			settlements[i] = Settlement{f.Leased, f.outcome}
		}
		var left []finished
		var last error
		for i, err := range p.q.SettleAll(ctx, settlements...) {
			f := ended[i]
			switch {
			case err == nil:
				p.counts.countEnd(f.outcome.State)
			case errors.Is(err, ErrLeaseLost):
				p.countLost(f.Leased)
			case f.outcome.check(f.ID, p.q.cfg.MaxPayload) != nil:
				// It can never be stored: the handler has failed.
				s.fail(ctx, finished{f.job, Outcome{}, Permanent(err)})
			default:
				left, last = append(left, f), err
			}
		}
		if ended = left; len(ended) > 0 && !s.pause(ctx, try, last) {
			for _, f := range ended {
				s.held.letExpire(f.job, p.q.cfg.LeaseTTL)
			}
			return
		}
	}
}

// fail gives up the lease of an item whose run failed.
func (s *settler) fail(ctx context.Context, f finished) {
	p := s.p
	v := judge(f.err)
	passed := v.held != "" && s.held.holdBack(v.held, v.hold)
	// An item that would not be passed over has to wait by itself.
	v.back = v.back && passed && slices.Contains(f.ResourceKeys, v.held) || errors.Is(f.err, errStopping)
	if !v.back && errors.Is(f.err, ErrLeaseLost) {
		p.countLost(f.Leased)
		return
	}
	for try := 0; ; try++ {
		err := s.giveUp(ctx, f.Leased, v)
		if err == nil {
			return
		}
		if errors.Is(err, ErrLeaseLost) {
			p.countLost(f.Leased)
			return
		}
		if !s.pause(ctx, try, err) {
			if !v.back {
				s.held.letExpire(f.job, p.q.cfg.LeaseTTL)
			}
			return
		}
	}
}

// giveUp stores the outcome of a verdict, without retries.
func (s *settler) giveUp(ctx context.Context, l Leased, v verdict) error {
	p := s.p
	state, err := StateError, error(nil)
	switch {
	case v.back:
		if err = p.q.Return(ctx, l); err == nil {
			p.counts.returned.Add(1)
		}
		return err
	case v.permanent:
		err = p.q.Settle(ctx, l, Failed(v.error))
	default:
		state, err = p.q.Retry(ctx, l, v.error, v.after, !v.free)
	}
	if err == nil {
		p.counts.countEnd(state)
	}
	return err
}

// pause waits before the next try to store outcomes. It returns false when
// further tries are of no use: the leases have expired, or the pool stops.
func (s *settler) pause(ctx context.Context, try int, err error) bool {
	p := s.p
	if try >= 20 {
		p.cfg.Logger.ErrorContext(ctx, "cannot store how items ended; their leases will expire", "queue", p.q.name, "err", err)
		return false
	}
	p.cfg.Logger.WarnContext(ctx, "cannot store how items ended; trying again", "queue", p.q.name, "err", err)
	t := time.NewTimer(min(time.Second, time.Duration(try+1)*50*time.Millisecond))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-s.over:
		return false
	case <-ctx.Done():
		return false
	}
}
