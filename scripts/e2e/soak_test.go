//go:build e2e && unix

package e2e

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	_ "modernc.org/sqlite" // database of the outbox

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/orchestrator/demo"
	"muster/tasks"
	"muster/tasks/outbox"
	"muster/tasks/workqueue"
)

var (
	soakMinutes = flag.Int("minutes", 0, "run TestSoak for about `N` minutes, including drains; growth is judged from 20 minutes on")
	soakRate    = flag.Int("rate", 150, "send `N` workflows per minute in TestSoak, and other work in proportion")
	soakSeed    = flag.Uint64("seed", rand.Uint64()>>12, "seed `N` of the random faults of TestSoak; 0 to 2^53")
	soakDir     = flag.String("dir", "", "keep data, logs and report of TestSoak in `DIR`, and continue an interrupted run in it, with its duration, seed and rate")
)

// TestSoak runs the complete system for a long time under a moderate load, with a fault per minute, and checks for lost and duplicate
// work and for leaks: make soak.
//
// The system is a redis-server, muster start with worker processes, muster queue run, a separate worker for workflows, agents of
// examples/agents, and the sites and proxies of the demo. A run has four quarters. Each ends with a drain, in which the load stops
// until all sent work has finished. A line per minute is printed. In the second half the orchestrator and its first worker are not
// killed, so that leaks become visible.
//
// An interrupted run finishes the sent work, at most for four minutes, and stops. -dir continues it on the same data.
func TestSoak(t *testing.T) {
	if *soakMinutes == 0 {
		t.Skip("takes minutes: make soak")
	}
	r := &report{Minutes: max(2, *soakMinutes), Seed: *soakSeed, Rate: max(1, *soakRate), Began: time.Now().UTC(), Faults: map[string]int{}, Known: map[string]bool{}}
	dir := *soakDir
	if dir == "" {
		dir = testutil.Must(os.MkdirTemp("", "muster-soak-"))(t)
		t.Cleanup(func() {
			if !t.Failed() {
				_ = os.RemoveAll(dir)
			}
		})
	} else if !filepath.IsAbs(dir) {
		t.Fatalf("-dir %s: must be an absolute path", dir)
	}
	reportFile := filepath.Join(dir, "report.json")
	if raw, err := os.ReadFile(reportFile); err == nil {
		testutil.Ok(t, json.Unmarshal(raw, r))
		r.Resumed++
	}
	if r.Quarter == quarters {
		t.Fatalf("the run in %s has ended", dir)
	}
	t.Logf("%d minutes, -seed %d, in %s", r.Minutes, r.Seed, dir)
	ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process
	s := startSoak(t, dir, r)
	s.run(ctx)
	s.mu.Lock() // against the checks of unfinished work
	defer s.mu.Unlock()
	if ctx.Err() == nil {
		r.judge()
		text := r.markdown()
		testutil.Ok(t, os.WriteFile(filepath.Join(dir, "report.md"), []byte(text), 0o600))
		fmt.Println(text)
		if !r.OK {
			t.Errorf("the system failed the test; data and logs are in %s", dir)
		}
	} else {
		t.Errorf("interrupted after %s; to continue: make soak SOAK='-dir %s'", r.elapsed(), dir)
	}
	testutil.Ok(t, os.WriteFile(reportFile, testutil.Must(json.MarshalIndent(r, "", "  "))(t), 0o600))
}

// run runs the system under load until the end of the report, or until ctx is done and the sent work has finished.
func (s *soak) run(ctx context.Context) {
	r := s.report
	random := rand.New(rand.NewPCG(r.Seed, uint64(1+len(r.Samples))))
	began := time.Now().Add(-r.elapsed())
	quarter := time.Duration(r.Minutes) * time.Minute / quarters
	take := func(drained bool) {
		sample := s.measure(r.Quarter, drained)
		r.Samples = append(r.Samples, sample)
		s.t.Log(sample.line(s.accounts()))
	}
	for ; r.Quarter < quarters && ctx.Err() == nil; r.Quarter++ {
		until := began.Add(time.Duration(r.Quarter+1) * quarter).Add(-min(quarter/4, 90*time.Second)) // the rest is for the drain
		s.startLoad(ctx)
		for ctx.Err() == nil && time.Now().Before(until) {
			minute := time.Now().Add(min(time.Minute, max(time.Until(until), time.Second)))
			pause(ctx, time.Duration(random.IntN(20))*time.Second)
			s.inflict(ctx, random, r.Quarter >= quarters/2)
			pause(ctx, time.Until(minute))
			if err := s.audit(); err != nil {
				s.t.Log("audit:", err) // repeated by the drain
			}
			take(false)
		}
		s.drain()
		for range 3 {
			pause(ctx, 5*time.Second)
			if ctx.Err() == nil {
				take(true)
			}
		}
		if ctx.Err() != nil {
			break
		}
	}
	r.Seconds = int(time.Since(began).Seconds())
}

// soak is the running system with its load.
type soak struct {
	*fleet
	load
	t       *testing.T
	report  *report
	world   *demo.World
	redis   *redistest.Instance
	client  *tasks.Client
	queue   *workqueue.Queue
	outbox  *sql.DB
	files   string                   // base URL of the files of the work queue
	pids    map[string]*atomic.Int64 // of the processes that this test starts; 0 while one does not run
	metrics map[string]string        // metrics addresses by process
	last    time.Time                // time of the last sample
	used    map[int]float64          // CPU time of processes at the last sample by PID
}

// queueName is the name of the work queue under load.
const queueName = "soak"

// startSoak starts the system in dir.
func startSoak(t *testing.T, dir string, r *report) *soak {
	t.Helper()
	s := &soak{t: t, report: r, pids: map[string]*atomic.Int64{}, last: time.Now()}
	for i := len(r.Accounts); i < len(kinds); i++ {
		r.Accounts = append(r.Accounts, book{Kind: kinds[i]})
	}
	testutil.Ok(t, errors.Join(os.MkdirAll(filepath.Join(dir, "redis"), 0o700), os.MkdirAll(filepath.Join(dir, "data"), 0o700)))
	// appendfsync always: writes are in the kernel before the reply, and the kernel keeps them if the process is killed.
	s.redis = redistest.Server(t, "dir", filepath.Join(dir, "redis"), "appendonly", "yes", "appendfsync", "always", "auto-aof-rewrite-min-size", "16mb")
	s.client = connect(t, s.redis.URL())
	s.queue = workqueue.New(s.client.Redis(), queueName, workqueue.Config{})
	s.outbox = testutil.Must(openOutbox(t.Context(), dir))(t)
	t.Cleanup(func() { _ = s.outbox.Close() })
	s.files = testutil.Serve(t, http.HandlerFunc(serveFiles)).URL
	s.world = testutil.Must(demo.Start(t.Context(), demo.Config{Dir: dir}))(t)
	t.Cleanup(func() { _ = s.world.Close() })
	if _, err := exec.LookPath("chromium"); err == nil { // render the listings of a site
		path := filepath.Join(s.world.Definitions, s.world.News.Name+".yaml")
		definition := testutil.Must(os.ReadFile(path))(t)
		testutil.Ok(t, os.WriteFile(path, append(definition, "\nrender: {when: always, kinds: [listing]}\n"...), 0o600))
	}

	worker1 := testutil.FreePort(t) // muster start uses consecutive ports
	s.metrics = map[string]string{
		"queue run": testutil.FreeAddr(t), "task worker": testutil.FreeAddr(t),
		"worker-1": testutil.LoopbackAddr(worker1), "worker-2": testutil.LoopbackAddr(worker1 + 1),
	}
	s.fleet = newFleetIn(t, dir, map[string]any{
		"redis":   map[string]any{"url": s.redis.URL()},
		"workers": map[string]any{"processes": 2, "concurrency": 4, "metrics_listen": s.metrics["worker-1"]},
		"network": map[string]any{"allow": []string{strings.TrimPrefix(s.files, "http://")}},
		"proxies": map[string]any{
			"sources": s.world.Sources, "judges": []string{s.world.Judge}, "judge_key": s.world.JudgeKey,
			"allow_local": true, "refresh_every": "2m", "concurrency": 16,
		},
		"sites":    map[string]any{"dir": s.world.Definitions},
		"queue":    map[string]any{"max_workers": 4, "lease_ttl_seconds": 30, "heartbeat_seconds": 5, "retry_backoff_seconds": 1, "jitter_seconds": 1, "max_job_attempts": 20},
		"jobs":     map[string]any{"dedupe": "allow", "lease": "5s", "check_every": "5s", "max_retries": 50, "keep": "1h"},
		"webhooks": map[string]any{"keep": "10m"},
		"shutdown": map[string]any{"drain": "10s"},
	})
	s.metrics["orchestrator"] = strings.TrimPrefix(s.url, "http://")

	s.serve("orchestrator", nil, binary, "start", "--config", s.conf, "--log-format", "text")
	s.serve("queue run", nil, binary, "queue", "run", "--config", s.conf, "--queue", queueName, "--metrics-listen", s.metrics["queue run"])
	s.serve("task worker", []string{workerURL + "=" + s.redis.URL(), workerDir + "=" + dir, soakAddr + "=" + s.metrics["task worker"]}, os.Args[0])
	testutil.Eventually(t, "the API", func() bool { return s.get("/ready", nil) == nil })
	schedule := tasks.Schedule{Name: tickName, Spec: "@every 3s", Work: tick.S(0), Options: []tasks.SendOption{tasks.Retention(time.Second)}}
	testutil.Ok(t, s.client.Schedules().Put(t.Context(), schedule))
	if r.Resumed > 0 { // the proxies of before are gone
		testutil.Must(s.command(t.Context(), "proxies", "refresh"))(t)
	}
	python := interpreter(t, "python3")
	for _, role := range []string{"creator", "validator"} {
		for i := range 2 {
			s.serve(fmt.Sprint(role, "-", i+1), []string{"MUSTER_API=" + s.url}, python, exampleAgent(t, role+".py"))
		}
	}
	return s
}

// serve starts a process and restarts it whenever it exits, like a service. Its output is appended to NAME.log.
func (s *soak) serve(name string, env []string, args ...string) {
	s.t.Helper()
	log := testutil.Must(os.OpenFile(filepath.Join(s.dir, name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600))(s.t)
	pid := &atomic.Int64{}
	s.pids[name] = pid
	testutil.Background(s.t, func(ctx context.Context) error {
		defer log.Close()
		for ; ctx.Err() == nil; pause(ctx, 100*time.Millisecond) {
			cmd := exec.CommandContext(ctx, args[0], args[1:]...)
			cmd.Dir, cmd.Env = s.dir, s.env(env...)
			cmd.Stdout, cmd.Stderr = log, log
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C signals only this program
			cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
			cmd.WaitDelay = 20 * time.Second
			if err := cmd.Start(); err != nil {
				return err
			}
			pid.Store(int64(cmd.Process.Pid))
			_ = cmd.Wait() // the log contains the reason of the exit
			pid.Store(0)
		}
		return nil
	})
}

// env returns the environment of a child process. NO_PROXY disables proxies of the machine.
func (s *soak) env(more ...string) []string {
	return append(os.Environ(), append(more, "NO_PROXY=*", "PYTHONDONTWRITEBYTECODE=1")...)
}

// command runs a muster command with the settings and returns its output.
func (s *soak) command(ctx context.Context, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 50*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, append(args, "--config", s.conf)...)
	cmd.Dir, cmd.Env = s.dir, s.env()
	return cmd.Output()
}

// pid returns the PID of a process, or 0.
func (s *soak) pid(name string) int {
	switch pid, ok := s.pids[name]; {
	case ok:
		return int(pid.Load())
	case name == "redis":
		return s.redis.PID()
	}
	for _, pid := range pids(s.t, filepath.Join(s.dir, "data", "run"), name) {
		if syscall.Kill(pid, 0) == nil {
			return pid
		}
	}
	return 0
}

// faults are the possible faults; frequent ones are repeated.
var faults = []struct{ action, target string }{
	{"kill", "worker-1"}, {"kill", "worker-2"}, {"kill", "worker-2"}, {"kill", "task worker"}, {"kill", "queue run"}, {"kill", "redis"},
	{"kill", "creator-1"}, {"kill", "validator-1"}, {"kill", "orchestrator"}, {"stop", "orchestrator"},
	{"freeze", "worker-1"}, {"freeze", "worker-2"}, {"freeze", "task worker"}, {"freeze", "queue run"}, {"freeze", "redis"},
	{"freeze", "orchestrator"}, {"freeze", "validator-1"},
	{"cut", "connections"}, {"cut", "connections"}, {"cut", "subscriptions"}, {"cut", "pages"},
}

// lasting are the processes that are not stopped in the second half of a run.
var lasting = []string{"orchestrator", "worker-1"}

// inflict injects a random fault.
func (s *soak) inflict(ctx context.Context, random *rand.Rand, secondHalf bool) {
	f := faults[random.IntN(len(faults))]
	for secondHalf && (f.action == "kill" || f.action == "stop") && slices.Contains(lasting, f.target) {
		f = faults[random.IntN(len(faults))]
	}
	var err error
	pid := s.pid(f.target)
	switch {
	case f.target == "pages":
		s.cutPages()
	case f.target == "subscriptions":
		err = s.client.Redis().Do(ctx, "CLIENT", "KILL", "TYPE", "pubsub").Err()
	case f.target == "connections":
		err = s.client.Redis().Do(ctx, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes").Err()
	case pid == 0:
		err = errors.New("process not running")
	case f.action == "freeze":
		err = freeze(ctx, pid, time.Duration(2+random.IntN(14))*time.Second)
	case f.action == "stop":
		err = syscall.Kill(pid, syscall.SIGTERM)
	case f.target == "redis":
		s.redis.Kill()
		s.redis.Start()
	default:
		err = syscall.Kill(pid, syscall.SIGKILL)
	}
	name := f.action + " " + f.target
	if err != nil {
		s.t.Logf("%s: %v", name, err)
		return
	}
	s.t.Log(name)
	s.report.Faults[name]++
}

// serveFiles serves the files of the work queue. Few have distinct contents, because content is stored by checksum.
func serveFiles(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path == "/robots.txt":
		_, _ = io.WriteString(w, "User-agent: *\nDisallow: /private/\n")
	case strings.HasPrefix(r.URL.Path, "/good/"):
		_, _ = io.WriteString(w, strings.Repeat("content "+r.URL.Path[len(r.URL.Path)-1:]+"\n", 500))
	default:
		http.NotFound(w, r)
	}
}

// openOutbox opens the database in dir from whose transactions workflows are sent, and creates its outbox.
func openOutbox(ctx context.Context, dir string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "outbox.db")+"?_pragma=busy_timeout(20000)&_pragma=journal_mode(WAL)")
	if err == nil {
		_, err = db.ExecContext(ctx, outbox.Schema(outbox.SQLite))
	}
	return db, err
}

// tick is the task of the schedule, whose ticks are counted in a set.
var tick = tasks.New[int, struct{}]("soak.tick", tasks.MaxRetry(100), tasks.ConstantBackoff(time.Second))

const (
	tickName = "soak-tick"
	ticksKey = "soak:ticks"
)

// workInSoak makes a worker run ticks, serve metrics at an address, and send the workflows in the outbox.
func workInSoak(ctx context.Context, c *tasks.Client, m *tasks.Mux, addr string) error {
	tasks.Handle(m, tick, func(ctx context.Context, _ int) (struct{}, error) {
		return struct{}{}, c.Redis().SAdd(ctx, ticksKey, tasks.InfoFrom(ctx).Tick.UnixMilli()).Err()
	})
	db, err := openOutbox(ctx, os.Getenv(workerDir))
	if err != nil {
		return err
	}
	relay, err := outbox.NewRelay(outbox.Config{DB: db, Dialect: outbox.SQLite, Client: c})
	if err != nil {
		return err
	}
	server := &http.Server{Addr: addr, Handler: promhttp.Handler(), ReadHeaderTimeout: 10 * time.Second}
	for _, serve := range []func() error{server.ListenAndServe, func() error { return relay.Run(ctx) }} {
		go func() {
			if err := serve(); ctx.Err() == nil {
				panic(err) // the process is restarted
			}
		}()
	}
	return nil
}
