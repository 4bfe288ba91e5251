package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/testutil"
)

// lab is what rows measure with: a real redis-server that nothing else uses, without persistence, so
// that the disk is not what is measured.
type lab struct {
	addr   string        // host:port
	rdb    *redis.Client // closed with the lab
	dir    string
	server *exec.Cmd
	exited chan struct{} // closed when the server has exited
}

// openLab starts the redis-server that MUSTER_TEST_REDIS_SERVER names, or the one on PATH, with more arguments if any.
func openLab(ctx context.Context, more ...string) (*lab, error) {
	bin := os.Getenv("MUSTER_TEST_REDIS_SERVER")
	if bin == "" {
		bin = "redis-server"
	}
	path, err := exec.LookPath(bin)
	if err != nil {
		return nil, fmt.Errorf("find %s: %w; the benchmarks need a real Redis: install redis-server, or name it in MUSTER_TEST_REDIS_SERVER", bin, err)
	}
	dir, err := os.MkdirTemp("", "muster-bench-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for redis: %w", err)
	}
	port, release, err := testutil.HoldPort() // until the server listens
	if err != nil {
		os.RemoveAll(dir)
		return nil, fmt.Errorf("find a free port: %w", err)
	}
	defer release()

	l := &lab{
		addr:   testutil.LoopbackAddr(port),
		dir:    dir,
		exited: make(chan struct{}),
	}
	var log bytes.Buffer
	l.server = exec.Command(path, append([]string{
		"--port", strconv.Itoa(port), "--bind", "127.0.0.1",
		"--save", "", "--appendonly", "no", "--dir", dir,
		"--loglevel", "warning", "--maxmemory-policy", "noeviction",
	}, more...)...)
	l.server.Stdout, l.server.Stderr = &log, &log
	// A Ctrl-C must reach the rows first: they still use the server while they stop.
	l.server.SysProcAttr = ownGroup()
	if err := l.server.Start(); err != nil {
		os.RemoveAll(dir)
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	go func() {
		defer close(l.exited)
		_ = l.server.Wait() // how it ended shows in the log
	}()

	l.rdb = redis.NewClient(&redis.Options{Addr: l.addr})
	if err := l.awaitReady(ctx); err != nil {
		l.close()
		return nil, fmt.Errorf("start %s: %w: %s", path, err, strings.TrimSpace(log.String()))
	}
	return l, nil
}

func (l *lab) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if l.rdb.Ping(ctx).Err() == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-l.exited:
			return errors.New("redis-server exited")
		case <-ctx.Done():
			return fmt.Errorf("redis-server does not answer: %w", ctx.Err())
		}
	}
}

// close stops the server and removes its folder.
func (l *lab) close() {
	l.rdb.Close()
	_ = l.server.Process.Kill() // it has nothing to save
	<-l.exited
	os.RemoveAll(l.dir)
}

// url is what tasks.Connect takes.
func (l *lab) url() string { return "redis://" + l.addr + "/0" }

// empty removes every key, so that a round begins as the first did.
func (l *lab) empty(ctx context.Context) error {
	if err := l.rdb.FlushAll(ctx).Err(); err != nil {
		return fmt.Errorf("empty redis: %w", err)
	}
	return nil
}

// info is a number of Redis's INFO, e.g. "used_memory" or "total_commands_processed".
func (l *lab) info(ctx context.Context, field string) (float64, error) {
	all, err := l.infos(ctx)
	if err != nil {
		return 0, err
	}
	value, ok := all[field]
	if !ok {
		return 0, fmt.Errorf("read redis info: no field %q", field)
	}
	return strconv.ParseFloat(value, 64)
}

// infos is all of Redis's INFO.
func (l *lab) infos(ctx context.Context) (map[string]string, error) {
	text, err := l.rdb.Info(ctx, "all").Result()
	if err != nil {
		return nil, fmt.Errorf("read redis info: %w", err)
	}
	all := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			all[name] = value
		}
	}
	return all, nil
}

// redisTime is how long Redis is busy with the requests of work, in µs: the CPU time of its main thread, which runs
// commands and scripts. The command statistics of Redis are less exact: they count a command in a script twice, continue
// while the thread waits for a CPU, and do not include reading requests and writing replies.
func (l *lab) redisTime(ctx context.Context, work func() error) (float64, error) {
	before, err := l.mainThread(ctx)
	if err != nil {
		return 0, err
	}
	if err := work(); err != nil {
		return 0, err
	}
	after, err := l.mainThread(ctx)
	return after - before, err
}

func (l *lab) mainThread(ctx context.Context) (float64, error) {
	user, err := l.info(ctx, "used_cpu_user_main_thread")
	if err != nil {
		return 0, err
	}
	sys, err := l.info(ctx, "used_cpu_sys_main_thread")
	return (user + sys) * 1e6, err
}

const paced = 200 // how many tasks redisPaced sends

// redisPaced is how long Redis is busy with each of 200 tasks, in µs. One is sent every 25 ms. The time for polls and
// heartbeats, which is measured without tasks, is subtracted.
func (l *lab) redisPaced(ctx context.Context, send func(i int) error) (float64, error) {
	pace := func(send func(i int) error) func() error {
		return func() error {
			tick := time.NewTicker(25 * time.Millisecond)
			defer tick.Stop()
			for i := range paced {
				if err := send(i); err != nil {
					return err
				}
				<-tick.C
			}
			time.Sleep(100 * time.Millisecond) // until the last one has ended
			return nil
		}
	}
	idle, err := l.redisTime(ctx, pace(func(int) error { return nil }))
	if err != nil {
		return 0, err
	}
	busy, err := l.redisTime(ctx, pace(send))
	return (busy - idle) / paced, err
}
