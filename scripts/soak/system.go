//go:build unix

package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/testutil"
	"muster/orchestrator/demo"
	"muster/scripts/internal/respawn"
	"muster/tasks"
)

// system contains all running processes.
type system struct {
	dir, data, conf string
	binary          string
	url             string // base URL of the API
	redisAddr       string
	metrics         map[string]string // metrics addresses by process
	world           *demo.World
	artifacts       *artifacts
	client          *tasks.Client
	outbox          *sql.DB
	http            *http.Client

	redis, muster, queue, worker *respawn.Process
	agents                       []*respawn.Process
	frozen                       []int        // frozen PIDs
	streams                      *http.Client // client for event streams, without a timeout
	cutPages                     func()
}

// workers is the number of worker processes of muster start.
const workers = 2

// queueName is the name of the work queue under load.
const queueName = "soak"

// startSystem starts the system in dir, on the ports of r. It sets these for a new run.
func startSystem(ctx context.Context, dir string, r *report) (_ *system, err error) {
	s := &system{
		dir: dir, data: filepath.Join(dir, "data"), conf: filepath.Join(dir, "muster.yaml"),
		metrics: map[string]string{}, http: &http.Client{Timeout: 20 * time.Second}, streams: &http.Client{},
	}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.binary, err = build(ctx, dir, "muster", "muster/cmd/muster"); err != nil {
		return nil, err
	}
	if s.artifacts, err = startArtifacts(); err != nil {
		return nil, err
	}
	if s.world, err = demo.Start(ctx, demo.Config{Dir: dir}); err != nil {
		return nil, err
	}
	if err := s.renderListings(); err != nil {
		return nil, err
	}
	if err := s.configure(&r.Ports); err != nil {
		return nil, err
	}
	if err := s.startProcesses(); err != nil {
		return nil, err
	}
	s.client = tasks.NewClient(redis.NewClient(&redis.Options{Addr: s.redisAddr, ContextTimeoutEnabled: true}))
	if s.outbox, err = openOutbox(ctx, s.outboxFile()); err != nil {
		return nil, err
	}
	if err := s.await(ctx, "/ready"); err != nil {
		return nil, err
	}
	schedule := tasks.Schedule{Name: tickName, Spec: "@every 3s", Work: tick.S(0), Options: []tasks.SendOption{tasks.Retention(time.Second)}}
	if err := s.client.Schedules().Put(ctx, schedule); err != nil {
		return nil, err
	}
	if r.Resumed > 0 { // the proxies of before are gone
		if _, err := s.cli(ctx, "proxies", "refresh"); err != nil {
			return nil, err
		}
	}
	return s, s.startAgents()
}

// renderListings makes a browser render the listings of a site, if there is one.
func (s *system) renderListings() error {
	if _, err := exec.LookPath("chromium"); err != nil {
		return nil
	}
	path := filepath.Join(s.world.Definitions, s.world.News.Name+".yaml")
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, "\nrender: {when: always, kinds: [listing]}\n"...), 0o600)
}

// configure chooses ports unless they are set, and writes the settings.
func (s *system) configure(ports *[5]int) error {
	for i := range ports {
		if ports[i] != 0 {
			continue
		}
		p, release, err := testutil.HoldPort()
		if err != nil {
			return err
		}
		release()
		ports[i] = p
	}
	s.redisAddr = testutil.LoopbackAddr(ports[0])
	s.url = "http://" + testutil.LoopbackAddr(ports[1])
	s.metrics["orchestrator"] = testutil.LoopbackAddr(ports[1])
	s.metrics["queue run"] = testutil.LoopbackAddr(ports[2])
	s.metrics["task worker"] = testutil.LoopbackAddr(ports[3])
	for i := range workers { // muster start uses consecutive ports
		s.metrics[fmt.Sprint("worker-", i+1)] = testutil.LoopbackAddr(ports[4] + i)
	}
	settings, err := json.MarshalIndent(map[string]any{ // JSON is YAML
		"data_dir": s.data,
		"redis":    map[string]any{"url": "redis://" + s.redisAddr + "/0"},
		"api":      map[string]any{"listen": testutil.LoopbackAddr(ports[1])},
		"workers":  map[string]any{"processes": workers, "concurrency": 4, "metrics_listen": testutil.LoopbackAddr(ports[4])},
		"network":  map[string]any{"allow": []string{s.artifacts.addr}},
		"proxies": map[string]any{
			"sources": s.world.Sources, "judges": []string{s.world.Judge}, "judge_key": s.world.JudgeKey,
			"allow_local": true, "refresh_every": "2m", "concurrency": 16,
		},
		"sites":    map[string]any{"dir": s.world.Definitions},
		"queue":    map[string]any{"max_workers": 4, "lease_ttl_seconds": 30, "heartbeat_seconds": 5, "retry_backoff_seconds": 1, "jitter_seconds": 1, "max_job_attempts": 20},
		"jobs":     map[string]any{"dedupe": "allow", "lease": "5s", "check_every": "5s", "max_retries": 50, "keep": "1h"},
		"webhooks": map[string]any{"keep": "10m"},
		"shutdown": map[string]any{"drain": "10s"},
	}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(s.conf, settings, 0o600)
}

// env returns the environment of a child process. NO_PROXY disables proxies of the machine.
func (s *system) env(more ...string) []string {
	return append(os.Environ(), append(more, "NO_PROXY=*", "PYTHONDONTWRITEBYTECODE=1")...)
}

// command returns a function that creates a command for each start of a process.
func (s *system) command(env []string, args ...string) func() *exec.Cmd {
	return func() *exec.Cmd {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Dir, cmd.Env = s.dir, s.env(env...)
		return cmd
	}
}

func (s *system) startProcesses() (err error) {
	server := os.Getenv("MUSTER_TEST_REDIS_SERVER")
	if server == "" {
		server = "redis-server"
	}
	redisDir := filepath.Join(s.dir, "redis")
	if err := errors.Join(os.MkdirAll(redisDir, 0o700), os.MkdirAll(s.data, 0o700)); err != nil {
		return err
	}
	_, port, _ := strings.Cut(s.redisAddr, ":")
	// appendfsync always: writes are in the kernel before the reply, and the kernel keeps them if the process is killed.
	s.redis, err = respawn.Start(s.dir, "redis", s.command(nil, server, "--port", port, "--bind", "127.0.0.1", "--dir", redisDir,
		"--save", "", "--appendonly", "yes", "--appendfsync", "always", "--maxmemory-policy", "noeviction",
		"--auto-aof-rewrite-min-size", "16mb"))
	if err != nil {
		return err
	}
	if s.muster, err = respawn.Start(s.dir, "muster", s.command(nil, s.binary, "start", "--config", s.conf, "--log-format", "text")); err != nil {
		return err
	}
	if s.queue, err = respawn.Start(s.dir, "queue", s.command(nil, s.binary, "queue", "run", "--config", s.conf,
		"--queue", queueName, "--metrics-listen", s.metrics["queue run"])); err != nil {
		return err
	}
	s.worker, err = respawn.Start(s.dir, "worker", s.command([]string{
		workerEnv + "=redis://" + s.redisAddr + "/0", metricsEnv + "=" + s.metrics["task worker"], outboxEnv + "=" + s.outboxFile()}, os.Args[0]))
	return err
}

// startAgents starts two agents per role.
func (s *system) startAgents() error {
	python, err := exec.LookPath("python3")
	if err != nil {
		return fmt.Errorf("the agents of examples/agents need Python: %w", err)
	}
	for _, name := range []string{"creator-1", "creator-2", "validator-1", "validator-2"} {
		role, _, _ := strings.Cut(name, "-")
		file, err := filepath.Abs(filepath.Join("examples", "agents", role+".py"))
		if err != nil {
			return err
		}
		if _, err := os.Stat(file); err != nil {
			return fmt.Errorf("run soak at the root of the repository: %w", err)
		}
		a, err := respawn.Start(s.dir, name, s.command([]string{"MUSTER_API=" + s.url}, python, file))
		if err != nil {
			return err
		}
		s.agents = append(s.agents, a)
	}
	return nil
}

// outboxFile is the database from whose transactions workflows are sent.
func (s *system) outboxFile() string { return filepath.Join(s.dir, "outbox.db") }

// close stops all processes, clients of Redis first.
func (s *system) close() {
	s.revive()
	for _, p := range append(s.agents, s.queue, s.worker, s.muster, s.redis) {
		if p != nil {
			p.Stop(20 * time.Second)
		}
	}
	if s.client != nil {
		_ = s.client.Close()
	}
	if s.outbox != nil {
		_ = s.outbox.Close()
	}
	if s.world != nil {
		_ = s.world.Close()
	}
	if s.artifacts != nil {
		s.artifacts.close()
	}
}

// await waits until a path of the API responds with success.
func (s *system) await(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		err := s.call(ctx, http.MethodGet, path, nil, nil)
		if err == nil {
			return nil
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", path, err)
		}
	}
}

// call calls the API with a JSON body and decodes a successful response into v, unless it is nil. header contains names and
// values.
func (s *system) call(ctx context.Context, method, path string, body, v any, header ...string) error {
	var data []byte
	if body != nil {
		var err error
		if data, err = json.Marshal(body); err != nil {
			return err
		}
	}
	return s.send(ctx, method, path, "application/json", data, v, header...)
}

// send is like call with an encoded body.
func (s *system) send(ctx context.Context, method, path, contentType string, body []byte, v any, header ...string) error {
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", contentType)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode >= 300 {
		return &statusError{resp.StatusCode, fmt.Sprintf("%s %s: %s: %.300s", method, path, resp.Status, text)}
	}
	if v == nil {
		return nil
	}
	return json.Unmarshal(text, v)
}

// statusError is an unsuccessful response of the API.
type statusError struct {
	code int
	text string
}

func (e *statusError) Error() string { return e.text }

// cli runs a muster command with the settings and returns its output.
func (s *system) cli(ctx context.Context, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 50*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.binary, append(args, "--config", s.conf)...)
	cmd.Dir, cmd.Env = s.dir, s.env()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("muster %s: %w: %.300s", strings.Join(args, " "), err, stderr.Bytes())
	}
	return out, nil
}

// workerPID returns the PID of a worker process of muster start, or 0.
func (s *system) workerPID(name string) int {
	files, err := filepath.Glob(filepath.Join(s.data, "run", name+".*.pid"))
	if err != nil {
		return 0
	}
	for _, name := range files {
		var file struct {
			Process struct {
				PID int `json:"pid"`
			} `json:"process"`
		}
		raw, err := os.ReadFile(name)
		if err == nil && json.Unmarshal(raw, &file) == nil && file.Process.PID > 1 && syscall.Kill(file.Process.PID, 0) == nil {
			return file.Process.PID
		}
	}
	return 0
}

// pids returns the PIDs of the measured processes.
func (s *system) pids() map[string]int {
	all := map[string]int{"orchestrator": s.muster.PID(), "queue run": s.queue.PID(), "task worker": s.worker.PID(), "redis": s.redis.PID()}
	for i := range workers {
		name := fmt.Sprint("worker-", i+1)
		all[name] = s.workerPID(name)
	}
	return all
}
