package tasks_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/tasktype"
)

// scheduler runs a scheduler with one entry until the test ends or stop is called.
func scheduler(t *testing.T, client *tasks.Client, name, spec string, work tasks.Work, opts ...tasks.ScheduleOption) (stop func()) {
	t.Helper()
	s := tasks.NewScheduler(client, tasks.SchedulerConfig{Lease: 150 * time.Millisecond})
	testutil.Ok(t, s.Add(name, spec, work, opts...))
	stop = during(t, s.Run)
	testutil.Eventually(t, "a scheduler leads the entry", func() bool { return entryOf(t, client, name).Leader != "" })
	return stop
}

// until waits until the entry has a property, and returns it.
func until(t *testing.T, client *tasks.Client, name, what string, is func(tasktype.ScheduleEntry) bool) (e tasktype.ScheduleEntry) {
	t.Helper()
	testutil.Eventually(t, what, func() bool { e = entryOf(t, client, name); return is(e) })
	return e
}

func TestPausedEntrySendsOnlyRequestedTicks(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		client, count := countRuns(t, rdb)
		stop := scheduler(t, client, "often", "@every 30ms", scheduled.S("x"))
		until(t, client, "often", "ticks are sent", func(e tasktype.ScheduleEntry) bool { return e.Sent > 2 })
		testutil.Ok(t, client.PauseSchedule(t.Context(), "often"))
		stop() // which waits for a tick that is being sent
		before := entryOf(t, client, "often")
		if before.Paused.IsZero() {
			t.Errorf("entry %+v: expected a pause", before)
		}
		// The pause outlasts the scheduler. The other entry shows that the next one sends ticks.
		next := tasks.NewScheduler(client, tasks.SchedulerConfig{Lease: 150 * time.Millisecond})
		testutil.Ok(t, next.Add("often", "@every 30ms", scheduled.S("x")))
		testutil.Ok(t, next.Add("other", "@every 30ms", scheduled.S("y")))
		during(t, next.Run)
		until(t, client, "often", "a scheduler leads the paused entry", func(e tasktype.ScheduleEntry) bool { return e.Leader != "" })
		led := entryOf(t, client, "other").Sent
		until(t, client, "other", "the other entry sends ticks", func(e tasktype.ScheduleEntry) bool { return e.Sent >= led+10 })
		if e := entryOf(t, client, "often"); e.Sent != before.Sent || e.Missed != before.Missed {
			t.Errorf("sent %d and missed %d ticks in a pause", e.Sent-before.Sent, e.Missed-before.Missed)
		}
		id, err := client.TriggerSchedule(t.Context(), "often")
		testutil.Ok(t, err)
		if _, err := tasks.Attach[string](client, id).Wait(waitSent(t, client, id)); err != nil {
			t.Error(err)
		}
		e := until(t, client, "often", "the trigger is recorded", func(e tasktype.ScheduleEntry) bool { return e.Requested == 0 })
		if e.Sent != before.Sent+1 || e.Workflow != id {
			t.Errorf("entry after a trigger: %+v, want workflow %s", e, id)
		}
		resumed := time.Now()
		testutil.Ok(t, client.ResumeSchedule(t.Context(), "often"))
		e = until(t, client, "often", "ticks are sent again", func(e tasktype.ScheduleEntry) bool { return e.Sent > before.Sent+3 })
		decided := e.Sent + e.Missed - before.Sent - before.Missed - 1
		if most := int64(e.Last.Sub(resumed)/(30*time.Millisecond)) + 2; !e.Paused.IsZero() || decided > most {
			t.Errorf("%d ticks after the pause, of at most %d: %+v", decided, most, e)
		}
		count.once(t)
	})
}

// waitSent waits until a workflow was sent.
func waitSent(t *testing.T, client *tasks.Client, id string) context.Context {
	t.Helper()
	testutil.Eventually(t, "workflow "+id+" is sent", func() bool {
		_, err := client.Workflow(id).Status(t.Context())
		return !errors.Is(err, tasks.ErrNotFound)
	})
	return t.Context()
}

func TestOverlappingTicks(t *testing.T) {
	t.Parallel()
	test := func(t *testing.T, rdb redis.UniversalClient) {
		client, _ := countRuns(t, rdb)
		// No worker takes from this queue, so that the workflows do not end.
		run := func(name string, p tasks.OverlapPolicy) (stop func()) {
			return scheduler(t, client, name, "@every 100ms", scheduled.S("x"), tasks.Queue("unserved"), tasks.Overlap(p))
		}
		run("skip", tasks.OverlapSkip)
		e := until(t, client, "skip", "ticks are skipped", func(e tasktype.ScheduleEntry) bool { return e.Error != "" })
		if e.Sent != 1 || e.Requested != 0 || !strings.Contains(e.Error, e.Workflow) {
			t.Errorf("skip: %+v", e)
		}
		testutil.Ok(t, client.Workflow(e.Workflow).Revoke(t.Context()))
		until(t, client, "skip", "the next tick is sent", func(e tasktype.ScheduleEntry) bool { return e.Sent == 2 })

		run("queue", tasks.OverlapQueue)
		e = until(t, client, "queue", "one tick is queued, and others are skipped", func(e tasktype.ScheduleEntry) bool { return strings.Contains(e.Error, "another tick is queued") })
		if e.Sent != 1 || e.Requested != 1 {
			t.Errorf("queue: %+v", e)
		}
		first := e.Workflow
		testutil.Ok(t, client.Workflow(first).Revoke(t.Context()))
		e = until(t, client, "queue", "the queued tick is sent", func(e tasktype.ScheduleEntry) bool { return e.Sent == 2 && e.Requested > 0 })
		if e.Workflow == first {
			t.Errorf("queue: %+v", e)
		}
		testutil.Ok(t, client.PauseSchedule(t.Context(), "queue"))
		if e = entryOf(t, client, "queue"); e.Requested != 0 {
			t.Errorf("queued ticks of a paused entry: %+v", e)
		}

		stop := run("cancel", tasks.OverlapCancel)
		e = until(t, client, "cancel", "workflows replace each other", func(e tasktype.ScheduleEntry) bool { return e.Sent > 3 })
		stop() // which waits for a tick that is being sent
		all, _, err := client.Inspect().Workflows(t.Context(), tasktype.WorkflowFilter{State: tasktype.WorkflowRunning, Limit: 100})
		testutil.Ok(t, err)
		running := 0
		for _, w := range all {
			if strings.HasPrefix(w.ID, "cancel_") {
				running++
			}
		}
		if running > 1 {
			t.Errorf("cancel: %d workflows run at once", running)
		}
	}
	redistest.Every(t, test)
}

func TestPauseDuringATickQueuesNothing(t *testing.T) {
	t.Parallel()
	client, _ := countRuns(t, redistest.New(t))
	own := redis.NewClient(client.Redis().(*redis.Client).Options())
	t.Cleanup(func() { _ = own.Close() })
	own.AddHook(before(func(_ context.Context, cmd redis.Cmder) {
		if keys := cmd.Args(); len(keys) > 5 && fmt.Sprint(keys[2]) == "2" && keys[4] == "muster:{schedule}:due:queue" {
			testutil.Ok(t, client.PauseSchedule(t.Context(), "queue"))
		}
	}))
	scheduler(t, tasks.NewClient(own), "queue", "@every 100ms", scheduled.S("x"), tasks.Queue("unserved"), tasks.Overlap(tasks.OverlapQueue))
	until(t, client, "queue", "the first tick is sent", func(e tasktype.ScheduleEntry) bool { return e.Sent == 1 && !e.Paused.IsZero() })
	testutil.Ok(t, client.ResumeSchedule(t.Context(), "queue"))
	e := until(t, client, "queue", "the second tick is recorded", func(e tasktype.ScheduleEntry) bool { return e.Error != "" || e.Requested > 0 })
	if e.Requested != 0 || e.Missed == 0 || e.Error != "the entry was paused" {
		t.Errorf("entry that was paused during a tick: %+v", e)
	}
}

func TestEachMissedTickIsSentUpToN(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		client, count := countRuns(t, rdb)
		spec := missedSpec()
		var mu sync.Mutex
		var ticks []time.Time
		run := func() func() {
			s := tasks.NewScheduler(client, tasks.SchedulerConfig{Lease: 150 * time.Millisecond})
			testutil.Ok(t, s.AddFunc("hourly", spec, func(tick time.Time) tasks.Work {
				mu.Lock()
				defer mu.Unlock()
				ticks = append(ticks, tick)
				return scheduled.S("x")
			}, tasks.EachMissed(3), tasks.Overlap(tasks.OverlapQueue)))
			return during(t, s.Run)
		}
		missTicks(t, client, 50*time.Hour, run)
		stop := run()
		e := until(t, client, "hourly", "missed ticks are sent", func(e tasktype.ScheduleEntry) bool { return e.Sent >= 3 })
		stop()
		if e.Sent != 3 || e.Missed == 0 || e.Requested != 0 {
			t.Errorf("entry %+v, want 3 sent ticks and others that were missed", e)
		}
		ticks = slices.Compact(ticks) // AddFunc's function is called again for a tick whose record was lost with the lease
		if len(ticks) != 3 || !slices.IsSortedFunc(ticks, time.Time.Compare) || ticks[2].Sub(ticks[0]) != 2*time.Hour || time.Since(ticks[2]) > time.Hour {
			t.Errorf("sent ticks %v, want the last three in their order", ticks)
		}
		testutil.Eventually(t, "all have run", func() bool { return len(count.seen()) == 3 })
		count.once(t)
	})
}

func TestBackfill(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		client, count := countRuns(t, rdb)
		scheduler(t, client, "hourly", "@every 1h", scheduled.S("x"), tasks.Overlap(tasks.OverlapSkip), tasks.Expires(time.Minute))
		to := time.Now().Truncate(time.Hour)
		for range 2 { // the second finds the workflows of the first
			n, err := client.BackfillSchedule(t.Context(), "hourly", to.Add(-4*time.Hour), to)
			if err != nil || n != 5 {
				t.Fatalf("got %d, %v, want 5 ticks", n, err)
			}
			until(t, client, "hourly", "all requests are done", func(e tasktype.ScheduleEntry) bool { return e.Requested == 0 })
		}
		testutil.Eventually(t, "all have run", func() bool { return len(count.seen()) == 5 })
		count.once(t)
		for name, err := range map[string]error{
			"too many": second(client.BackfillSchedule(t.Context(), "hourly", to.Add(-1001*time.Hour), to)),
			"reversed": second(client.BackfillSchedule(t.Context(), "hourly", to, to.Add(-time.Hour))),
			"future":   second(client.BackfillSchedule(t.Context(), "hourly", to, to.Add(48*time.Hour))),
		} {
			if !errors.Is(err, tasks.ErrInvalid) {
				t.Errorf("%s: got %v, want ErrInvalid", name, err)
			}
		}
	})
}

func second[T any](_ T, err error) error { return err }

// A trigger outlives the schedulers. One that was killed after the send and before its record sends nothing twice.
func TestTriggerOutlivesSchedulers(t *testing.T) {
	t.Parallel()
	client, count := countRuns(t, redistest.New(t))
	scheduler(t, client, "yearly", "0 0 1 1 *", scheduled.S("x"))()
	ids := map[string]bool{}
	for range 3 {
		id, err := client.TriggerSchedule(t.Context(), "yearly")
		testutil.Ok(t, err)
		ids[id] = true
		if len(ids) == 1 {
			_, err := scheduled.S("x").Do(t.Context(), client, tasks.ID(id)) // as sent by the killed scheduler
			testutil.Ok(t, err)
		}
	}
	scheduler(t, client, "yearly", "0 0 1 1 *", scheduled.S("x"))
	e := until(t, client, "yearly", "all requests are done", func(e tasktype.ScheduleEntry) bool { return e.Requested == 0 })
	testutil.Eventually(t, "all have run", func() bool { return len(count.seen()) == 3 })
	count.once(t)
	for id := range count.seen() {
		if !ids[id] {
			t.Errorf("workflow %s, want only %v", id, ids)
		}
	}
	if len(ids) != 3 || e.Sent != 3 {
		t.Errorf("%d ids; entry %+v", len(ids), e)
	}
}

func TestEntriesAreDeletedWhenNoSchedulerHasThem(t *testing.T) {
	t.Parallel()
	client, _ := countRuns(t, redistest.New(t))
	s := tasks.NewScheduler(client, tasks.SchedulerConfig{Location: berlin(t)})
	testutil.Ok(t, s.Add("nightly", "0 3 * * *", scheduled.S("x")))
	during(t, s.Run)
	e := until(t, client, "nightly", "a scheduler leads the entry", func(e tasktype.ScheduleEntry) bool { return e.Leader != "" })
	if e.Spec != "CRON_TZ=Europe/Berlin 0 3 * * *" {
		t.Errorf("got spec %q, want one with its time zone", e.Spec)
	}
	err := client.DeleteSchedule(t.Context(), "nightly")
	if !errors.Is(err, tasks.ErrRunning) || !strings.Contains(err.Error(), e.Leader) {
		t.Errorf("got %v, want ErrLed that names %s", err, e.Leader)
	}
	testutil.Ok(t, s.Remove(t.Context(), "nightly"))
	until(t, client, "nightly", "no scheduler leads the entry", func(e tasktype.ScheduleEntry) bool { return e.Leader == "" })
	testutil.Ok(t, client.DeleteSchedule(t.Context(), "nightly"))
	for what, err := range map[string]error{
		"get":      second(client.Inspect().Schedule(t.Context(), "nightly")),
		"pause":    client.PauseSchedule(t.Context(), "nightly"),
		"resume":   client.ResumeSchedule(t.Context(), "nightly"),
		"trigger":  second(client.TriggerSchedule(t.Context(), "nightly")),
		"backfill": second(client.BackfillSchedule(t.Context(), "nightly", time.Now(), time.Now())),
		"delete":   client.DeleteSchedule(t.Context(), "nightly"),
	} {
		if !errors.Is(err, tasks.ErrNotFound) {
			t.Errorf("%s: got %v, want ErrNoEntry", what, err)
		}
	}
}

func berlin(t *testing.T) *time.Location {
	t.Helper()
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Skip(err)
	}
	return zone
}

func TestRequestedTicksAreLimited(t *testing.T) {
	t.Parallel()
	client, _ := countRuns(t, redistest.New(t))
	scheduler(t, client, "minutely", "@every 1m", scheduled.S("x"))()
	to := time.Now().Truncate(time.Minute)
	if n, err := client.BackfillSchedule(t.Context(), "minutely", to.Add(-999*time.Minute), to); n != 1000 || err != nil {
		t.Fatalf("got %d, %v, want 1,000 ticks", n, err)
	}
	if _, err := client.TriggerSchedule(t.Context(), "minutely"); err == nil || !strings.Contains(err.Error(), fmt.Sprint(1000)) {
		t.Errorf("got %v, want an error that names the limit", err)
	}
	s := tasks.NewScheduler(client, tasks.SchedulerConfig{})
	if err := s.Add("entry", "61 * * * *", scheduled.S("x")); err == nil {
		t.Error("got no error for an invalid spec")
	}
	for _, o := range []tasks.ScheduleOption{tasks.Overlap("never"), tasks.EachMissed(0), tasks.EachMissed(1001)} {
		if err := s.Add("entry", "@daily", scheduled.S("x"), o); err == nil {
			t.Error("got no error for an invalid option")
		}
	}
}
