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

// orders is a worker whose tasks reserve, charge and ship. Each step yields an ID that the task that undoes it receives.
type orders struct {
	client *tasks.Client
	ship   chan error // result of the last step

	mu  sync.Mutex
	log []string
}

var (
	Reserve = tasks.New[string, string]("order.reserve")
	Charge  = tasks.New[string, string]("order.charge")
	Ship    = tasks.New[string, string]("order.ship")
	Release = tasks.New[string, struct{}]("order.release", tasks.MaxRetry(2), tasks.ConstantBackoff(time.Millisecond))
	Refund  = tasks.New[string, struct{}]("order.refund", tasks.Queue("money"), tasks.Timeout(time.Minute))
)

// order sends an order; the part of its name before a colon is the step that fails.
func order(name string) tasks.Signature[string] {
	return tasks.Compensate(Reserve.S(name), Release, func(r tasks.Signature[string]) tasks.Signature[string] {
		return tasks.Compensate(tasks.Chain(r, Charge), Refund, func(c tasks.Signature[string]) tasks.Signature[string] {
			return tasks.Chain(c, Ship)
		})
	})
}

func newOrders(t *testing.T, rdb redis.UniversalClient) *orders {
	o := &orders{client: newClient(t, rdb), ship: make(chan error)}
	step := func(name string) func(context.Context, string) (string, error) {
		return func(ctx context.Context, in string) (string, error) {
			if strings.HasPrefix(in, name+":") {
				return "", tasks.WithCode("NO", errors.New(name+" refused"))
			}
			if name == "ship" && strings.HasPrefix(in, "wait:") {
				select {
				case err := <-o.ship:
					return "", err
				case <-ctx.Done():
					return "", ctx.Err()
				}
			}
			return in + "." + name, nil
		}
	}
	undo := func(name string) func(context.Context, string) error {
		return func(ctx context.Context, in string) error {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.log = append(o.log, fmt.Sprint(name, " ", in))
			if name == "release" && tasks.InfoFrom(ctx).Attempt == 1 || name == "refund" && strings.HasPrefix(in, "ship:stuck") {
				return fmt.Errorf("%s is down", name)
			}
			return nil
		}
	}
	m := tasks.NewMux()
	tasks.Handle(m, Reserve, step("reserve"))
	tasks.Handle(m, Charge, step("charge"))
	tasks.Handle(m, Ship, step("ship"))
	tasks.HandleAction(m, Release, undo("release"))
	tasks.HandleAction(m, Refund, undo("refund"))
	runWorker(t, o.client, m, tasks.WorkerConfig{Queues: map[string]int{"default": 1, "money": 1}})
	return o
}

// undone returns the calls of undo handlers since the last call.
func (o *orders) undone() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	log := o.log
	o.log = nil
	return log
}

func TestCompensate(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		o := newOrders(t, rdb)
		for _, c := range []struct {
			order, want, message string
			undone               []string
		}{
			{"book", "book.reserve.charge.ship", "", nil},
			{"reserve:a", "", "reserve refused", nil},
			{"charge:a", "", "charge refused", []string{"release charge:a.reserve", "release charge:a.reserve"}},
			{"ship:a", "", "ship refused", []string{"refund ship:a.reserve.charge", "release ship:a.reserve", "release ship:a.reserve"}},
			{"ship:stuck", "", "refund is down", []string{"refund ship:stuck.reserve.charge", "release ship:stuck.reserve", "release ship:stuck.reserve"}},
		} {
			run := started(t, o.client, order(c.order))
			got, err := run.Wait(limited(t))
			if c.message == "" && (err != nil || got != c.want) {
				t.Errorf("%s: got %q, %v, want %q", c.order, got, err, c.want)
			}
			if c.message != "" {
				f := wantFailure(t, err, c.message)
				if strings.HasSuffix(c.message, "refused") && f.Code != "NO" {
					t.Errorf("%s: got code %s, want the code of the step", c.order, f.Code)
				}
				step, _, _ := strings.Cut(c.message, " ")
				n, err := run.Node(t.Context(), f.Node)
				if f.Task != "order."+step || err != nil || n.Task != f.Task {
					t.Errorf("%s: got the failure of task %s, node %s (%s), %v, want %s", c.order, f.Task, f.Node, n.Task, err, step)
				}
			}
			if got := o.undone(); !slices.Equal(got, c.undone) {
				t.Errorf("%s: undone %q, want %q", c.order, got, c.undone)
			}
		}
	})
}

func TestRetryRepeatsStepsThatAreUndone(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		o := newOrders(t, rdb)
		run, err := order("ship:a").Send(t.Context(), o.client)
		testutil.Ok(t, err)
		for undone := 1; undone <= 2; undone++ {
			_, err = run.Wait(limited(t))
			wantFailure(t, err, "ship refused")
			testutil.Ok(t, run.WaitAll(limited(t)))
			opts := []tasks.RetryOption{Ship.RetryInput("", "a.reserve.charge")}
			if undone == 1 {
				opts = nil
			}
			testutil.Ok(t, run.Retry(t.Context(), opts...))
		}
		wantValue(t, run, "a.reserve.charge.ship")
		testutil.Ok(t, run.WaitAll(limited(t)))
		runs := map[string]int{}
		nodes, err := run.Nodes(t.Context())
		for _, n := range nodes {
			if n.Status != tasktype.Success {
				t.Errorf("got node %+v, want success", n)
			}
			if strings.HasPrefix(n.Task, "order.") {
				runs[n.Task] += n.Runs
			}
			if d, err := run.Node(t.Context(), n.ID); err != nil || d.Task != n.Task {
				t.Errorf("node %s: got %+v, %v", n.ID, d, err)
			}
		}
		// release fails in its first attempt.
		if want := "map[order.charge:3 order.refund:2 order.release:4 order.reserve:3 order.ship:3]"; err != nil || fmt.Sprint(runs) != want {
			t.Errorf("got runs %v, %v, want %s", runs, err, want)
		}
		if p, err := run.Progress(t.Context()); err != nil || p.Done != p.Total || !p.Ended {
			t.Errorf("got %+v, %v, want all tasks done", p, err)
		}
		stuck := started(t, o.client, order("ship:stuck"))
		testutil.Ok(t, stuck.WaitAll(limited(t)))
		if err := stuck.Retry(t.Context()); !errors.Is(err, tasks.ErrCompensated) {
			t.Errorf("retry after a failed refund: got %v, want %v", err, tasks.ErrCompensated)
		}
	})
}

func TestCompensateAfterCancel(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		o := newOrders(t, rdb)
		run := started(t, o.client, order("wait:a"))
		testutil.Eventually(t, "the order is being shipped", func() bool {
			nodes, err := run.Nodes(t.Context())
			return err == nil && slices.ContainsFunc(nodes, func(n tasktype.Node) bool {
				return n.Task == Ship.Name() && n.Status == tasktype.Started
			})
		})
		testutil.Ok(t, run.Cancel(t.Context()))
		if _, err := run.Wait(limited(t)); err == nil {
			t.Error("got no error after a cancel")
		}
		want := []string{"refund wait:a.reserve.charge", "release wait:a.reserve", "release wait:a.reserve"}
		testutil.Eventually(t, "the steps are undone", func() bool {
			o.mu.Lock()
			defer o.mu.Unlock()
			return slices.Equal(o.log, want)
		})
	})
}

func TestCompensationsAreChecked(t *testing.T) {
	t.Parallel()
	rest := func(s tasks.Signature[string]) tasks.Signature[string] { return s }
	s := tasks.Compensate(Reserve.S("a"), tasks.New[string, struct{}]("t.undo", tasks.MaxRetry(-2)), rest)
	if _, err := s.Send(t.Context(), tasks.NewClient(redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}))); !errors.Is(err, tasks.ErrInvalid) ||
		!strings.Contains(err.Error(), "t.undo") {
		t.Errorf("got %v, want an error that names the task", err)
	}
}

func TestRetryAndCancelAll(t *testing.T) {
	t.Parallel()
	runStories(t, []story{
		{"retry", func(t *testing.T, w *world) {
			const n = 1200 // more than two pages
			ids := make([]string, n)
			for i := range n {
				s := Fail.S(i)
				if i%3 == 0 {
					s = ID.S(i)
				}
				ids[i] = sent(t, w, s, tasks.Labels(map[string]string{"half": []string{"a", "b"}[i%2]})).ID()
			}
			settled := func() {
				testutil.Eventually(t, "no workflow is running", func() bool {
					counts, err := w.client.Inspect().CountWorkflows(t.Context())
					return err == nil && counts[tasktype.WorkflowRunning] == 0
				})
			}
			settled()
			if got, err := w.client.RetryAll(t.Context(), tasktype.WorkflowFilter{State: tasktype.WorkflowSucceeded}); err == nil {
				t.Errorf("got %d retries of successes, want an error", got)
			}
			for _, half := range []string{"a", "b"} {
				if got, err := w.client.RetryAll(t.Context(), tasktype.WorkflowFilter{Labels: map[string]string{"half": half}}); err != nil || got != n/3 {
					t.Errorf("got %d retries, %v, want %d", got, err, n/3)
				}
			}
			settled()
			for i, id := range ids {
				if got, want := w.ran(id+".0"), min(2, 1+i%3); got != want {
					t.Errorf("workflow %d ran %d times, want %d", i, got, want)
				}
			}
		}},
		{"retention", func(t *testing.T, w *world) {
			client := newClient(t, w.client.Redis(), tasks.SendDefaults(tasks.FailureRetention(48*time.Hour), tasks.Retention(time.Hour)))
			for _, c := range []struct {
				client *tasks.Client
				s      tasks.Signature[int]
				opts   []tasks.SendOption
				want   time.Duration
			}{
				{w.client, ID.S(1), nil, 24 * time.Hour},
				{w.client, Fail.S(1), nil, 7 * 24 * time.Hour},
				{client, ID.S(1), nil, time.Hour},
				{client, Fail.S(1), nil, 48 * time.Hour},
				{client, Fail.S(1), []tasks.SendOption{tasks.FailureRetention(2 * time.Hour)}, 2 * time.Hour},
			} {
				run := started(t, c.client, c.s, c.opts...)
				ended(t, w, run.ID())
				if ttl := w.client.Redis().PTTL(t.Context(), flowKey(t, w.client.Redis(), run.ID())).Val(); ttl > c.want || ttl < c.want-time.Minute {
					t.Errorf("got %v, want %v", ttl, c.want)
				}
			}
		}},
		{"cancel", func(t *testing.T, w *world) {
			const n = 520 // more than a page
			for i := range n {
				sent(t, w, tasks.Chain(ID.S(i), Inc), tasks.In(time.Hour), tasks.Labels(map[string]string{"half": []string{"a", "b"}[i%2]}))
			}
			if got, err := w.client.CancelAll(t.Context(), tasktype.WorkflowFilter{State: tasktype.WorkflowFailed}); err == nil {
				t.Errorf("got %d cancelled failures, want an error", got)
			}
			for _, half := range []string{"a", "b"} { // the stories of a Cluster share its workflows
				if got, err := w.client.CancelAll(t.Context(), tasktype.WorkflowFilter{Labels: map[string]string{"half": half}}); err != nil || got != n/2 {
					t.Errorf("got %d, %v, want %d", got, err, n/2)
				}
			}
			if counts, err := w.client.Inspect().CountWorkflows(t.Context()); err != nil || counts[tasktype.WorkflowFailed] < n {
				t.Errorf("got %v, %v, want %d failures", counts, err, n)
			}
		}},
	})
}
