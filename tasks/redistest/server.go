package redistest

import (
	"errors"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"
)

// Instance is a redis-server of one test, which can stop and start it. Its address
// and its folder do not change.
type Instance struct {
	Addr string // host:port
	Dir  string // where it keeps its dump and append-only file
	tb   testing.TB
	proc *process
}

// Server starts a redis-server for tb alone. Directives are lines of
// redis.conf cut into words, as in Server(t, "appendonly", "yes"): a name and
// one value each. Without any it keeps nothing on disk. The test is skipped
// where there is no redis-server.
func Server(tb testing.TB, directives ...string) *Instance {
	tb.Helper()
	needServer(tb)
	if len(directives)%2 != 0 {
		tb.Fatalf("redistest: directives come in pairs of name and value, got %q", directives)
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

// Client returns a client of the server that is closed with the test.
func (s *Instance) Client() redis.UniversalClient {
	s.tb.Helper()
	return connect(s.tb, s.URL())
}

// PID returns the process id of the running server.
func (s *Instance) PID() int { return s.proc.cmd.Process.Pid }

// Stop stops the server with SIGTERM; it saves what it is configured to save.
func (s *Instance) Stop() { s.proc.end(syscall.SIGTERM) }

// Kill stops the server with SIGKILL, as a crash does.
func (s *Instance) Kill() { s.proc.kill() }

// Start starts the server again at the same address, with the data that it saved.
// It does nothing while the server is running.
func (s *Instance) Start() {
	s.tb.Helper()
	if s.proc.running() {
		return
	}
	if err := s.proc.start(); err != nil {
		s.tb.Fatalf("start the redis-server at %s again: %v", s.Addr, err)
	}
}

// Restart is Stop and Start.
func (s *Instance) Restart() {
	s.tb.Helper()
	s.Stop()
	s.Start()
}

// Freeze suspends the server until Thaw, like a network partition: the
// connections stay open and get no answer. It skips the test on a system that
// cannot suspend a process.
func (s *Instance) Freeze() {
	s.tb.Helper()
	if err := suspend(s.proc.cmd.Process); errors.Is(err, errors.ErrUnsupported) {
		s.tb.Skipf("NOT COVERED: %s needs a system that can suspend a process", s.tb.Name())
	}
}

// Thaw ends Freeze.
func (s *Instance) Thaw() { _ = resume(s.proc.cmd.Process) }

// needServer skips the test if there is no redis-server, and says that it is not covered.
func needServer(tb testing.TB) {
	tb.Helper()
	if binary() == "" {
		tb.Skipf("NOT COVERED: %s needs a redis-server; install one or name it in MUSTER_TEST_REDIS_SERVER", tb.Name())
	}
}
