package redistest

import (
	"context"
	"errors"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"
)

// Instance is a redis-server of one test, which may stop and restart it. Its address and directory are constant.
type Instance struct {
	Addr string // host:port
	Dir  string // directory of the dump and the append-only file
	tb   testing.TB
	proc *process
}

// Server starts a redis-server for tb only. Directives are pairs of a name and a value for redis.conf, as in
// Server(t, "appendonly", "yes"). By default nothing is persisted. The test is skipped without a redis-server.
func Server(tb testing.TB, directives ...string) *Instance {
	tb.Helper()
	needServer(tb)
	if len(directives)%2 != 0 {
		tb.Fatalf("redistest: directives must be pairs of name and value, got %q", directives)
	}
	p := &process{dir: tb.TempDir(), args: []string{"--save", ""}}
	for i := 0; i < len(directives); i += 2 {
		p.args = append(p.args, "--"+directives[i], directives[i+1])
	}
	if err := p.startAnywhere(); err != nil {
		tb.Fatalf("start a redis-server: %v", err)
	}
	s := &Instance{Addr: p.addr, Dir: p.dir, tb: tb, proc: p}
	tb.Cleanup(p.free)
	return s
}

// URL returns the server's redis:// address.
func (s *Instance) URL() string { return "redis://" + s.Addr + "/0" }

// Managed returns the address for a user with the rights that managed servers give: without CONFIG, INFO and the like.
func (s *Instance) Managed() string {
	s.tb.Helper()
	rdb := s.Client()
	defer rdb.Close()
	if err := rdb.Do(context.Background(), "ACL", "SETUSER", "managed", "on", ">pw", "~*", "&*", "+@all", "-@admin", "-@dangerous").Err(); err != nil {
		s.tb.Fatalf("make a user: %v", err)
	}
	return "redis://managed:pw@" + s.Addr + "/0"
}

// Client returns a client of the server that is closed with the test.
func (s *Instance) Client() redis.UniversalClient {
	s.tb.Helper()
	return connect(s.tb, s.URL())
}

// PID returns the process id of the running server.
func (s *Instance) PID() int { return s.proc.cmd.Process.Pid }

// Stop stops the server with SIGTERM, which persists the configured data.
func (s *Instance) Stop() { s.proc.end(syscall.SIGTERM) }

// Kill kills the server with SIGKILL, like a crash.
func (s *Instance) Kill() { s.proc.kill() }

// Start restarts the server at the same address with its persisted data. It does nothing while the server is running.
func (s *Instance) Start() {
	s.tb.Helper()
	if s.proc.running() {
		return
	}
	if err := s.proc.start(); err != nil {
		s.tb.Fatalf("restart redis-server at %s: %v", s.Addr, err)
	}
}

// Restart calls Stop and Start.
func (s *Instance) Restart() {
	s.tb.Helper()
	s.Stop()
	s.Start()
}

// Freeze suspends the server until Thaw, like a network partition: connections stay open without replies. It skips
// the test on systems that cannot suspend a process.
func (s *Instance) Freeze() {
	s.tb.Helper()
	if err := suspend(s.proc.cmd.Process); errors.Is(err, errors.ErrUnsupported) {
		s.tb.Skipf("NOT COVERED: %s requires a system that can suspend a process", s.tb.Name())
	}
}

// Thaw resumes the server after Freeze.
func (s *Instance) Thaw() { _ = resume(s.proc.cmd.Process) }

// needServer skips the test without a redis-server and reports it as not covered.
func needServer(tb testing.TB) {
	tb.Helper()
	if binary() == "" {
		tb.Skipf("NOT COVERED: %s requires a redis-server; install it or set MUSTER_TEST_REDIS_SERVER to its path", tb.Name())
	}
}
