package crawl

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"muster/sites/internal/store"
	"muster/tasks"
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

// slot is a crawler that occupies a slot of a worker. Only its run method uses the fields; pages are leased, fetched and
// settled in goroutines that report events.
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
	inFlight []string           // IDs of pages
	settling []string           // IDs of pages that are extracted or settled
	leasing  bool
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

// event reports that a page is no longer in flight, that it is settled, or which pages were leased.
type event struct {
	page    string
	settled bool
	leased  *workqueue.Batch
	wanted  int // with leased: how many pages
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
		s.lease(ctx)
		for !s.stopped && len(s.leased) > 0 && len(s.inFlight) < min(s.room, s.window) && len(s.settling) < s.window {
			s.begin(ctx)
		}
		if len(s.inFlight)+len(s.settling) == 0 && !s.leasing {
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
	isPage := func(id string) bool { return id == e.page }
	switch {
	case e.leased != nil:
		s.noteLeased(ctx, e)
	case e.settled:
		s.settling = slices.DeleteFunc(s.settling, isPage)
		s.settled++
		s.more, s.check = true, true // it may have led to others, and to a limit
	default:
		s.inFlight = slices.DeleteFunc(s.inFlight, isPage)
		s.settling = append(s.settling, e.page)
	}
	if e.err != nil {
		s.stop(ctx, e.err)
	}
}

// noteLeased takes over leased pages, or returns them after stop.
func (s *slot) noteLeased(ctx context.Context, e event) {
	s.leasing = false
	if s.stopped {
		if err := s.leases.giveBack(ctx, e.leased.Items...); err != nil && s.reason == nil {
			s.reason = err
		}
		return
	}
	s.leased = append(s.leased, e.leased.Items...)
	s.room, s.due = e.leased.Room, time.Time{}
	s.more = s.more || len(e.leased.Items) == e.wanted
	switch {
	case e.leased.Paused:
		s.due = time.Now().Add(time.Second)
	case e.leased.Next >= 0:
		s.due = time.Now().Add(e.leased.Next)
	}
}

// begin fetches and settles a leased page.
func (s *slot) begin(ctx context.Context) {
	lease := s.leased[0]
	s.leased = s.leased[1:]
	s.inFlight = append(s.inFlight, lease.ID)
	go func() {
		landed := sync.OnceFunc(func() { s.events <- event{page: lease.ID} })
		f := s.visit(ctx, lease, landed)
		landed()
		s.events <- event{page: lease.ID, settled: true, err: s.conclude(ctx, lease, f)}
	}()
}

// lease begins to lease ready pages if there are few. Pages in flight and settling may end meanwhile.
func (s *slot) lease(ctx context.Context) {
	want := s.window + s.ahead - len(s.inFlight) - len(s.leased)
	if s.stopped || s.leasing || !s.more || 2*len(s.leased) > s.ahead || want <= 0 {
		return
	}
	s.leasing, s.more = true, false
	count := time.Since(s.looked) > backlogEvery || s.admission.heavy.Load()
	if count {
		s.looked = time.Now()
	}
	budget := workqueue.Budget{Default: -1, MaxInProgress: s.def.Politeness.MaxPerDomain, Ahead: s.ahead, Own: slices.Concat(s.inFlight, s.settling)}
	for _, l := range s.leased {
		budget.Own = append(budget.Own, l.ID)
	}
	go func() {
		e := event{leased: &workqueue.Batch{Next: -1}, wanted: want}
		if count {
			d, err := s.admission.backlog(ctx)
			e.err = errors.Join(err, s.delayed(d))
		}
		if e.err == nil {
			var got workqueue.Batch
			if got, e.err = s.queue.LeaseWithin(ctx, s.worker, want, budget); e.err != nil {
				e.err = fmt.Errorf("lease pages: %w", e.err)
			} else {
				e.leased = &got
			}
		}
		s.events <- e
	}()
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

// leases ends the leases of pages. It may be used by many goroutines.
//
// Leases that cannot be ended because Redis refuses writes are pending, and
// returned later: if they expired, that would count as attempts.
type leases struct {
	queue *workqueue.Queue
	log   *slog.Logger

	mu      sync.Mutex // guards pending
	pending []workqueue.Leased
}

// settle ends the lease of a page that is fetched or given up. A page that
// another worker has taken over is left to that one.
func (l *leases) settle(ctx context.Context, lease workqueue.Leased, o workqueue.Outcome) error {
	err := l.queue.Settle(ctx, lease, o)
	if errors.Is(err, workqueue.ErrLeaseLost) {
		l.log.WarnContext(ctx, "a page was taken over by another worker", "item", lease.ID)
		return nil
	}
	if err != nil {
		l.addPending(err, lease)
		return fmt.Errorf("settle page: %w", err)
	}
	return nil
}

// retry puts a page back into the queue for a while; count makes that an attempt.
func (l *leases) retry(ctx context.Context, lease workqueue.Leased, cause error, after time.Duration, count bool) error {
	_, err := l.queue.Retry(ctx, lease, cause, max(after, 0), count)
	if err != nil && !errors.Is(err, workqueue.ErrLeaseLost) {
		l.addPending(err, lease)
		return fmt.Errorf("delay page: %w", err)
	}
	return nil
}

// giveBack returns pages that have not begun to the queue, also when ctx has ended.
func (l *leases) giveBack(ctx context.Context, leases ...workqueue.Leased) error {
	if len(leases) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := l.queue.Return(ctx, leases...); err != nil {
		l.addPending(err, leases...)
		return fmt.Errorf("return pages: %w", err)
	}
	return nil
}

// addPending notes leases that Redis refused to end.
func (l *leases) addPending(err error, leases ...workqueue.Leased) {
	if !tasks.Refused(err) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending = append(l.pending, leases...)
}

// returnPending returns the pending leases.
func (l *leases) returnPending(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.pending) == 0 {
		return nil
	}
	if err := l.queue.Return(ctx, l.pending...); err != nil {
		return fmt.Errorf("return pages: %w", err)
	}
	l.pending = nil
	return nil
}
