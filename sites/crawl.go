package sites

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"muster/sites/internal/store"
	"muster/tasks/workqueue"
)

const (
	// slice is how long a crawler keeps its slot of a worker. Then the engine gives slots to workflows in turn, and a worker
	// that stops begins no more pages.
	slice = 700 * time.Millisecond
	// leastWindow is how many pages a crawler may have in flight, if its site allows as many: one crawler suffices for most
	// sites. More crawlers share a site with more pages in flight between processes.
	leastWindow = 8
	// idleFor is how long a crawler waits while the other crawlers of its job have all pages that are ready.
	idleFor = 250 * time.Millisecond
	// maxSleep is the longest wait during which a crawler keeps its slot.
	maxSleep = 100 * time.Millisecond
	// backlogEvery is how often a crawler counts the records that wait to be written.
	backlogEvery = 200 * time.Millisecond
)

// crawl fetches pages of the job until none is left, or a limit of the job is reached. It returns how many it has settled,
// and an error of type later if it must be called again. All of its leases have ended when it returns.
func (c *crawler) crawl(ctx context.Context, worker string, me store.Crawler) (settled int, err error) {
	if err := c.leases.returnPending(ctx); err != nil {
		return 0, err
	}
	// An earlier run under this name has ended; take over its leases.
	if _, err := c.queue.ExpireWorker(ctx, worker); err != nil {
		return 0, fmt.Errorf("take over pages: %w", err)
	}
	most := c.def.Politeness.MaxPerDomain
	window := min(most, max(leastWindow, (most+me.Of-1)/max(me.Of, 1)))
	s := &slot{
		crawler: c, worker: worker, window: window, ahead: min(window, leastWindow), room: window,
		more: true, check: true, events: make(chan event), ends: time.Now().Add(slice),
	}
	err = s.run(ctx)
	return s.settled, err
}

// slot is a crawler that occupies a slot of a worker. Only its run method uses the fields; pages are fetched and settled in
// goroutines that report events.
//
// The leases of all crawlers of a job are at most MaxPerDomain, and a few that are held ahead so that no page waits for
// Redis while another could be fetched. A page is in flight until its response has been read; then it is extracted and settled.
type slot struct {
	*crawler
	worker string
	window int // most pages in flight
	ahead  int // leases that are held beyond those in flight
	room   int // how many pages the other crawlers leave to this one

	leased   []workqueue.Leased // not begun
	inFlight int
	settling []string // IDs of pages that are extracted or settled
	settled  int
	more     bool      // other pages may be ready
	due      time.Time // when that is so again; zero: not known
	looked   time.Time // when the backlog was counted
	check    bool      // a limit may have been reached
	events   chan event
	ends     time.Time

	stopped bool
	reason  error // why it has stopped; nil: no page is left, or a limit is reached
}

// event reports that a page is no longer in flight, or that it is settled.
type event struct {
	page    string
	settled bool
	err     error
}

// stop begins no more pages, and returns the leases of pages that have not begun.
func (s *slot) stop(ctx context.Context, reason error) {
	if s.stopped {
		return
	}
	s.stopped, s.reason = true, reason
	if err := s.leases.giveBack(ctx, s.leased...); err != nil && s.reason == nil {
		s.reason = err
	}
	s.leased = nil
}

func (s *slot) run(ctx context.Context) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		s.checkEnd(ctx)
		if err := s.lease(ctx); err != nil {
			s.stop(ctx, err)
		}
		for !s.stopped && len(s.leased) > 0 && s.inFlight < min(s.room, s.window) && len(s.settling) < s.window {
			s.begin(ctx)
		}
		if s.inFlight+len(s.settling) == 0 {
			if s.stopped {
				return s.reason
			}
			if !s.more && len(s.leased) == 0 {
				wait, ok := s.idle()
				if !ok || wait > maxSleep {
					s.stop(ctx, nil)
					if ok {
						s.reason = later{wait}
					}
					continue
				}
			}
		}
		wake := s.ends
		if !s.due.IsZero() && s.due.Before(wake) {
			wake = s.due
		}
		timer.Reset(max(time.Until(wake), time.Millisecond))
		done := ctx.Done()
		if s.stopped { // only pages in flight are waited for
			done = nil
			timer.Stop()
		}
		select {
		case e := <-s.events:
			s.note(ctx, e)
		case <-timer.C:
			s.more = s.more || !s.due.IsZero() && !time.Now().Before(s.due)
		case <-done:
		}
	}
}

// checkEnd stops when ctx has ended, the slice is over, or a limit of the job is reached.
func (s *slot) checkEnd(ctx context.Context) {
	switch {
	case s.stopped:
		return
	case ctx.Err() != nil:
		s.stop(ctx, context.Cause(ctx))
		return
	case !time.Now().Before(s.ends):
		s.stop(ctx, later{})
		return
	}
	if !s.check {
		return
	}
	s.check = false
	if reached, err := s.admission.reached(ctx); err != nil || len(reached) > 0 {
		s.stop(ctx, err)
	}
}

// note counts an event.
func (s *slot) note(ctx context.Context, e event) {
	if !e.settled {
		s.inFlight--
		s.settling = append(s.settling, e.page)
		return
	}
	s.settling = slices.DeleteFunc(s.settling, func(id string) bool { return id == e.page })
	s.settled++
	s.more, s.check = true, true // it may have led to others, and to a limit
	if e.err != nil {
		s.stop(ctx, e.err)
	}
}

// begin fetches and settles a leased page.
func (s *slot) begin(ctx context.Context) {
	lease := s.leased[0]
	s.leased = s.leased[1:]
	s.inFlight++
	go func() {
		landed := sync.OnceFunc(func() { s.events <- event{page: lease.ID} })
		f := s.visit(ctx, lease, landed)
		landed() // it is received before the lease may end: see lease
		s.events <- event{page: lease.ID, settled: true, err: s.conclude(ctx, lease, f)}
	}()
}

// lease leases ready pages if it has few.
func (s *slot) lease(ctx context.Context) error {
	want := s.window + s.ahead - s.inFlight - len(s.leased)
	if s.stopped || !s.more || 2*len(s.leased) > s.ahead || want <= 0 {
		return nil
	}
	if time.Since(s.looked) > backlogEvery || s.admission.heavy.Load() {
		s.looked = time.Now()
		if d, err := s.admission.backlog(ctx); err != nil || d.action != admit {
			s.stop(ctx, nil)
			s.reason = s.delayed(d)
			return err
		}
	}
	got, err := s.queue.LeaseWithin(ctx, s.worker, want, workqueue.Budget{
		Default: -1, MaxInProgress: s.def.Politeness.MaxPerDomain, Ahead: s.ahead, Held: s.inFlight + len(s.leased), Ending: s.settling,
	})
	if err != nil {
		return fmt.Errorf("lease pages: %w", err)
	}
	s.leased = append(s.leased, got.Items...)
	s.room, s.more, s.due = got.Room, len(got.Items) == want, time.Time{}
	switch {
	case got.Paused:
		s.due = time.Now().Add(time.Second)
	case got.Next >= 0:
		s.due = time.Now().Add(got.Next)
	}
	return nil
}

// idle returns how long to wait when no page is ready; ok is false if none will be.
func (s *slot) idle() (wait time.Duration, ok bool) {
	if s.due.IsZero() {
		return 0, false
	}
	wait = max(min(time.Until(s.due), s.admission.left()), time.Millisecond)
	if s.room < s.def.Politeness.MaxPerDomain { // the pages that others fetch may lead to more
		wait = min(wait, idleFor)
	}
	return wait, true
}
