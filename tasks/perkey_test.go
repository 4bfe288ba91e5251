package tasks_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
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

// delivery is the input of the tasks in these tests.
type delivery struct {
	Customer string
	N        int
}

func customerOf(d delivery) string { return d.Customer }

// office is the state of the handlers of deliveries.
type office struct {
	client *tasks.Client

	mu       sync.Mutex // guards the fields below
	running  map[string]int
	most     map[string]int // that ran at once
	attempts map[tasktype.Outcome]int
	gates    map[string]chan struct{}
}

func newOffice(rdb redis.UniversalClient) *office {
	return &office{client: tasks.NewClient(rdb), running: map[string]int{}, most: map[string]int{}, attempts: map[tasktype.Outcome]int{},
		gates: map[string]chan struct{}{}}
}

// hold makes the deliveries of a customer wait until the returned function is called.
func (o *office) hold(customer string) (release func()) {
	gate := make(chan struct{})
	o.mu.Lock()
	defer o.mu.Unlock()
	o.gates[customer] = gate
	return sync.OnceFunc(func() { close(gate) })
}

func (o *office) deliver(ctx context.Context, d delivery) (int, error) {
	o.mu.Lock()
	o.running[d.Customer]++
	o.most[d.Customer] = max(o.most[d.Customer], o.running[d.Customer])
	gate := o.gates[d.Customer]
	o.mu.Unlock()
	defer func() {
		o.mu.Lock()
		o.running[d.Customer]--
		o.mu.Unlock()
	}()
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	return d.N, nil
}

// runs returns how many deliveries of a customer are running.
func (o *office) runs(customer string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.running[customer]
}

// mostOf returns how many deliveries of a customer ran at once.
func (o *office) mostOf(customer string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.most[customer]
}

// work starts a worker for a task, which ends with the test.
func (o *office) work(t *testing.T, task tasks.Task[delivery, int], change ...func(*tasks.WorkerConfig)) {
	t.Helper()
	m := tasks.NewMux()
	tasks.Handle(m, task, o.deliver)
	cfg := tasks.WorkerConfig{Concurrency: 8, Grace: time.Second, Observe: func(a tasktype.Attempt) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.attempts[a.Outcome]++
	}}
	for _, c := range change {
		c(&cfg)
	}
	runWorker(t, o.client, m, cfg)
}

// deliveries are n deliveries to each of some customers.
func deliveries(n int, customers ...string) (out []delivery) {
	for i := range n {
		for _, c := range customers {
			out = append(out, delivery{c, i})
		}
	}
	return out
}

func customers(n int) (out []string) {
	for i := range n {
		out = append(out, "customer "+strconv.Itoa(i))
	}
	return out
}

// nothingOfLimits checks that Redis has nothing of any limit.
func nothingOfLimits(t *testing.T, rdb redis.UniversalClient) {
	t.Helper()
	testutil.Eventually(t, "nothing is left of the limits", func() bool { return len(limitKeys(t, rdb)) == 0 })
}

// limitKeys returns the keys of limits.
func limitKeys(t *testing.T, rdb redis.UniversalClient) (keys []string) {
	t.Helper()
	for _, k := range keysOf(t, rdb) {
		if strings.Contains(k, ":limit:") {
			keys = append(keys, k)
		}
		if strings.HasSuffix(k, "}:agenda") {
			for _, entry := range rdb.ZRange(t.Context(), k, 0, -1).Val() {
				if strings.HasPrefix(entry, "!limit/") {
					keys = append(keys, entry)
				}
			}
		}
	}
	return keys
}

// The deliveries of a slow customer occupy only the slots that its limit allows: those of the others are done meanwhile. None makes
// an attempt more.
func TestSlowCustomerDelaysNoOther(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		o := newOffice(rdb)
		deliver := tasks.New[delivery, int]("deliver", tasks.Limited(tasks.Concurrency("concurrency", 2), customerOf))
		release := o.hold("slow")
		o.work(t, deliver)
		slow := sendEach(t, o, deliver, deliveries(20, "slow"))
		testutil.Eventually(t, "two run", func() bool { return o.runs("slow") == 2 })
		for _, run := range sendEach(t, o, deliver, deliveries(5, customers(19)...)) {
			testutil.Must(run.Wait(limited(t)))(t)
		}
		testutil.Eventually(t, "the others wait for their customer", func() bool {
			ns, err := o.client.Workflow(slow[19].ID()).Nodes(t.Context())
			return err == nil && ns[0].Waits != ""
		})
		if n := o.runs("slow"); n != 2 {
			t.Errorf("%d deliveries of the slow customer run, want 2", n)
		}
		release()
		for _, run := range slow {
			testutil.Must(run.Wait(limited(t)))(t)
		}
		nothingOfLimits(t, rdb)
		o.mu.Lock()
		defer o.mu.Unlock()
		if want := map[tasktype.Outcome]int{tasktype.OutcomeSuccess: 20 + 19*5}; !maps.Equal(o.attempts, want) {
			t.Errorf("attempts: got %v, want %v", o.attempts, want)
		}
		for customer, n := range o.most {
			if n > 2 {
				t.Errorf("%d deliveries of %s ran at once", n, customer)
			}
		}
	})
}

// sendEach sends a workflow for each delivery.
func sendEach(t *testing.T, o *office, task tasks.Task[delivery, int], ds []delivery) (runs []*tasks.Run[int]) {
	t.Helper()
	for _, d := range ds {
		run := testutil.Must(task.S(d).Send(t.Context(), o.client, tasks.FairnessKey(strings.ReplaceAll(d.Customer, " ", "-"))))(t)
		runs = append(runs, run)
	}
	return runs
}

// A key function that panics or ends its goroutine fails the attempt. An empty key has no limit, and a long key has one.
func TestKeysOfAllKinds(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		o := newOffice(rdb)
		deliver := tasks.New[delivery, int]("deliver", tasks.MaxRetry(1), tasks.ConstantBackoff(time.Millisecond), tasks.Limited(tasks.Concurrency("concurrency", 1), func(d delivery) string {
			switch d.Customer {
			case "panic":
				panic("no such customer")
			case "exit":
				runtime.Goexit()
			case "free":
				return ""
			}
			return d.Customer
		}))
		o.work(t, deliver)
		for customer, code := range map[string]string{"panic": tasktype.CodePanic, "exit": tasktype.CodeError} {
			run, err := deliver.S(delivery{Customer: customer}).Send(t.Context(), o.client)
			testutil.Ok(t, err)
			_, err = run.Wait(limited(t))
			if f := (*tasks.Failure)(nil); !errors.As(err, &f) || f.Code != code || f.Attempts != 2 {
				t.Errorf("%s: got %v, want a failure with code %s after two attempts", customer, err, code)
			}
		}
		long := strings.Repeat("long\n", 100_000)
		for customer, want := range map[string]int{"free": 4, long: 1, "a\tb/c\nd:e -9 \x00": 1} {
			release := o.hold(customer)
			runs := sendAll(t, o, deliver, deliveries(4, customer))
			testutil.Eventually(t, "as many run as may", func() bool { return o.runs(customer) == want })
			for _, k := range limitKeys(t, rdb) {
				if len(k) > 300 {
					t.Errorf("a key of %d bytes: %.300s", len(k), k)
				}
			}
			release()
			if got, err := runs.Wait(limited(t)); err != nil || !slices.Equal(got, ints(4)) {
				t.Fatalf("%.20q: got %v, %v", customer, got, err)
			}
			if most := o.mostOf(customer); most > want {
				t.Errorf("%.20q: %d ran at once, want %d", customer, most, want)
			}
		}
		nothingOfLimits(t, rdb)
	})
}

// sendAll sends deliveries as one group.
func sendAll(t *testing.T, o *office, task tasks.Task[delivery, int], ds []delivery) *tasks.Run[[]int] {
	t.Helper()
	run := testutil.Must(tasks.Each(ds, task).Send(t.Context(), o.client))(t)
	return run
}

// A limit that is raised while nodes wait applies to them once a worker with the new limit runs an attempt.
func TestLimitIsChangedWhileNodesWait(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		o := newOffice(rdb)
		limit := func(n int) tasks.Task[delivery, int] {
			return tasks.New[delivery, int]("deliver", tasks.Limited(tasks.Concurrency("concurrency", n), customerOf))
		}
		release := o.hold("c")
		o.work(t, limit(1))
		first := sendAll(t, o, limit(1), deliveries(10, "c"))
		testutil.Eventually(t, "nine wait", func() bool { return waiting(t, o, first.ID()) == 9 })
		o.work(t, limit(4), func(c *tasks.WorkerConfig) { c.Queues = map[string]int{"new": 1} })
		second := testutil.Must(limit(4).S(delivery{"c", 0}, tasks.Queue("new")).Send(t.Context(), o.client))(t)
		testutil.Eventually(t, "four run", func() bool { return o.runs("c") == 4 })
		release()
		testutil.Must(second.Wait(limited(t)))(t)
		testutil.Must(first.Wait(limited(t)))(t)
		nothingOfLimits(t, rdb)
	})
}

// waiting returns how many nodes of a workflow wait for a limit.
func waiting(t *testing.T, o *office, id string) (n int) {
	t.Helper()
	nodes := testutil.Must(o.client.Workflow(id).Nodes(t.Context()))(t)
	for i := range nodes {
		if strings.Contains(nodes[i].Waits, "limit") {
			n++
		}
	}
	return n
}

// A limit is shared by tasks, changed for a key or for all, and held, while workers run.
func TestLimitIsChangedAtRunTime(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		o := newOffice(rdb)
		limit := tasks.Concurrency("customers", 1)
		deliver, remind := tasks.New[delivery, int]("deliver", tasks.Limited(limit, customerOf)), tasks.New[delivery, int]("remind", tasks.Limited(limit, customerOf))
		o.work(t, deliver)
		o.work(t, remind)
		ctx := t.Context()
		releaseA, releaseB := o.hold("a"), o.hold("b")
		first, second := sendAll(t, o, deliver, deliveries(4, "a")), sendAll(t, o, remind, deliveries(4, "a"))
		runs := func(customer string, n int) {
			t.Helper()
			testutil.Eventually(t, fmt.Sprintf("%d run for %s", n, customer), func() bool { return o.runs(customer) == n })
		}
		runs("a", 1)
		testutil.Ok(t, o.client.SetLimit(ctx, "customers", "a", 5))
		runs("a", 5)
		testutil.Ok(t, o.client.SetLimit(ctx, "customers", tasktype.AllKeys, 0))
		third := sendAll(t, o, deliver, deliveries(3, "b"))
		states := func() (out []string) {
			all := testutil.Must(o.client.Inspect().Limits(ctx, "customers"))(t)
			for _, l := range all {
				out = append(out, fmt.Sprintf("%s %d %t running %d waiting %d held %t", l.Key, l.N, l.Changed, l.Running, l.Waiting, !l.Held.IsZero()))
			}
			return out
		}
		want := []string{"* 0 true running 0 waiting 0 held false", "a 5 true running 5 waiting 3 held false", "b 0 true running 0 waiting 3 held false"}
		testutil.Eventually(t, "all wait", func() bool { return slices.Equal(states(), want) })
		testutil.Ok(t, o.client.HoldLimit(ctx, "customers", "b", time.Now().Add(time.Hour)))
		testutil.Ok(t, o.client.ResetLimit(ctx, "customers", tasktype.AllKeys))
		want = []string{"a 5 true running 5 waiting 3 held false", "b 1 false running 0 waiting 3 held true"}
		testutil.Eventually(t, "a is held", func() bool { return slices.Equal(states(), want) })
		testutil.Ok(t, o.client.HoldLimit(ctx, "customers", "b", time.Now().Add(200*time.Millisecond)))
		runs("b", 1)
		testutil.Ok(t, o.client.HoldLimit(ctx, "customers", "b", time.Time{}))
		testutil.Ok(t, o.client.ResetLimit(ctx, "customers", "a"))
		releaseA()
		releaseB()
		for _, run := range []*tasks.Run[[]int]{first, second, third} {
			testutil.Must(run.Wait(limited(t)))(t)
		}
		if o.mostOf("a") > 5 || o.mostOf("b") > 1 {
			t.Errorf("%d of a and %d of b ran at once, want 5 and 1", o.mostOf("a"), o.mostOf("b"))
		}
		nothingOfLimits(t, rdb)
	})
}

// A handler holds a limit whose service has refused it.
func TestHandlerHoldsALimit(t *testing.T) {
	t.Parallel()
	var f *taskstest.Fleet
	limit := tasks.Concurrency("api", 1)
	call := tasks.New[int, time.Time]("call", tasks.Limited[int](limit, nil))
	mux := tasks.NewMux()
	tasks.Handle(mux, call, func(ctx context.Context, n int) (time.Time, error) {
		if n == 0 {
			return f.Now(), f.Client().HoldLimit(ctx, limit.Name(), "", time.Now().Add(time.Hour))
		}
		return f.Now(), nil
	})
	f = taskstest.New(t, mux)
	at := testutil.Must(taskstest.Do(f, tasks.Each([]int{0, 1}, call)))(t)
	if d := at[1].Sub(at[0]).Round(time.Minute); d != time.Hour {
		t.Errorf("the second call began %s after the first, want 1h", d)
	}
}

// A node for which a place is reserved before it is delayed runs at once, also if the connection repeats the call that delays it.
func TestPlaceForANodeThatIsNotDelayedYet(t *testing.T) {
	t.Parallel()
	rdb, jump := redistest.Clock(t)
	plain := newClient(t, redis.NewClient(&redis.Options{Addr: rdb.(*redis.Client).Options().Addr}))
	begun, first := make(chan struct{}, 2), make(chan struct{})
	one := tasks.New[int, int]("limit.reserved", tasks.Limited(tasks.Concurrency("reserved", 1), func(int) string { return "all" }))
	mux := tasks.NewMux()
	tasks.Handle(mux, one, func(_ context.Context, n int) (int, error) {
		begun <- struct{}{}
		<-first
		return n, nil
	})
	var run *tasks.Run[int]
	end := sync.OnceFunc(func() {
		jump(9 * time.Second) // a reservation for a node that was not delayed for so long ends at once
		close(first)
		_, _ = run.Wait(limited(t))
	})
	f := redistest.NewFault(redistest.Repeated, 1)
	f.Match = func(cmd redis.Cmder) bool {
		args := cmd.Args()
		delays := len(args) > 1 && store.ScriptName(fmt.Sprint(args[1])) == "turn" && slices.Contains(args, any(store.AgainLimited))
		if delays {
			end()
		}
		return delays
	}
	f.Arm()
	rdb.AddHook(f)
	runWorker(t, tasks.NewClient(rdb), mux, tasks.WorkerConfig{Concurrency: 4})
	run = started(t, plain, one.S(1))
	<-begun
	wantValue(t, started(t, plain, tasks.Chain(one.S(2), one)), 2)
	if f.Calls() == 0 {
		t.Error("no node was delayed")
	}
}

// Changes that make no sense are errors, and so are two rules for one name.
func TestInvalidChangesOfLimits(t *testing.T) {
	t.Parallel()
	c := tasks.NewClient(redistest.Mini(t))
	for name, err := range map[string]error{
		"number -1":              c.SetLimit(t.Context(), "a", "", -1),
		"number 1000001":         c.SetLimit(t.Context(), "a", "", 1_000_001),
		`name "": give 1 to 100`: c.SetLimit(t.Context(), "", "", 1),
		"at most a year":         c.HoldLimit(t.Context(), "a", "", time.Now().AddDate(2, 0, 0)),
		"with two rules,":        twoRules(c),
	} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("got %v, want an error with %q", err, name)
		}
	}
}

func twoRules(c *tasks.Client) error {
	m := tasks.NewMux()
	for name, limit := range map[string]tasks.Limit{"one": tasks.Concurrency("a", 1), "two": tasks.Rate("a", 1, time.Second)} {
		tasks.Handle(m, tasks.New[int, int](name, tasks.Limited[int](limit, nil)), func(context.Context, int) (int, error) { return 0, nil })
	}
	_, err := tasks.NewWorker(c, m, tasks.WorkerConfig{})
	return err
}

// A limit whose function takes another type than the task is an error.
func TestFunctionOfALimitTakesTheInput(t *testing.T) {
	t.Parallel()
	task := tasks.New[int, int]("t", tasks.Limited(tasks.Concurrency("concurrency", 1), customerOf))
	c := tasks.NewClient(redistest.Mini(t))
	if _, err := task.S(1).Send(t.Context(), c); err == nil || !strings.Contains(err.Error(), "takes a tasks_test.delivery, not the input type int") {
		t.Errorf("send: got %v", err)
	}
	m := tasks.NewMux()
	tasks.Handle(m, task, func(context.Context, int) (int, error) { return 0, nil })
	if _, err := tasks.NewWorker(c, m, tasks.WorkerConfig{}); err == nil {
		t.Error("worker: got no error, want one")
	}
}

// A task can be revoked while its key is computed. Then its handler, which is called next, has a context that has ended.
func TestRevokeWhileAKeyIsComputed(t *testing.T) {
	t.Parallel()
	c := tasks.NewClient(redistest.New(t))
	beside := tasks.New[int, int]("beside")
	begun, heard, ended := make(chan string), make(chan struct{}), make(chan struct{})
	deliver := tasks.New[int, int]("deliver", tasks.Limited(tasks.Concurrency("concurrency", 1), func(int) string {
		begun <- "key"
		<-heard
		return "" // has no limit
	}))
	m := tasks.NewMux()
	tasks.Handle(m, beside, func(ctx context.Context, _ int) (int, error) {
		begun <- "beside"
		<-ctx.Done()
		close(heard)
		return 0, ctx.Err()
	})
	tasks.Handle(m, deliver, func(ctx context.Context, _ int) (int, error) {
		<-ctx.Done()
		close(ended)
		return 0, ctx.Err()
	})
	runWorker(t, c, m, tasks.WorkerConfig{Concurrency: 2})
	run := testutil.Must(tasks.Group(beside.S(1), deliver.S(1)).Send(t.Context(), c))(t)
	for range 2 {
		<-begun
	}
	testutil.Ok(t, run.Revoke(t.Context()))
	select {
	case <-ended:
	case <-limited(t).Done():
		t.Fatal("the context of the handler was not cancelled")
	}
}

// After the clock of Redis was set back, a rate lets tasks start again within its span.
func TestRateSurvivesASetClock(t *testing.T) {
	t.Parallel()
	rdb, jump := redistest.Clock(t)
	o := newOffice(rdb)
	deliver := tasks.New[delivery, int]("deliver", tasks.Limited[delivery](tasks.Rate("rate", 1, 50*time.Millisecond), nil))
	o.work(t, deliver)
	for _, step := range []time.Duration{0, -time.Hour, 2 * time.Hour, -time.Hour} {
		jump(step)
		if got, err := deliver.S(delivery{N: 1}).Do(limited(t), o.client); got != 1 || err != nil {
			t.Fatalf("after a step of %v: got %v, %v, want 1", step, got, err)
		}
	}
}
