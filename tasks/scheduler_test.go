package tasks_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/tasktype"
)

// scheduled is the task of these tests; its worker counts how often each workflow ran.
var scheduled = tasks.New[string, string]("schedule.note")

type runCount struct {
	mu   sync.Mutex // guards runs
	runs map[string]int
}

func (c *runCount) seen() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make(map[string]int, len(c.runs))
	for k, v := range c.runs {
		out[k] = v
	}
	return out
}

// once reports every workflow that ran more than once.
func (c *runCount) once(t *testing.T) {
	t.Helper()
	for id, n := range c.seen() {
		if n != 1 {
			t.Errorf("workflow %s ran %d times", id, n)
		}
	}
}

func countRuns(t *testing.T, rdb redis.UniversalClient) (*tasks.Client, *runCount) {
	t.Helper()
	client := tasks.NewClient(rdb)
	count := &runCount{runs: map[string]int{}}
	mux := tasks.NewMux()
	tasks.Handle(mux, scheduled, func(ctx context.Context, s string) (string, error) {
		count.mu.Lock()
		defer count.mu.Unlock()
		count.runs[tasks.InfoFrom(ctx).Workflow]++
		return s, nil
	})
	runWorker(t, client, mux, tasks.WorkerConfig{})
	t.Cleanup(func() { _ = client.Close() })
	return client, count
}

// during runs fn until the test ends, or the returned function is called.
func during(t *testing.T, fn func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- fn(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// entryOf returns an entry of the schedule; the zero entry when there is none.
func entryOf(t *testing.T, c *tasks.Client, name string) tasktype.ScheduleEntry {
	t.Helper()
	list, err := c.Inspect().Schedules(t.Context())
	testutil.Ok(t, err)
	for _, e := range list {
		if e.Name == name {
			return e
		}
	}
	return tasktype.ScheduleEntry{}
}

const schedulerURL, schedulerName = "TASKS_TEST_SCHEDULER_URL", "TASKS_TEST_SCHEDULER_NAME"

// TestChildScheduler is the scheduler process of the test below.
func TestChildScheduler(t *testing.T) {
	if os.Getenv(schedulerURL) == "" {
		t.SkipNow()
	}
	client, err := tasks.Connect(t.Context(), os.Getenv(schedulerURL))
	testutil.Ok(t, err)
	s := tasks.NewScheduler(client, tasks.SchedulerConfig{Name: os.Getenv(schedulerName), Lease: 300 * time.Millisecond})
	testutil.Ok(t, s.Add("often", "@every 40ms", scheduled.S("x"), tasks.Retention(time.Millisecond)))
	fmt.Println("child is ready")
	testutil.Ok(t, s.Run(t.Context()))
}

func schedulerProcess(t *testing.T, url, name string) *os.Process {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestChildScheduler$", "-test.timeout=120s")
	cmd.Env = append(os.Environ(), schedulerURL+"="+url, schedulerName+"="+name)
	out, err := cmd.StdoutPipe()
	testutil.Ok(t, err)
	testutil.Ok(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if strings.Contains(lines.Text(), "child is ready") {
			return cmd.Process
		}
	}
	t.Fatal("scheduler process did not become ready")
	return nil
}

func TestSchedulersSurviveLeadersThatDieOrPause(t *testing.T) {
	t.Parallel()
	url := redistest.URL(t)
	client, count := countRuns(t, connect(t, url).Redis())
	procs := map[string]*os.Process{}
	for _, name := range []string{"one", "two", "three"} {
		procs[name] = schedulerProcess(t, url, name)
	}
	leader := func() string { return entryOf(t, client, "often").Leader }
	ticks := func(more int) {
		t.Helper()
		had := len(count.seen())
		testutil.Eventually(t, fmt.Sprint(more, " more ticks"), func() bool { return len(count.seen()) >= had+more })
	}
	ticks(5)
	first := leader()
	if procs[first] == nil {
		t.Fatalf("got leader %q, want one", first)
	}
	hourAgo := time.Now().Add(-time.Hour)
	requested, err := client.BackfillSchedule(t.Context(), "often", hourAgo, hourAgo.Add(12*time.Second))
	testutil.Ok(t, err)
	testutil.Ok(t, procs[first].Kill())
	if e := entryOf(t, client, "often"); e.Requested == 0 {
		t.Errorf("all %d requested ticks were sent before the leader was killed", requested)
	}
	testutil.Eventually(t, "another leads", func() bool { l := leader(); return l != "" && l != first })
	ticks(5)
	testutil.Eventually(t, "the requested ticks are sent", func() bool { return entryOf(t, client, "often").Requested == 0 })
	for k := range requested {
		id := fmt.Sprintf("often_%d", hourAgo.Truncate(40*time.Millisecond).Add(time.Duration(k+1)*40*time.Millisecond).UnixMilli())
		testutil.Eventually(t, "requested tick "+id+" runs", func() bool { return count.seen()[id] > 0 })
	}
	second := leader()
	testutil.Ok(t, procs[second].Signal(syscall.SIGSTOP))
	testutil.Eventually(t, "the third leads", func() bool { l := leader(); return l != "" && l != first && l != second })
	ticks(5)
	testutil.Ok(t, procs[second].Signal(syscall.SIGCONT))
	ticks(10)
	count.once(t)
}

// A leader that is delayed between the check of its lease and its send must send nothing, even if the workflow of its
// successor has expired.
func TestSchedulerThatIsLateSendsNothing(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		client, count := countRuns(t, rdb)
		hold, held := make(chan struct{}), make(chan struct{}, 100)
		again := make(chan string, 100)
		old := tasks.NewScheduler(client, tasks.SchedulerConfig{Name: "old", Lease: 200 * time.Millisecond,
			Sent: func(_, id string) { again <- id }})
		err := old.AddFunc("tick", "@every 1s", func(time.Time) tasks.Work {
			select {
			case held <- struct{}{}:
			default:
			}
			<-hold
			return scheduled.S("old")
		})
		testutil.Ok(t, err)
		during(t, old.Run)
		<-held

		sent := make(chan string, 100)
		heir := tasks.NewScheduler(client, tasks.SchedulerConfig{Name: "heir", Lease: 200 * time.Millisecond,
			Sent: func(_, id string) { sent <- id }})
		testutil.Ok(t, heir.Add("tick", "@every 1s", scheduled.S("new")))
		stopHeir := during(t, heir.Run)
		id := <-sent
		if _, err := tasks.Attach[string](client, id).Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		keys, err := rdb.Keys(t.Context(), "*w:"+id+"~*").Result()
		if err != nil || len(keys) != 1 {
			t.Fatalf("keys of the workflow: %v %v", keys, err)
		}
		rdb.Del(t.Context(), keys[0])
		close(hold)
		<-sent // the next leader continues
		stopHeir()
		if got := <-again; got == id {
			t.Errorf("the late scheduler sent %s", id)
		}
		count.once(t)
	})
}

// missedSpec ticks every hour, half an hour ago for the last time.
func missedSpec() string { return fmt.Sprintf("%d * * * *", time.Now().Add(-30*time.Minute).Minute()) }

// missTicks lets the entry hourly miss its ticks for some time. start starts a scheduler with the entry.
func missTicks(t *testing.T, client *tasks.Client, since time.Duration, start func() (stop func())) {
	t.Helper()
	stop := start()
	until(t, client, "hourly", "a scheduler leads the entry", func(e tasktype.ScheduleEntry) bool { return e.Leader != "" })
	stop()
	testutil.Ok(t, client.Redis().HSet(t.Context(), "muster:{schedule}:e:hourly", "last", time.Now().Add(-since).UnixMilli()).Err())
}

// Missed ticks are skipped, or caught up with once. The function that makes their work gets their time.
func TestMissedTicks(t *testing.T) {
	t.Parallel()
	zone, err := time.LoadLocation("Asia/Tokyo")
	testutil.Ok(t, err)
	for _, c := range []struct {
		name    string
		catchUp time.Duration
		sent    int
	}{
		{"are skipped", 0, 0},
		{"are skipped when too old", 10 * time.Minute, 0},
		{"are caught up with once", 5 * time.Hour, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
				client, count := countRuns(t, rdb)
				spec, ticks := missedSpec(), make(chan time.Time, 100)
				start := func() (stop func()) {
					s := tasks.NewScheduler(client, tasks.SchedulerConfig{CatchUp: c.catchUp, Location: zone})
					err := s.AddFunc("hourly", spec, func(tick time.Time) tasks.Work {
						ticks <- tick
						return scheduled.S("x")
					})
					testutil.Ok(t, err)
					return during(t, s.Run)
				}
				missTicks(t, client, 3*time.Hour, start)
				var e tasktype.ScheduleEntry
				for range 2 { // the second scheduler finds nothing more to do
					stop := start()
					e = until(t, client, "hourly", "the missed ticks are decided", func(e tasktype.ScheduleEntry) bool {
						return e.Leader != "" && e.Sent+e.Missed > 0 && len(count.seen()) == c.sent
					})
					stop()
				}
				if int(e.Sent) != c.sent || e.Missed == 0 || !e.Next.After(time.Now()) || e.Spec != "CRON_TZ=Asia/Tokyo "+spec {
					t.Errorf("got entry %+v, want %d sent, and misses", e, c.sent)
				}
				if c.sent == 1 {
					if got := <-ticks; !got.Equal(e.Last) || got.Location() != zone || time.Since(got) < 29*time.Minute || time.Since(got) > 32*time.Minute || e.Workflow == "" {
						t.Errorf("got tick %s of entry %+v, want the last in %s", got, e, zone)
					}
				}
				count.once(t)
			})
		})
	}
}

// Durations in the work of a tick count from the tick, however late it is sent.
func TestDurationsCountFromTheTick(t *testing.T) {
	t.Parallel()
	client, _ := countRuns(t, redistest.New(t))
	spec := missedSpec() // the last tick was half an hour ago
	start := func() (stop func()) {
		s := tasks.NewScheduler(client, tasks.SchedulerConfig{CatchUp: 5 * time.Hour})
		testutil.Ok(t, s.Add("hourly", spec, scheduled.S("x", tasks.In(2*time.Hour))))
		return during(t, s.Run)
	}
	missTicks(t, client, 3*time.Hour, start)
	start()
	e := until(t, client, "hourly", "the tick is sent", func(e tasktype.ScheduleEntry) bool { return e.Sent == 1 })
	due, err := client.Inspect().Due(t.Context(), 10)
	if err != nil || len(due) != 1 {
		t.Fatalf("got %v, %v, want one node that waits", due, err)
	}
	if want := e.Last.Add(2 * time.Hour); due[0].Due.Sub(want).Abs() > time.Second {
		t.Errorf("due: got %s, want %s", due[0].Due, want)
	}
}

func TestSchedulerHandsOverAtOnce(t *testing.T) {
	t.Parallel()
	client, count := countRuns(t, redistest.New(t))
	start := func() func() {
		s := tasks.NewScheduler(client, tasks.SchedulerConfig{Lease: time.Hour})
		testutil.Ok(t, s.Add("often", "@every 30ms", scheduled.S("x")))
		return during(t, s.Run)
	}
	for range 3 {
		had := len(count.seen())
		stop := start()
		testutil.Eventually(t, "ticks", func() bool { return len(count.seen()) > had+2 })
		stop()
	}
	count.once(t)
}

// An entry that is removed while the scheduler claims its entries can be deleted at once.
func TestRemovedEntryIsNotClaimed(t *testing.T) {
	t.Parallel()
	rdb := redistest.New(t)
	lead := redistest.NewFault(redistest.Slow, 1)
	lead.Match = func(cmd redis.Cmder) bool { return kindOf(cmd) == "lead" }
	rdb.AddHook(lead)
	client := tasks.NewClient(rdb)
	s := tasks.NewScheduler(client, tasks.SchedulerConfig{Lease: time.Hour})
	add := func(name string) {
		if err := s.Add(name, "@daily", scheduled.S("x")); err != nil {
			t.Fatal(err)
		}
	}
	add("gone")
	during(t, s.Run)
	testutil.Eventually(t, "the entry has a scheduler", func() bool {
		e, err := client.Inspect().Schedule(t.Context(), "gone")
		return err == nil && e.Leader != ""
	})
	lead.Arm()
	add("kept")
	<-lead.Hit()
	if err := s.Remove(t.Context(), "gone"); err != nil {
		t.Fatal(err)
	}
	lead.Release()
	testutil.Eventually(t, "the entry is deleted", func() bool { return client.DeleteSchedule(t.Context(), "gone") == nil })
}

func TestEntriesOfLikeNames(t *testing.T) {
	t.Parallel()
	client, count := countRuns(t, redistest.New(t))
	s := tasks.NewScheduler(client, tasks.SchedulerConfig{})
	names := []string{"a.b", "a_b", "a/b", strings.Repeat("long", 50)}
	for _, n := range names {
		testutil.Ok(t, s.Add(n, "@every 1s", scheduled.S(n)))
	}
	for _, n := range []string{"a.b", "", strings.Repeat("x", 201)} {
		if err := s.Add(n, "@every 1s", scheduled.S(n)); err == nil {
			t.Errorf("name %.10q was taken", n)
		}
	}
	during(t, s.Run)
	testutil.Eventually(t, "every entry is sent", func() bool {
		for _, n := range names {
			if entryOf(t, client, n).Sent == 0 {
				return false
			}
		}
		return true
	})
	testutil.Eventually(t, "every entry runs", func() bool { return len(count.seen()) >= len(names) })
	count.once(t)
}

func TestSchedulerWithoutWorkSkips(t *testing.T) {
	t.Parallel()
	client, _ := countRuns(t, redistest.New(t))
	s := tasks.NewScheduler(client, tasks.SchedulerConfig{})
	testutil.Ok(t, s.AddFunc("none", "@every 30ms", func(time.Time) tasks.Work { return nil }))
	during(t, s.Run)
	testutil.Eventually(t, "ticks are skipped", func() bool { return entryOf(t, client, "none").Missed > 2 })
	if e := entryOf(t, client, "none"); e.Sent != 0 || e.Error == "" {
		t.Errorf("entry %+v", e)
	}
}

// The clock of Redis is ahead or late, and is set forward and back: ticks continue, and each is sent once. A lease
// from before the clock was set back ends in time.
func TestScheduleFollowsTheClockOfRedis(t *testing.T) {
	t.Parallel()
	for _, ahead := range []time.Duration{-10 * time.Minute, -time.Second, time.Second, 10 * time.Minute} {
		t.Run(fmt.Sprint("Redis ahead by ", ahead), func(t *testing.T) {
			t.Parallel()
			rdb, jump := redistest.Clock(t)
			jump(ahead)
			client, count := countRuns(t, rdb)
			ticks := func(when string) {
				t.Helper()
				had := len(count.seen())
				testutil.Eventually(t, "a tick "+when, func() bool { return len(count.seen()) > had })
			}
			s := tasks.NewScheduler(client, tasks.SchedulerConfig{Name: "s", Lease: 100 * time.Millisecond})
			testutil.Ok(t, s.Add("tick", "@every 1s", scheduled.S("x"), tasks.Expires(30*time.Second)))
			stop := during(t, s.Run)
			ticks("at first")
			jump(-time.Hour)
			ticks("after the clock was set back")
			jump(2 * time.Hour)
			ticks("after the clock was set forward")
			stop()

			key := "muster:{schedule}:e:tick"
			ends := redisMilli(t, rdb) + 100
			testutil.Ok(t, rdb.HSet(t.Context(), key, "holder", "dead", "lease", 100, "until", ends).Err())
			jump(-time.Hour)
			heir := tasks.NewScheduler(client, tasks.SchedulerConfig{Name: "heir", Lease: 50 * time.Millisecond})
			testutil.Ok(t, heir.Add("tick", "@every 1s", scheduled.S("x")))
			during(t, heir.Run)
			ticks("of the next leader")
			count.once(t)
		})
	}
}

// After the clock of Redis was set back, a rate lets tasks start again within its span.
func TestRateSurvivesASetClock(t *testing.T) {
	t.Parallel()
	rdb, jump := redistest.Clock(t)
	o := newOffice(rdb)
	deliver := tasks.New[delivery, int]("deliver", tasks.Limited[delivery](tasks.NewLimit("rate", tasks.Rate(1, 50*time.Millisecond)), nil))
	o.work(t, deliver)
	for _, step := range []time.Duration{0, -time.Hour, 2 * time.Hour, -time.Hour} {
		jump(step)
		if got, err := deliver.S(delivery{N: 1}).Do(limited(t), o.client); got != 1 || err != nil {
			t.Fatalf("after a step of %v: got %v, %v, want 1", step, got, err)
		}
	}
}
