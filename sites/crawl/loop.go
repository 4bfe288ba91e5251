package crawl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"muster/sites/internal/store"
	"muster/tasks"
	"muster/tasks/workqueue"
)

const (
	// slice is how long a crawler keeps its slot of a worker. Between slices the engine assigns slots to other workflows, and a
	// stopping worker starts no more pages.
	slice = 700 * time.Millisecond
	// leastWindow is the maximum of pages in flight per crawler, if the site allows as many. One crawler suffices for most sites.
	// Sites with more pages in flight have several crawlers, in different processes.
	leastWindow = 8
	// idleFor is the wait of a crawler while the other crawlers of its job lease all ready pages.
	idleFor = 250 * time.Millisecond
	// maxSleep is the longest wait for which a crawler keeps its slot.
	maxSleep = 100 * time.Millisecond
	// backlogEvery is the interval at which a crawler counts unwritten records.
	backlogEvery = 200 * time.Millisecond
)

// crawl processes pages of the job until none is left or a limit is reached. It returns the number of settled pages, and later if
// it must be called again. It holds no lease when it returns.
func (c *crawler) crawl(ctx context.Context, worker string, me store.Crawler) (settled int, err error) {
	if err := c.leases.returnPending(ctx); err != nil {
		return 0, err
	}
	// An earlier run under this name has ended. Take over its leases.
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

// slot is a crawler that occupies a slot of a worker. Only its run method uses the fields; goroutines lease, fetch and settle
// pages and report events.
//
// All crawlers of a job together lease at most MaxPerDomain pages, and a few ahead, so that no page waits for Redis while another
// could be fetched. A page is in flight until its response has been read; then it is settling: extracted and settled.
type slot struct {
	*crawler
	worker string
	window int // maximum number of pages in flight
	ahead  int // leases in addition to pages in flight
	room   int // pages that the other crawlers leave to this one

	leased   []workqueue.Leased // not started
	inFlight []string           // IDs of pages
	settling []string           // IDs of pages after their response
	leasing  bool
	settled  int
	more     bool      // other pages may be ready
	due      time.Time // when more may be ready; zero: unknown
	looked   time.Time // when the backlog was last counted
	check    bool      // a limit may have been reached
	events   chan event
	ends     time.Time

	stopped bool
	reason  error // of the stop; nil: no page left, or a limit reached
}

// event reports that a page is no longer in flight, that a page is settled, or leased pages.
type event struct {
	page    string
	settled bool
	leased  *workqueue.Batch
	wanted  int // with leased: number of requested pages
	err     error
}

// stop starts no more pages and returns the leases of pages that have not started.
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
						s.reason = later{after: wait}
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
		if s.stopped { // wait only for pages in flight
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

// checkEnd stops if ctx is done, the slice is over, or a limit of the job is reached.
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
	if reached, err := s.admission.reachedLimits(ctx); err != nil || len(reached) > 0 {
		s.stop(ctx, err)
	}
}

// note updates the state for an event.
func (s *slot) note(ctx context.Context, e event) {
	isPage := func(id string) bool { return id == e.page }
	switch {
	case e.leased != nil:
		s.noteLeased(ctx, e)
	case e.settled:
		s.settling = slices.DeleteFunc(s.settling, isPage)
		s.settled++
		s.more, s.check = true, true // the page may have links, or reach a limit
	default:
		s.inFlight = slices.DeleteFunc(s.inFlight, isPage)
		s.settling = append(s.settling, e.page)
	}
	if e.err != nil {
		s.stop(ctx, e.err)
	}
}

// noteLeased stores leased pages, or returns them after stop.
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

// begin starts to fetch and settle a leased page.
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

// lease starts to lease ready pages if few are left, while pages in flight continue.
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
			e.err = s.counted(s.admission.backlog(ctx))
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

// idle returns the wait without a ready page. ok is false if none will become ready.
func (s *slot) idle() (wait time.Duration, ok bool) {
	if s.due.IsZero() {
		return 0, false
	}
	wait = max(min(time.Until(s.due), s.admission.timeLeft()), time.Millisecond)
	if s.room < s.def.Politeness.MaxPerDomain { // pages of other crawlers may have links
		wait = min(wait, idleFor)
	}
	return wait, true
}

// leases settles and returns leased pages. It is safe for concurrent use.
//
// A lease that cannot be ended because Redis rejects writes is pending and returned later: its expiry would count as an attempt.
type leases struct {
	*pages

	mu      sync.Mutex // guards pending
	pending []workqueue.Leased
}

// settle settles a fetched or failed page, unless another worker has taken it over.
func (l *leases) settle(ctx context.Context, lease workqueue.Leased, o workqueue.Outcome) error {
	err := l.queue.Settle(ctx, lease, o)
	if errors.Is(err, workqueue.ErrLeaseLost) {
		l.log.WarnContext(ctx, "another worker took over a page", "item", lease.ID)
		return nil
	}
	if err != nil {
		l.addPending(err, lease)
		return fmt.Errorf("settle page: %w", err)
	}
	return nil
}

// retry requeues a page with a delay. count makes it an attempt.
func (l *leases) retry(ctx context.Context, lease workqueue.Leased, cause error, after time.Duration, count bool) error {
	_, err := l.queue.Retry(ctx, lease, cause, max(after, 0), count)
	if err != nil && !errors.Is(err, workqueue.ErrLeaseLost) {
		l.addPending(err, lease)
		return fmt.Errorf("delay page: %w", err)
	}
	return nil
}

// giveBack requeues pages that have not started, even if ctx is done.
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

// addPending records leases that Redis refused to end.
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
