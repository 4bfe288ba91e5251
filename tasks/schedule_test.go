package tasks_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/internal/store"
	"muster/tasks/taskstest"
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

func scheduleOf(t *testing.T, c *tasks.Client, name string) tasktype.ScheduleEntry {
	t.Helper()
	e := testutil.Must(c.Inspect().Schedule(t.Context(), name))(t)
	return e
}

// put puts a schedule of the task of these tests with its name as input.
func put(t *testing.T, c *tasks.Client, name, spec string, opts ...tasks.SendOption) {
	t.Helper()
	testutil.Ok(t, c.Schedules().Put(t.Context(), tasks.Schedule{Name: name, Spec: spec, Work: scheduled.S(name), Options: opts}))
}

// hourly is a fleet whose clock is at a full hour. Its worker notes the inputs with the hour of the tick, and the minutes from it.
type hourly struct {
	*testing.T
	*taskstest.Fleet
	begun time.Time
	ran   []string
}

func newHourly(t *testing.T) *hourly {
	h := &hourly{T: t}
	mux := tasks.NewMux()
	tasks.Handle(mux, scheduled, func(ctx context.Context, s string) (string, error) {
		tick := tasks.InfoFrom(ctx).Tick
		h.ran = append(h.ran, fmt.Sprintf("%s %.0f+%.0f", s, tick.Sub(h.begun).Hours(), h.Now().Sub(tick).Minutes()))
		return s, nil
	})
	h.Fleet = taskstest.New(t, mux)
	h.Advance(time.Hour - time.Duration(h.Now().UnixMilli()%time.Hour.Milliseconds())*time.Millisecond)
	h.begun = h.Now()
	return h
}

// wants checks the notes since the last call.
func (h *hourly) wants(notes ...string) {
	h.Helper()
	if !slices.Equal(h.ran, notes) {
		h.Errorf("got the runs %q, want %q", h.ran, notes)
	}
	h.ran = nil
}

// outage lets no worker run for a time.
func (h *hourly) outage(name string, d time.Duration) {
	h.Helper()
	key, at := "muster:{0}:schedule:e:"+name, scheduleOf(h.T, h.Client(), name).Next.Add(-d)
	testutil.Ok(h.T, h.Client().Redis().HSet(h.Context(), key, "next", at.UnixMilli(), "due", at.UnixMilli()).Err())
	testutil.Ok(h.T, h.Client().Redis().ZAdd(h.Context(), "muster:{0}:schedules", redis.Z{Score: float64(at.UnixMilli()), Member: name}).Err())
	h.begun = h.begun.Add(-d)
}

// long is an option of work that ends 90 minutes after its tick.
var long = tasks.In(90 * time.Minute)

func TestSchedules(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(h *hourly){
		"each tick is sent with its time": func(h *hourly) {
			put(h.T, h.Client(), "a", "@every 1h")
			h.Advance(3*time.Hour + time.Minute)
			h.wants("a 1+0", "a 2+0", "a 3+0")
			e := scheduleOf(h.T, h.Client(), "a")
			if e.Sent != 3 || e.Missed != 0 || !e.Last.Equal(h.begun.Add(3*time.Hour)) || !e.Next.Equal(h.begun.Add(4*time.Hour)) || e.Workflow != fmt.Sprint("a_", e.Last.UnixMilli()) || e.Tasks != scheduled.Name() {
				h.Errorf("got %+v", e)
			}
		},
		"a plan uses the tick": func(h *hourly) {
			plan := tasks.New[string, string]("schedule.plan")
			mux := tasks.NewMux()
			tasks.HandlePlan(mux, plan, func(ctx context.Context, s string) (tasks.Signature[string], error) {
				return tasks.Value(s + tasks.InfoFrom(ctx).Tick.Format(" 15:04")), nil
			})
			f := taskstest.New(h.T, mux)
			testutil.Ok(h.T, f.Client().Schedules().Put(h.Context(), tasks.Schedule{Name: "p", Spec: "0 3 * * *", Work: plan.S("at")}))
			f.Advance(24 * time.Hour)
			if got, err := tasks.Attach[string](f.Client(), scheduleOf(h.T, f.Client(), "p").Workflow).Wait(h.Context()); got != "at 03:00" || err != nil {
				h.Errorf("got %q, %v, want the time of the tick", got, err)
			}
		},
		"an unchanged spec keeps the next tick": func(h *hourly) {
			put(h.T, h.Client(), "a", "@every 1h")
			h.outage("a", time.Second) // so that a new next tick is later
			put(h.T, h.Client(), "a", "@every 1h")
			h.begun = h.begun.Add(time.Second)
			e := scheduleOf(h.T, h.Client(), "a")
			if !e.Next.Equal(h.begun.Add(time.Hour - time.Second)) {
				h.Errorf("got the next tick %s", e.Next)
			}
			testutil.Ok(h.T, h.Client().Schedules().Pause(h.Context(), "a"))
			put(h.T, h.Client(), "a", "@every 2h")
			if e = scheduleOf(h.T, h.Client(), "a"); e.Next.Sub(h.Now()) > 2*time.Hour || e.Next.Sub(h.Now())%time.Hour != 0 || e.Paused.IsZero() {
				h.Errorf("got %+v, want a next tick of the new spec, and the pause", e)
			}
		},
		"missed ticks are skipped": func(h *hourly) {
			put(h.T, h.Client(), "a", "@every 1h")
			h.outage("a", 50*time.Hour)
			h.Advance(2 * time.Hour)
			h.wants("a 50+0", "a 51+0", "a 52+0")
			if e := scheduleOf(h.T, h.Client(), "a"); e.Missed != 49 || e.Sent != 3 {
				h.Errorf("got %+v, want 49 missed ticks", e)
			}
		},
		"the latest missed ticks are caught up with": func(h *hourly) {
			testutil.Ok(h.T, h.Client().Schedules().Put(h.Context(), tasks.Schedule{Name: "a", Spec: "@every 1h", Work: scheduled.S("a"), CatchUp: 3}))
			h.outage("a", 200*time.Hour)
			h.Advance(time.Second)
			h.wants("a 197+180", "a 198+120", "a 199+60", "a 200+0")
			if e := scheduleOf(h.T, h.Client(), "a"); e.Missed != 165 || e.Requested != 0 { // of a week, without those of the last 15 s
				h.Errorf("got %+v, want missed ticks of a week", e)
			}
		},
		"ticks that are up to 15 s late are all sent": func(h *hourly) {
			put(h.T, h.Client(), "a", "@every 5s")
			h.outage("a", 15*time.Second)
			h.Advance(time.Second)
			h.wants("a 0+0", "a 0+0", "a 0+0")
		},
		"durations count from the tick": func(h *hourly) {
			put(h.T, h.Client(), "a", "@every 10s", tasks.In(8*time.Second))
			h.outage("a", 10*time.Second)
			testutil.Ok(h.T, h.Client().PauseQueue(h.Context(), "default"))
			h.Advance(time.Second)
			due, err := h.Client().Inspect().Due(h.Context(), 10)
			if last := scheduleOf(h.T, h.Client(), "a").Last; err != nil || len(due) != 1 || !due[0].Due.Equal(last.Add(8*time.Second)) {
				h.Errorf("got %+v, %v, want a node due 8 s after %s", due, err, last)
			}
		},
		"a pause sends only requested ticks": func(h *hourly) {
			put(h.T, h.Client(), "a", "@every 1h")
			testutil.Ok(h.T, h.Client().Schedules().Pause(h.Context(), "a"))
			h.Advance(2*time.Hour + 30*time.Minute)
			h.wants()
			id, err := h.Client().Schedules().Trigger(h.Context(), "a")
			testutil.Ok(h.T, err)
			h.Advance(time.Second)
			if out, err := tasks.Attach[string](h.Client(), id).Wait(h.Context()); out != "a" || err != nil {
				h.Errorf("got %q, %v of a triggered tick", out, err)
			}
			h.wants("a 2+0")
			testutil.Ok(h.T, h.Client().Schedules().Resume(h.Context(), "a"))
			h.Advance(time.Hour)
			h.wants("a 3+0")
			if e := scheduleOf(h.T, h.Client(), "a"); e.Missed != 0 || e.Sent != 2 || !e.Paused.IsZero() {
				h.Errorf("got %+v, want two ticks, none missed", e)
			}
		},
		"a tick overlaps": func(h *hourly) {
			put(h.T, h.Client(), "a", "@every 1h", long)
			h.Advance(4 * time.Hour)
			h.wants("a 1+90", "a 2+90")
		},
		"a tick is skipped": func(h *hourly) {
			put(h.T, h.Client(), "a", "@every 1h", long, tasks.Overlap(tasks.OverlapSkip))
			h.Advance(2*time.Hour + time.Minute)
			if e := scheduleOf(h.T, h.Client(), "a"); e.Sent != 1 || e.Missed != 1 || !strings.Contains(e.Error, e.Workflow) {
				h.Errorf("got %+v, want a missed tick, with the workflow", e)
			}
			_, err := h.Client().Schedules().Trigger(h.Context(), "a") // it waits
			testutil.Ok(h.T, err)
			h.Advance(2 * time.Hour)
			h.wants("a 1+90", "a 2+90")
		},
		"a tick waits": func(h *hourly) {
			put(h.T, h.Client(), "a", "@every 1h", tasks.In(150*time.Minute), tasks.Overlap(tasks.OverlapQueue))
			h.Advance(3*time.Hour + 45*time.Minute)
			h.wants("a 1+150")
			if e := scheduleOf(h.T, h.Client(), "a"); e.Sent != 2 || e.Missed != 1 {
				h.Errorf("got %+v, want one tick that waits and one that is missed", e)
			}
		},
		"a tick cancels": func(h *hourly) {
			put(h.T, h.Client(), "a", "@every 1h", long, tasks.Overlap(tasks.OverlapCancel))
			h.Advance(2*time.Hour + time.Minute)
			testutil.Ok(h.T, h.Client().Schedules().Pause(h.Context(), "a"))
			h.Advance(3 * time.Hour)
			h.wants("a 2+90")
		},
		"a unique key of the options": func(h *hourly) {
			put(h.T, h.Client(), "a", "@every 1h", long, tasks.Unique("key", 24*time.Hour))
			h.Advance(3 * time.Hour)
			h.wants("a 1+90")
			if e := scheduleOf(h.T, h.Client(), "a"); e.Sent != 2 || e.Missed != 1 {
				h.Errorf("got %+v, want a missed tick", e)
			}
		},
		"a backfill is sent in order and once": func(h *hourly) {
			put(h.T, h.Client(), "a", "@every 1h", tasks.Overlap(tasks.OverlapCancel), tasks.In(time.Minute))
			for range 2 {
				n, err := h.Client().Schedules().Backfill(h.Context(), "a", time.Now().Add(-3*time.Hour), time.Now())
				if n != 3 || err != nil {
					h.Fatalf("got %d, %v, want 3 ticks", n, err)
				}
				h.Advance(10 * time.Minute)
			}
			if e := scheduleOf(h.T, h.Client(), "a"); len(h.ran) != 3 || !strings.HasPrefix(h.ran[0], "a -3") || !strings.HasPrefix(h.ran[1], "a -2") || e.Sent != 3 || e.Requested != 0 || e.Missed != 0 {
				h.Errorf("got %q and %+v, want three runs", h.ran, e)
			}
			for what, to := range map[string]time.Time{"too many": time.Now(), "reversed": time.Now().Add(-9999 * time.Hour), "future": time.Now().Add(time.Hour)} {
				if _, err := h.Client().Schedules().Backfill(h.Context(), "a", time.Now().Add(-2000*time.Hour), to); !errors.Is(err, tasks.ErrInvalid) {
					h.Errorf("%s: got %v, want ErrInvalid", what, err)
				}
			}
		},
		"requested ticks are limited": func(h *hourly) {
			put(h.T, h.Client(), "a", "@every 1h")
			_, err := h.Client().Schedules().Backfill(h.Context(), "a", time.Now().Add(-1000*time.Hour).Add(time.Second), time.Now())
			testutil.Ok(h.T, err)
			if _, err := h.Client().Schedules().Trigger(h.Context(), "a"); !errors.Is(err, tasks.ErrFull) {
				h.Errorf("got %v, want ErrFull", err)
			}
		},
		"jitter delays within its limit": func(h *hourly) {
			for i := range 20 {
				testutil.Ok(h.T, h.Client().Schedules().Put(h.Context(), tasks.Schedule{Name: fmt.Sprint(i), Spec: "@every 1h", Work: scheduled.S("a"), Jitter: 30 * time.Minute}))
			}
			h.Advance(time.Hour + 30*time.Minute)
			slices.Sort(h.ran)
			if len(h.ran) != 20 || len(slices.Compact(h.ran)) < 5 || strings.HasPrefix(h.ran[0], "a 0") {
				h.Errorf("got the runs %q, want 20 of the first tick at different times", h.ran)
			}
		},
		"a deleted schedule sends nothing": func(h *hourly) {
			put(h.T, h.Client(), "a", "@every 1h", tasks.Labels(map[string]string{"k": "v"}))
			testutil.Ok(h.T, h.Client().Schedules().Delete(h.Context(), "a"))
			h.Advance(2 * time.Hour)
			h.wants()
			c, ctx := h.Client(), h.Context()
			for what, err := range map[string]error{
				"get": second(c.Inspect().Schedule(ctx, "a")), "pause": c.Schedules().Pause(ctx, "a"), "resume": c.Schedules().Resume(ctx, "a"), "trigger": second(c.Schedules().Trigger(ctx, "a")),
				"backfill": second(c.Schedules().Backfill(ctx, "a", time.Now(), time.Now())), "delete": c.Schedules().Delete(ctx, "a"),
			} {
				if !errors.Is(err, tasks.ErrNotFound) {
					h.Errorf("%s: got %v, want ErrNotFound", what, err)
				}
			}
			if keys := h.Client().Redis().Keys(ctx, "*schedule*").Val(); len(keys) > 0 {
				h.Errorf("got keys %v, want none", keys)
			}
		},
		"a group is equal to a list": func(h *hourly) {
			sync := func(group string, names ...string) error {
				var list []tasks.Schedule
				for _, name := range names {
					list = append(list, tasks.Schedule{Name: name, Spec: "@daily", Work: scheduled.S(name)})
				}
				return h.Client().Schedules().Sync(h.Context(), group, list)
			}
			put(h.T, h.Client(), "customer", "@daily")
			put(h.T, h.Client(), "b", "@daily") // it becomes a member
			testutil.Ok(h.T, sync("shop", "a", "b"))
			testutil.Ok(h.T, sync("blog", "d"))
			testutil.Ok(h.T, sync("shop", "b", "c"))
			for what, err := range map[string]error{`group "shop"`: sync("blog", "d", "b"), "twice": sync("blog", "x", "x"), "Name": sync("blog", "x", ""), "1 to 200": sync("", "x")} {
				if err == nil || !strings.Contains(err.Error(), what) {
					h.Errorf("got %v, want an error with %s", err, what)
				}
			}
			if got, want := schedulesOf(h, tasktype.ScheduleFilter{}), "[b:shop c:shop customer: d:blog]"; got != want {
				h.Errorf("got %s, want %s", got, want)
			}
			testutil.Ok(h.T, sync("shop"))
			if got, want := schedulesOf(h, tasktype.ScheduleFilter{}), "[customer: d:blog]"; got != want {
				h.Errorf("got %s, want %s", got, want)
			}
		},
		"schedules are listed by name": func(h *hourly) {
			for i := range 5 {
				put(h.T, h.Client(), fmt.Sprint("b", i), "@daily", tasks.Labels(map[string]string{"odd": strconv.FormatBool(i%2 == 1)}))
			}
			put(h.T, h.Client(), "a", "@daily")
			put(h.T, h.Client(), "bä", "@daily")
			for want, f := range map[string]tasktype.ScheduleFilter{
				"[a: b0: b1: b2: b3: b4: bä:]": {}, "[b0: b1: b2: b3: b4: bä:]": {Prefix: "b", Limit: 2}, "[bä:]": {Prefix: "bä"}, "[b1: b3:]": {Labels: map[string]string{"odd": "true"}, Limit: 1}, "[]": {Prefix: "c"},
			} {
				if got := schedulesOf(h, f); got != want {
					h.Errorf("%+v: got %s, want %s", f, got, want)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(newHourly(t))
		})
	}
}

// schedulesOf returns the names and groups on all pages.
func schedulesOf(h *hourly, f tasktype.ScheduleFilter) string {
	h.Helper()
	all := []string{}
	for {
		page, next, err := h.Client().Inspect().Schedules(h.Context(), f)
		testutil.Ok(h.T, err)
		for _, e := range page {
			all = append(all, e.Name+":"+e.Group)
		}
		if f.Cursor = next; next == "" {
			return fmt.Sprint(all)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestInvalidSchedules(t *testing.T) {
	t.Parallel()
	client := newClient(t, redistest.Mini(t))
	valid := tasks.Schedule{Name: "a", Spec: "@daily", Work: scheduled.S("x")}
	for want, change := range map[string]func(*tasks.Schedule){
		"Name":                  func(s *tasks.Schedule) { s.Name = "" },
		"1 to 200 bytes":        func(s *tasks.Schedule) { s.Name = strings.Repeat("n", 201) },
		"control":               func(s *tasks.Schedule) { s.Name = "a\nb" },
		"no date matches":       func(s *tasks.Schedule) { s.Spec = "0 0 30 2 *" },
		`Spec: spec "61`:        func(s *tasks.Schedule) { s.Spec = "61 * * * *" },
		"Work: invalid":         func(s *tasks.Schedule) { s.Work = nil },
		"Work: invalid signatu": func(s *tasks.Schedule) { s.Work = tasks.New[string, string]("").S("x") },
		"pass a key":            func(s *tasks.Schedule) { s.Work = scheduled.S(strings.Repeat("x", 10<<20)) },
		"drop tasks.ID":         func(s *tasks.Schedule) { s.Options = []tasks.SendOption{tasks.ID("mine")} },
		"tasks.At":              func(s *tasks.Schedule) { s.Options = []tasks.SendOption{tasks.At(time.Now())} },
		"tasks.Deadline":        func(s *tasks.Schedule) { s.Options = []tasks.SendOption{tasks.Deadline(time.Now())} },
		"Overlap(":              func(s *tasks.Schedule) { s.Options = []tasks.SendOption{tasks.Overlap("never")} },
		"CatchUp 1001":          func(s *tasks.Schedule) { s.CatchUp = 1001 },
		"Jitter 24h0m0s":        func(s *tasks.Schedule) { s.Jitter = 24 * time.Hour },
		"Jitter -1ns":           func(s *tasks.Schedule) { s.Jitter = -1 },
	} {
		s := valid
		change(&s)
		if err := client.Schedules().Put(t.Context(), s); !errors.Is(err, tasks.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want ErrInvalid with %q", err, want)
		}
	}
	testutil.Ok(t, client.Schedules().Put(t.Context(), valid))
}

// Several workers send each tick once, on a cluster into the shard of the schedule.
func TestWorkersShareTicks(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		client, count := countRuns(t, rdb)
		for range 2 {
			m := tasks.NewMux()
			tasks.Handle(m, tasks.New[string, string]("schedule.other"), func(_ context.Context, s string) (string, error) { return s, nil })
			runWorker(t, client, m, tasks.WorkerConfig{Queues: map[string]int{"other": 1}})
		}
		names := []string{"a.b", "a_b", "a/b", strings.Repeat("long", 50)}
		for _, name := range names {
			put(t, client, name, "@every 50ms", tasks.Overlap(tasks.OverlapQueue))
		}
		sent := func(n int64) {
			t.Helper()
			for _, name := range names {
				testutil.Eventually(t, "ticks of "+name, func() bool { return scheduleOf(t, client, name).Sent >= n })
			}
		}
		sent(10)
		id := testutil.Must(client.Schedules().Trigger(t.Context(), "a/b"))(t)
		testutil.Eventually(t, "the requested tick runs", func() bool { return count.seen()[id] == 1 })
		var all int64
		for _, name := range names {
			testutil.Ok(t, client.Schedules().Pause(t.Context(), name))
			all += scheduleOf(t, client, name).Sent
		}
		testutil.Eventually(t, "all have run", func() bool { return int64(len(count.seen())) == all })
		count.once(t)
	})
}

// A schedule that changes while a worker sends its tick sends nothing, and the tick is not lost.
func TestChangeDuringATick(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(t *testing.T, c *tasks.Client){
		"pause":  func(t *testing.T, c *tasks.Client) { testutil.Ok(t, c.Schedules().Pause(t.Context(), "a")) },
		"delete": func(t *testing.T, c *tasks.Client) { testutil.Ok(t, c.Schedules().Delete(t.Context(), "a")) },
		"put":    func(t *testing.T, c *tasks.Client) { put(t, c, "a", "@yearly") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := redistest.New(t)
			client := newClient(t, redis.NewClient(rdb.(*redis.Client).Options()))
			t.Cleanup(func() { _ = client.Redis().Close() })
			var fired atomic.Int64
			rdb.AddHook(redistest.Before(func(_ context.Context, cmd redis.Cmder) {
				if kindOf(cmd) == "fire" && fired.Add(1) == 1 {
					change(t, client)
				}
			}))
			_, count := countRuns(t, rdb)
			put(t, client, "other", "@every 1s")
			put(t, client, "a", "@every 1s")
			testutil.Eventually(t, "a tick of the other schedule", func() bool { return fired.Load() > 3 && len(count.seen()) > 2 })
			for id := range count.seen() {
				if strings.HasPrefix(id, "a_") && name == "delete" {
					t.Errorf("got workflow %s, want none of the changed schedule", id)
				}
			}
			count.once(t)
		})
	}
}

// The clock of Redis is ahead or late, and is set forward and back: ticks continue, and each is sent once.
func TestScheduleFollowsTheClockOfRedis(t *testing.T) {
	t.Parallel()
	for _, ahead := range []time.Duration{-10 * time.Minute, 10 * time.Minute} {
		t.Run(fmt.Sprint("Redis ahead by ", ahead), func(t *testing.T) {
			t.Parallel()
			rdb, jump := redistest.Clock(t)
			jump(ahead)
			var fails atomic.Bool
			failed := make(chan struct{}, 100)
			rdb.AddHook(redistest.Calls(func(_ context.Context, next func() error, cmds ...redis.Cmder) error {
				if args := cmds[0].Args(); fails.Load() && len(args) > 1 && store.ScriptName(fmt.Sprint(args[1])) == "due" {
					failed <- struct{}{}
					return redistest.ErrFault
				}
				return next()
			}))
			client, count := countRuns(t, rdb)
			ticks := func(when string) {
				t.Helper()
				had := len(count.seen())
				testutil.Eventually(t, "a tick "+when, func() bool { return len(count.seen()) > had })
			}
			put(t, client, "tick", "@every 1s", tasks.Expires(30*time.Second))
			ticks("at first")
			jump(-time.Hour)
			ticks("after the clock was set back")
			jump(2 * time.Hour)
			ticks("after the clock was set forward")
			fails.Store(true) // as while another Redis takes over
			<-failed
			jump(-time.Hour)
			fails.Store(false)
			ticks("of a Redis whose clock is late")
			count.once(t)
		})
	}
}

// A trigger that its connection repeats, because Redis was slow, requests one tick.
func TestRepeatedTriggerRequestsOneTick(t *testing.T) {
	t.Parallel()
	f := redistest.NewFault(redistest.Repeated, redistest.EveryCall)
	f.Match = func(cmd redis.Cmder) bool { return slices.Contains(cmd.Args(), any("trigger")) }
	c := newClient(t, f.Client(t, redistest.URL(t)))
	put(t, c, "a", "@every 1h")
	f.Arm()
	for n := range int64(3) {
		testutil.Must(c.Schedules().Trigger(t.Context(), "a"))(t)
		if got := scheduleOf(t, c, "a").Requested; got != n+1 {
			t.Errorf("got %d requested ticks, want %d", got, n+1)
		}
	}
}

const tickerURL = "TASKS_TEST_TICKER_URL"

// TestChildTicker is the worker process of the test below.
func TestChildTicker(t *testing.T) {
	if os.Getenv(tickerURL) == "" {
		t.SkipNow()
	}
	client := testutil.Must(tasks.Connect(t.Context(), os.Getenv(tickerURL)))(t)
	mux := tasks.NewMux()
	tasks.Handle(mux, scheduled, func(ctx context.Context, s string) (string, error) {
		return s, client.Redis().SAdd(ctx, "ran", tasks.InfoFrom(ctx).Tick.UnixMilli()).Err()
	})
	runWorker(t, client, mux, tasks.WorkerConfig{Ready: func() { fmt.Println("child is ready") }})
	<-t.Context().Done()
}

func tickerProcess(t *testing.T, url string) *os.Process {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestChildTicker$", "-test.timeout=300s")
	cmd.Env = append(os.Environ(), tickerURL+"="+url)
	out := testutil.Must(cmd.StdoutPipe())(t)
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
	t.Fatal("worker process did not become ready")
	return nil
}

// Workers are killed and suspended: each tick is sent once, also if results are kept for a moment only.
func TestTicksOfKilledWorkers(t *testing.T) {
	t.Parallel()
	url := redistest.URL(t)
	client := connect(t, url)
	t.Cleanup(func() { _ = client.Close() })
	procs := []*os.Process{tickerProcess(t, url), tickerProcess(t, url), tickerProcess(t, url)}
	put(t, client, "often", "@every 40ms", tasks.Retention(time.Millisecond))
	more := func() {
		t.Helper()
		had := scheduleOf(t, client, "often").Sent
		testutil.Eventually(t, "more ticks", func() bool { return scheduleOf(t, client, "often").Sent >= had+20 })
	}
	more()
	testutil.Ok(t, procs[0].Kill())
	testutil.Ok(t, procs[1].Signal(syscall.SIGSTOP))
	more()
	testutil.Ok(t, procs[1].Signal(syscall.SIGCONT))
	more()
	testutil.Ok(t, client.Schedules().Pause(t.Context(), "often"))
	e := scheduleOf(t, client, "often")
	var ran []string
	testutil.Eventually(t, "all ticks run", func() bool {
		ran = client.Redis().SMembers(t.Context(), "ran").Val()
		return int64(len(ran)) >= e.Sent
	})
	slices.Sort(ran)
	first, _ := strconv.ParseInt(ran[0], 10, 64)
	if want := (e.Last.UnixMilli()-first)/40 + 1; int64(len(ran)) != e.Sent || e.Sent+e.Missed != want {
		t.Errorf("%d ticks have run, %d were sent and %d missed, want %d in all", len(ran), e.Sent, e.Missed, want)
	}
}
