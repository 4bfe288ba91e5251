package webhook

import (
	"testing"
	"time"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/workqueue"
)

// Any call of a process that relays and sends can go wrong, or be its last: each event arrives, with one id and one body, is
// counted once, and nothing is left in the outbox or waits.
func TestDeliverySurvivesAFaultAtAnyCall(t *testing.T) {
	t.Parallel()
	redistest.EachFault(t, map[redistest.Kind]int{
		redistest.Refused: 15, redistest.ReplyLost: 15, redistest.Repeated: 15, redistest.Crash: 6, redistest.CrashAfter: 6,
	}, deliverWithFault)
}

func deliverWithFault(t *testing.T, f *redistest.Fault) {
	const n = 4
	url := redistest.URL(t)
	withWorkflows := func(f *redistest.Fault) Config {
		cfg := quick(t, f.Client(t, url))
		cfg.Workflows = tasks.NewClient(cfg.Redis)
		t.Cleanup(func() { _ = cfg.Workflows.Close() })
		return cfg
	}
	k := open(t, withWorkflows(redistest.NewFault(redistest.Refused, 0)))
	r := newReceiver(t, func(_ string, before int) int {
		if before == 0 {
			return 500
		}
		return 200
	})
	cfg := withWorkflows(f)
	s := testutil.Must(New(cfg))(t)
	// The next heartbeat, after a third of a lease, detects a lost reply of a lease.
	s.queue = workqueue.New(cfg.Redis, queueName, workqueue.Config{MaxAttempts: cfg.Attempts, LeaseTTL: 3 * time.Second, MaxPayload: maxBody, CountLanes: true, Logger: s.log})
	e, _ := k.create(t, r.URL, "job.*", "workflow.revoked")
	k.emit(t, "job.completed", n-1)
	f.Arm()
	stop := testutil.Background(t, s.Run)
	run := testutil.Must(tasks.New[int, struct{}]("work").S(1).Send(t.Context(), k.cfg.Workflows))(t)
	testutil.Ok(t, run.Revoke(t.Context()))
	if f.Deadly() {
		select {
		case <-f.Hit():
		case <-time.After(time.Minute):
		}
		k.run(t)
	}
	var is Endpoint
	testutil.Eventually(t, "all is delivered", func() bool {
		var err error
		if is, err = k.Get(t.Context(), e.ID); err != nil {
			t.Fatal(err)
		}
		return is.Delivered >= n && is.Pending == 0 && k.passed(t)
	})
	f.Release()
	stop()
	if is.Delivered != n || is.GivenUp != 0 || is.State != StateActive {
		t.Errorf("endpoint: got %+v, want %d deliveries, none given up", is, n)
	}
	k.settled(t, e.ID, "map[delivered:4]")
	st, err := k.queue.Stats(t.Context())
	if err != nil || st.Done != n || st.Total != n {
		t.Errorf("queue: got %+v, %v, want %d done", st, err, n)
	}
	if len(r.times) != n || len(r.wrong) > 0 {
		t.Errorf("got %d ids, and %d with two bodies, want %d and none", len(r.times), len(r.wrong), n)
	}
	for id, times := range r.times {
		if times > 3 { // one that was refused, and one whose outcome was not stored
			t.Errorf("event %s was sent %d times", id, times)
		}
	}
}
