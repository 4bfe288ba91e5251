package workqueue

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// dispatcher leases items into the buffer of a pool, during one Run.
type dispatcher struct {
	p      *Pool
	held   *held
	buffer chan *job // only the dispatcher sends, and closes it when it has ended
	empty  int       // looks in a row that found no open item
	errs   int       // leases in a row that failed
}

// run leases until ctx ends or, with Drain, no item is open. It returns an
// error if this program must not use the queue.
func (d *dispatcher) run(ctx context.Context, woken <-chan *redis.Message) error {
	workers := d.p.cfg.Workers
	strays := time.NewTicker(d.p.cfg.Heartbeat)
	defer strays.Stop()
	for ctx.Err() == nil {
		select {
		case <-strays.C:
			d.returnStrays(ctx)
		default:
		}
		room := min(cap(d.buffer)-len(d.buffer), 3*workers-d.held.len())
		// A lease of a few costs hardly more than of one: wait until there is room for a few.
		if room <= 0 || len(d.buffer) >= workers {
			select {
			case <-ctx.Done():
			case <-d.held.freed:
			case <-strays.C:
				d.returnStrays(ctx)
			}
			continue
		}
		pause, err := d.lease(ctx, room)
		if err != nil {
			return err
		}
		if pause < 0 {
			return nil
		}
		if pause == 0 {
			continue
		}
		t := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-t.C:
		case <-d.held.freed:
		case <-woken:
		}
		t.Stop()
	}
	return nil
}

// lease leases up to n items and returns how long to wait before the next
// lease; below 0 if the queue is drained.
func (d *dispatcher) lease(ctx context.Context, n int) (pause time.Duration, err error) {
	p := d.p
	budget, change := d.held.budget()
	// ctx must not interrupt it: if the reply is not read, nothing processes the leased items.
	whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	got, err := p.q.LeaseWithin(whole, p.cfg.Name, n, budget)
	cancel()
	if errors.Is(err, ErrNewer) {
		return 0, err
	}
	if err != nil {
		d.errs++
		p.cfg.Logger.WarnContext(ctx, "cannot lease; trying again", "queue", p.q.name, "err", err)
		return min(time.Second, time.Duration(d.errs)*100*time.Millisecond), nil
	}
	d.errs = 0
	for _, it := range got.Items {
		j := &job{Leased: it}
		d.held.add(j)
		d.buffer <- j // there is room: only the dispatcher sends
	}
	if len(got.Items) > 0 {
		d.empty = 0
		return 0, nil
	}
	pause = time.Second // the longest between two leases
	if got.Next >= 0 {
		pause = min(pause, max(got.Next, time.Millisecond))
	}
	if got.PassedOver {
		pause = min(pause, max(time.Until(change), time.Millisecond))
	}
	if !p.cfg.Drain || got.PassedOver || d.held.len() > 0 {
		return pause, nil
	}
	if s, err := p.q.Stats(ctx); err != nil || s.Open() > 0 {
		d.empty = 0
		return pause, nil
	}
	// Twice, because an item may be in flight from elsewhere.
	if d.empty++; d.empty == 2 {
		return -1, nil
	}
	return 10 * time.Millisecond, nil
}

// returnStrays returns the items of a lease whose reply was lost: the client repeats a command automatically when a
// connection breaks. Only the dispatcher leases, so no lease is in flight meanwhile.
func (d *dispatcher) returnStrays(ctx context.Context) {
	n, err := d.p.q.ReturnStrays(ctx, d.p.cfg.Name, d.held.known()...)
	if err == nil && n > 0 {
		d.p.cfg.Logger.InfoContext(ctx, "returned items of a lease whose reply was lost", "queue", d.p.q.name, "items", n)
	}
}

// returnBuffered returns the items that wait in the buffer.
func (d *dispatcher) returnBuffered(ctx context.Context) {
	var leases []Leased
	var jobs []*job
	for {
		select {
		case j := <-d.buffer:
			leases, jobs = append(leases, j.Leased), append(jobs, j)
			continue
		default:
		}
		break
	}
	if len(jobs) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, d.p.cfg.Grace+time.Second)
	defer cancel()
	if err := d.p.q.Return(ctx, leases...); err != nil {
		d.p.cfg.Logger.WarnContext(ctx, "cannot return items; their leases will expire", "queue", d.p.q.name, "items", len(leases), "err", err)
	}
	d.p.counts.returned.Add(int64(len(leases)))
	for _, j := range jobs {
		d.held.remove(j)
	}
}
