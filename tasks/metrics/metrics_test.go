package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/metrics"
	"muster/tasks/tasktype"
	"muster/tasks/workqueue"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// scrape returns the scraped samples by name and labels.
func scrape(t *testing.T, collectors ...prometheus.Collector) map[string]float64 {
	t.Helper()
	w := httptest.NewRecorder()
	metrics.Handler(collectors...).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	body, err := io.ReadAll(w.Body)
	if err != nil || w.Code != 200 {
		t.Fatalf("scrape: %d %v\n%s", w.Code, err, body)
	}
	out := map[string]float64{}
	for line := range strings.Lines(string(body)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		cut := strings.LastIndexByte(line, ' ')
		v, err := strconv.ParseFloat(strings.TrimSpace(line[cut+1:]), 64)
		if err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		out[line[:cut]] = v
	}
	return out
}

func expect(t *testing.T, got map[string]float64, want map[string]float64) {
	t.Helper()
	for k, v := range want {
		if g, ok := got[k]; !ok || g != v {
			t.Errorf("%s is %v (there: %v), expected %v", k, g, ok, v)
		}
	}
}

var (
	fine  = tasks.New[int, int]("m.fine")
	shaky = tasks.New[int, int]("m.shaky", tasks.MaxRetry(1), tasks.ConstantBackoff(time.Millisecond))
	never = tasks.New[int, int]("m.never", tasks.MaxRetry(1), tasks.ConstantBackoff(time.Hour))
	block = tasks.New[int, int]("m.block")
)

// startWorker runs a worker with 3 slots. Its task block closes running and waits for release.
func startWorker(t *testing.T, client *tasks.Client, process *metrics.Process, running chan<- struct{}, release <-chan struct{}) {
	t.Helper()
	mux := tasks.NewMux()
	tasks.Handle(mux, fine, func(_ context.Context, n int) (int, error) { return n, nil })
	tasks.Handle(mux, shaky, func(context.Context, int) (int, error) { return 0, errors.New("no") })
	tasks.Handle(mux, never, func(context.Context, int) (int, error) { return 0, errors.New("no") })
	tasks.Handle(mux, block, func(ctx context.Context, n int) (int, error) {
		close(running)
		<-release
		return n, nil
	})
	worker := testutil.Must(tasks.NewWorker(client, mux, tasks.WorkerConfig{Concurrency: 3, Observe: process.Observe}))(t)
	process.Watch(worker)
	testutil.Background(t, worker.Run)
}

func TestScrape(t *testing.T) {
	t.Parallel()
	client := tasks.NewClient(redistest.New(t))
	t.Cleanup(func() { _ = client.Close() })
	process, fleet := metrics.NewProcess(), metrics.NewFleet(client)
	running, release := make(chan struct{}), make(chan struct{})
	startWorker(t, client, process, running, release)
	send := func(s tasks.Signature[int], opts ...tasks.SendOption) *tasks.Run[int] {
		t.Helper()
		run := testutil.Must(s.Send(t.Context(), client, opts...))(t)
		return run
	}
	for range 3 {
		testutil.Must(send(fine.S(1)).Wait(t.Context()))(t)
	}
	if _, err := send(shaky.S(1)).Wait(t.Context()); err == nil {
		t.Fatal("got success of the shaky task, want failure")
	}
	send(never.S(1))
	held := send(block.S(1))
	<-running
	send(fine.S(1), tasks.In(time.Hour))
	send(fine.S(1), tasks.Queue("elsewhere"))
	var got map[string]float64
	testutil.Eventually(t, "all tasks are counted", func() bool {
		got = scrape(t, process, fleet)
		return got[`muster_task_attempts_total{outcome="retry",task="m.never"}`] == 1 && got[`muster_fleet_slots_busy`] >= 1 &&
			got[`muster_fleet_tasks{queue="default",state="retry"}`] >= 1
	})
	expect(t, got, map[string]float64{
		`muster_fleet_up`:      1,
		`muster_fleet_workers`: 1,
		`muster_fleet_slots`:   3,
		`muster_fleet_tasks{queue="default",state="scheduled"}`:        1,
		`muster_fleet_tasks{queue="elsewhere",state="pending"}`:        1,
		`muster_fleet_paused{queue="default"}`:                         0,
		`muster_fleet_outbox_age_seconds`:                              0,
		`muster_fleet_outbox_entries`:                                  2, // one scheduled task and one retry
		`muster_worker_slots`:                                          3,
		`muster_worker_recovered_total`:                                0,
		`muster_task_attempts_total{outcome="success",task="m.fine"}`:  3,
		`muster_task_attempts_total{outcome="retry",task="m.shaky"}`:   1,
		`muster_task_attempts_total{outcome="failure",task="m.shaky"}`: 1,
		`muster_task_errors_total{code="error",task="m.shaky"}`:        2,
		`muster_task_duration_seconds_count{task="m.fine"}`:            3,
		`muster_task_duration_seconds_bucket{task="m.fine",le="+Inf"}`: 3,
		`muster_task_duration_seconds_count{task="m.shaky"}`:           2,
	})
	if got[`muster_fleet_latency_seconds{queue="elsewhere"}`] <= 0 {
		t.Error("latency of a queue without workers: got none, want one")
	}
	close(release)
	if _, err := held.Wait(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestFleetWithoutRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	client := tasks.NewClient(server.Client())
	t.Cleanup(func() { _ = client.Close() })
	expect(t, scrape(t, metrics.NewFleet(client)), map[string]float64{"muster_fleet_up": 1, "muster_fleet_workers": 0})
	server.Stop()
	got := scrape(t, metrics.NewFleet(client))
	expect(t, got, map[string]float64{"muster_fleet_up": 0})
	if _, ok := got["muster_fleet_workers"]; ok {
		t.Error("number of workers without Redis: got one, want none")
	}
}

func TestLabelValuesAreLimited(t *testing.T) {
	t.Parallel()
	process := metrics.NewProcess()
	for i := range 1000 {
		process.Observe(tasktype.Attempt{Info: tasktype.Info{Task: fmt.Sprint("task", i)}, Outcome: tasktype.OutcomeFailure, Code: fmt.Sprint("code", i)})
	}
	process.Observe(tasktype.Attempt{Info: tasktype.Info{Task: "bad \xff name"}, Outcome: tasktype.OutcomeFailure, Code: "\xff"})
	got := scrape(t, process)
	names := map[string]bool{}
	sum := 0.0
	for k, v := range got {
		if m := regexp.MustCompile(`^muster_task_attempts_total\{.*task="([^"]*)"\}$`).FindStringSubmatch(k); m != nil {
			names[m[1]] = true
			sum += v
		}
	}
	if len(names) != metrics.MaxLabels+1 || sum != 1001 || !names["(other)"] {
		t.Errorf("%d names with %v attempts, expected %d with 1001", len(names), sum, metrics.MaxLabels+1)
	}
}

// A scrape counts scheduled tasks without reading their inputs, including tasks of asynq's own client.
func TestScrapeDoesNotReadInputs(t *testing.T) {
	t.Parallel()
	rdb, traffic := redistest.NewTraffic(t, redistest.URL(t))
	client := tasks.NewClient(rdb)
	t.Cleanup(func() { _ = client.Close() })
	const tasksDue = 300
	large := tasks.New[string, int]("m.large")
	for range tasksDue {
		testutil.Must(large.S(strings.Repeat("x", 64<<10)).Send(t.Context(), client, tasks.In(time.Hour)))(t)
	}
	plain := asynq.NewClientFromRedisClient(rdb)
	for range 2 {
		testutil.Must(plain.EnqueueContext(t.Context(), asynq.NewTask("plain", nil), asynq.ProcessIn(time.Hour)))(t)
	}
	testutil.Ok(t, rdb.ZAdd(t.Context(), "asynq:{default}:retry", redis.Z{Score: 1, Member: "other"}).Err())
	traffic.Take()
	expect(t, scrape(t, metrics.NewFleet(client)), map[string]float64{
		`muster_fleet_up`: 1,
		`muster_fleet_tasks{queue="default",state="scheduled"}`: tasksDue + 2,
		`muster_fleet_tasks{queue="default",state="retry"}`:     1,
	})
	if commands, bytes := traffic.Take(); commands > 100 || bytes > 100_000 {
		t.Errorf("the scrape took %d commands and %d bytes, want at most 100 and 100,000", commands, bytes)
	}
	if due, err := client.Inspect().Due(t.Context(), 20); err != nil || len(due) != 20 || due[0].Task != "m.large" || due[0].Queue != "default" || due[0].Status != tasktype.Pending {
		t.Errorf("got %d tasks, %+v, %v, want the first 20", len(due), due, err)
	}
	if _, bytes := traffic.Take(); bytes > 20_000 {
		t.Errorf("the list of 20 tasks took %d bytes, want at most 20,000", bytes)
	}
}

func TestQueue(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	q := workqueue.New(redistest.New(t), "q", workqueue.Config{MaxAttempts: 1})
	testutil.Must(q.Enqueue(ctx, workqueue.Item{ID: "done", Kind: "test"}, workqueue.Item{ID: "skip", Kind: "test"}, workqueue.Item{ID: "fail", Kind: "test"},
		workqueue.Item{ID: "late", Kind: "test", NotBefore: time.Now().Add(time.Hour)}, workqueue.Item{ID: "odd", Kind: "unregistered"}))(t)
	measured := metrics.NewQueue(q)
	handlers := workqueue.Handlers{"test": func(_ context.Context, it workqueue.Leased) (workqueue.Outcome, error) {
		switch it.ID {
		case "skip":
			return workqueue.Skipped("no"), nil
		case "fail":
			return workqueue.Outcome{}, errors.New("no")
		}
		return workqueue.Done(), nil
	}}
	pool := testutil.Must(workqueue.NewPool(q, handlers, workqueue.PoolConfig{Workers: 3, Observe: measured.Observe}))(t)
	measured.Watch(pool)
	ended := make(chan error)
	go func() { ended <- pool.Run(ctx) }()
	testutil.Eventually(t, "all but the late one to end", func() bool {
		s, err := q.Stats(t.Context())
		return err == nil && s.Open() == 1
	})
	cancel()
	testutil.Ok(t, <-ended)
	samples := scrape(t, measured)
	for name, want := range map[string]float64{
		`muster_queue_up{queue="q"}`: 1, `muster_queue_items{queue="q",state="done"}`: 1, `muster_queue_items{queue="q",state="error"}`: 2,
		`muster_queue_items{queue="q",state="skipped"}`: 1, `muster_queue_items{queue="q",state="queued"}`: 1, `muster_queue_items{queue="q",state="in_progress"}`: 0,
		`muster_queue_delayed_items{queue="q"}`: 1, `muster_queue_paused{queue="q"}`: 0, `muster_queue_outputs{queue="q"}`: 0,
		`muster_queue_leases_expired_total{queue="q"}`: 0, `muster_queue_runs_total{outcome="done",queue="q"}`: 1,
		`muster_queue_runs_total{outcome="error",queue="q"}`: 2, `muster_queue_leases{queue="q"}`: 0, `muster_queue_workers{queue="q"}`: 3,
		`muster_queue_wait_seconds_count{queue="q"}`: 4, `muster_queue_run_seconds_count{kind="test",queue="q"}`: 3,
		`muster_queue_run_seconds_count{kind="unknown",queue="q"}`: 1, `muster_queue_next_waiting_seconds{queue="q"}`: 0,
	} {
		if got, ok := samples[name]; !ok || got != want {
			t.Errorf("%s: got %v, %t, want %v", name, got, ok, want)
		}
	}
	for name := range samples {
		if strings.Contains(name, "unregistered") {
			t.Errorf("got %s, want no kind without a handler as a label", name)
		}
	}
	gone := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	defer func() { _ = gone.Close() }()
	samples = scrape(t, metrics.NewQueue(workqueue.New(gone, "q", workqueue.Config{})))
	if up, ok := samples[`muster_queue_up{queue="q"}`]; !ok || up != 0 || len(samples) > 40 {
		t.Errorf("without Redis: got %v, want up 0 and no items", samples)
	}
	if _, ok := samples[`muster_queue_items{queue="q",state="done"}`]; ok {
		t.Error("without Redis: got items, want none")
	}
}
