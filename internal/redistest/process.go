package redistest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/testutil"
)

// startTimeout limits the start of a redis-server. It tolerates a machine that runs the tests of all packages in
// parallel.
const startTimeout = 20 * time.Second

// binary returns the path of the redis-server for tests, or "" if there is none.
var binary = sync.OnceValue(func() string {
	name := os.Getenv("MUSTER_TEST_REDIS_SERVER")
	switch name {
	case "off":
		return ""
	case "":
		name = "redis-server"
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return ""
	}
	return path
})

const notCovered = `
  ************************************************************************
  redistest: NO redis-server. All tests run on miniredis instead.
  NOT covered: persistence and crashes of Redis, restarts and outages,
  Redis Cluster's slots, maxmemory, real expiry, speed.
  Install redis-server, or name one in MUSTER_TEST_REDIS_SERVER.
  ************************************************************************
`

func announce(w io.Writer) {
	path := binary()
	if path == "" {
		fmt.Fprint(w, notCovered)
		return
	}
	version := "unknown version"
	if out, err := exec.Command(path, "--version").Output(); err == nil {
		for _, f := range strings.Fields(string(out)) {
			if v, ok := strings.CutPrefix(f, "v="); ok {
				version = v
			}
		}
	}
	fmt.Fprintf(w, "redistest: redis-server %s (%s)\n", version, path)
}

// process is a redis-server on a loopback port. It is killed when this process terminates, even by a signal.
type process struct {
	addr string
	dir  string   // working directory, with the dump and the append-only file
	conf string   // configuration file, if any
	args []string // additional directives
	bus  bool     // also reserves its port plus 10000

	release func() // releases the port; nil before the first start

	cmd  *exec.Cmd
	done chan struct{} // closed when the server has terminated; nil before the first start
	log  *bytes.Buffer // output of the server; may be read after done
}

// startShared starts the server with the databases of New.
func startShared() (*process, error) {
	dir, err := os.MkdirTemp("", "redistest")
	if err != nil {
		return nil, err
	}
	p := &process{dir: dir, args: []string{
		"--databases", fmt.Sprint(databases), "--save", "", "--appendonly", "no",
	}}
	if err := p.startAnywhere(); err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	return p, nil
}

// startAnywhere starts p on a port that is reserved until free is called, even while p is stopped. The bus port is
// not reserved, and another program may bind it before the start, so several ports are tried.
func (p *process) startAnywhere() error {
	var errs []error
	for range 5 {
		if err := p.takePort(); err != nil {
			return fmt.Errorf("find a free port: %w", err)
		}
		if err := p.start(); err != nil {
			errs = append(errs, err)
			p.free()
			continue
		}
		return nil
	}
	return errors.Join(errs...)
}

// takePort reserves a loopback port for p. With bus, port+10000 must be free too.
func (p *process) takePort() error {
	for range 100 {
		port, release, err := testutil.HoldPort()
		if err != nil {
			return err
		}
		if !p.bus || port+10000 < 1<<16 && listens(testutil.LoopbackAddr(port+10000)) {
			p.addr, p.release = testutil.LoopbackAddr(port), release
			return nil
		}
		defer release() // after the loop, so that another port is found
	}
	return errors.New("no port with a free bus port found in 100 attempts")
}

func listens(addr string) bool {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return false
	}
	return l.Close() == nil
}

// free kills the server and releases its port.
func (p *process) free() {
	p.kill()
	if p.release != nil {
		p.release()
	}
}

// start starts the server at p.addr and waits until it is ready.
func (p *process) start() error {
	_, port, err := net.SplitHostPort(p.addr)
	if err != nil {
		return err
	}
	var args []string
	if p.conf != "" {
		args = append(args, p.conf)
	}
	args = append(args, "--bind", "127.0.0.1", "--port", port, "--daemonize", "no", "--maxclients", "2000")
	p.cmd = exec.Command(binary(), append(args, p.args...)...)
	p.cmd.Dir = p.dir
	p.cmd.SysProcAttr = dieWithUs()
	p.log = new(bytes.Buffer)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log

	p.done = make(chan struct{})
	started := make(chan error)
	go p.hold(p.cmd, p.done, started)
	if err := <-started; err != nil {
		return fmt.Errorf("start %s: %w", binary(), err)
	}
	if err := p.waitReady(); err != nil {
		p.kill()
		return fmt.Errorf("%w; end of its log:\n%s", err, tail(p.log.String(), 2000))
	}
	return nil
}

// hold starts cmd and keeps the starting thread until cmd terminates: the kernel kills a child when its parent thread
// terminates, not its parent process.
func (p *process) hold(cmd *exec.Cmd, done chan<- struct{}, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(done)
	err := cmd.Start()
	started <- err
	if err == nil {
		_ = cmd.Wait()
	}
}

// waitReady polls the server until it has loaded its data.
func (p *process) waitReady() error {
	rdb := redis.NewClient(&redis.Options{
		Addr: p.addr, MaxRetries: -1, DisableIdentity: true,
		MaintNotificationsConfig: noNotifications(),
	})
	defer func() { _ = rdb.Close() }()
	deadline := time.After(startTimeout)
	for {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		pid := fmt.Sprintf("process_id:%d\r\n", p.cmd.Process.Pid)
		info, err := rdb.Info(ctx, "server").Result()
		if err == nil && strings.Contains(info, pid) {
			err = rdb.Ping(ctx).Err()
		} else if err == nil {
			err = errors.New("another server listens on its port")
		}
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return errors.New("redis-server terminated immediately")
		case <-deadline:
			return fmt.Errorf("redis-server is not ready: %w", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// kill terminates the server immediately, like a crash.
func (p *process) kill() { p.end(syscall.SIGKILL) }

// end sends sig to the server and waits for its termination.
func (p *process) end(sig syscall.Signal) {
	if p.cmd == nil || p.cmd.Process == nil {
		return
	}
	_ = p.cmd.Process.Signal(sig)
	select {
	case <-p.done:
	case <-time.After(startTimeout):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

func (p *process) running() bool {
	if p.done == nil {
		return false
	}
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

func tail(s string, n int) string {
	if len(s) > n {
		return s[len(s)-n:]
	}
	return s
}
