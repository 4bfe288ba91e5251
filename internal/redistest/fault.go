package redistest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
)

// Kind is the kind of a fault.
type Kind string

const (
	Refused    Kind = "refused"     // not sent; the caller receives ErrFault
	ReplyLost  Kind = "reply-lost"  // executed, but the reply is lost; the caller receives ErrFault
	Repeated   Kind = "repeated"    // executed twice, as after a retransmission; the caller receives the second reply
	Crash      Kind = "crash"       // this call and all later ones are not sent: the process is dead
	CrashAfter Kind = "crash-after" // executed, but later calls are not sent: the process is dead
	Slow       Kind = "slow"        // sent after slowCalls more calls of the client, or after Release
	Killed     Kind = "killed"      // the process is killed before the call or, with Reply, after it
	Frozen     Kind = "frozen"      // this call and all later ones are sent after Release: the process is frozen
)

// ErrFault is the error of failed calls.
var ErrFault = errors.New("redistest: connection reset by peer")

// slowCalls is the number of calls that overtake a slow one.
const slowCalls = 12

// EveryCall as the number of a call selects all calls.
const EveryCall = -1

// A Fault is a hook of a client that makes one call fail. A pipeline is one call. Commands that open a connection do
// not count.
//
// Crash at call 1 kills the process on Arm, and Frozen at call 1 freezes it on Arm.
type Fault struct {
	Kind  Kind
	N     int                    // number of the failing call; 0 for none, or EveryCall
	Match func(redis.Cmder) bool // selects the calls to count by one of their commands. Defaults to all.
	Reply func(redis.Cmder) bool // likewise, by a command with its successful reply; for Killed only

	mu       sync.Mutex // guards the fields below
	calls    int        // number of calls so far
	hit      string     // description of the failed call
	armed    bool       // whether calls are counted
	dead     bool
	waiting  map[net.Conn]bool // connections that wait for an entry of a ring
	overtook chan struct{}     // closed after slowCalls calls
	hitDone  chan struct{}     // closed at the failing call
	release  chan struct{}     // closed by Release
}

// NewFault returns a fault at call n, counted from Arm.
func NewFault(kind Kind, n int) *Fault {
	return &Fault{Kind: kind, N: n, overtook: make(chan struct{}), hitDone: make(chan struct{}), release: make(chan struct{})}
}

// Client returns a client with the fault for the Redis at an address, such as from [URL]. It is closed at the end of
// tb.
func (f *Fault) Client(tb testing.TB, address string) *redis.Client {
	tb.Helper()
	opt := options(tb, address)
	opt.Dialer = f.dial
	rdb := redis.NewClient(opt)
	rdb.AddHook(f)
	tb.Cleanup(func() {
		f.Release()
		_ = rdb.Close()
	})
	return rdb
}

// dial makes a connection that is closed when it waits for an entry of a ring and the process is dead or frozen. A worker waits with a
// separate client, which has no hooks.
func (f *Fault) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return waitConn{c, f}, nil
}

// waitConn is a connection that [Fault.dial] makes.
type waitConn struct {
	net.Conn
	f *Fault
}

// Write implements net.Conn.
func (c waitConn) Write(p []byte) (int, error) {
	if bytes.Contains(bytes.ToLower(p), []byte("blmove")) && !c.f.waits(c.Conn) {
		_ = c.Close()
		return 0, ErrFault
	}
	return c.Conn.Write(p)
}

// waits notes that a connection waits for an entry of a ring. It returns false if the process is dead or frozen.
func (f *Fault) waits(c net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	stopped := f.hit != "" && (f.Deadly() || f.Kind == Frozen)
	select {
	case <-f.release:
		stopped = f.dead
	default:
	}
	if !stopped {
		if f.waiting == nil {
			f.waiting = map[net.Conn]bool{}
		}
		f.waiting[c] = true
	}
	return !stopped
}

// Arm starts counting calls.
func (f *Fault) Arm() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.armed = true
}

// Disarm stops counting calls and disables the fault.
func (f *Fault) Disarm() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.armed = false
}

// Release sends slow and frozen calls.
func (f *Fault) Release() {
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case <-f.release:
	default:
		close(f.release)
	}
}

// Hit returns a channel that is closed at the failing call.
func (f *Fault) Hit() <-chan struct{} { return f.hitDone }

// Calls returns the number of calls.
func (f *Fault) Calls() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
}

// Fails reports whether callers receive an error.
func (f *Fault) Fails() bool { return f.Kind == Refused || f.Kind == ReplyLost || f.Deadly() }

// Deadly reports whether the process is dead after the fault.
func (f *Fault) Deadly() bool { return f.Kind == Crash || f.Kind == CrashAfter }

func (f *Fault) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return fmt.Sprintf("call %d of %d %s: %s", f.N, f.calls, f.Kind, cmp.Or(f.hit, "not reached"))
}

// call makes one call. do may be called more than once.
func (f *Fault) call(what func() string, do func() error) error {
	f.mu.Lock()
	if f.armed {
		f.calls++
	}
	is := f.armed && (f.calls == f.N || f.N == EveryCall)
	if is && f.hit == "" {
		f.hit = what()
		close(f.hitDone)
	}
	if f.N > 0 && f.calls == f.N+slowCalls && f.Kind == Slow {
		select {
		case <-f.overtook:
		default:
			close(f.overtook)
		}
	}
	dead, frozen := f.dead, f.Kind == Frozen && f.armed && f.N > 0 && f.calls >= f.N
	f.dead = f.dead || is && f.Deadly()
	if f.dead || frozen {
		for c := range f.waiting {
			_ = c.Close()
		}
		f.waiting = nil
	}
	f.mu.Unlock()
	switch {
	case dead:
		return ErrFault
	case frozen:
		<-f.release
	case !is:
	case f.Kind == Killed:
		Die()
	case f.Kind == Refused || f.Kind == Crash:
		return ErrFault
	case f.Kind == ReplyLost || f.Kind == CrashAfter:
		_ = do()
		return ErrFault
	case f.Kind == Repeated:
		_ = do()
	case f.Kind == Slow:
		select {
		case <-f.overtook:
		case <-f.release:
		}
	}
	return do()
}

// Die terminates the process like kill -9.
func Die() {
	if me, err := os.FindProcess(os.Getpid()); err == nil {
		_ = me.Kill()
	}
	select {}
}

// DialHook implements redis.Hook.
func (f *Fault) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (f *Fault) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return Calls(f.process).ProcessHook(next)
}

// ProcessPipelineHook implements redis.Hook.
func (f *Fault) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return Calls(f.process).ProcessPipelineHook(next)
}

func (f *Fault) process(_ context.Context, next func() error, cmds ...redis.Cmder) error {
	if f.Reply != nil {
		err := next()
		if err == nil || len(cmds) > 1 { // a single command gets its error later
			f.replied(cmds...)
		}
		return err
	}
	if connects(cmds[0]) || !f.matches(cmds...) {
		return next()
	}
	set := func(err error) {
		for _, cmd := range cmds {
			cmd.SetErr(err)
		}
	}
	err := f.call(func() string {
		var all []string
		for _, cmd := range cmds {
			all = append(all, shown(cmd))
		}
		return strings.Join(all, "; ")
	}, func() error {
		set(nil)
		return next()
	})
	if errors.Is(err, ErrFault) {
		set(err)
	}
	return err
}

// replied counts a returned call selected by Reply.
func (f *Fault) replied(cmds ...redis.Cmder) {
	for _, cmd := range cmds {
		if cmd.Err() == nil && f.Reply(cmd) {
			_ = f.call(func() string { return shown(cmd) }, func() error { return nil })
			return
		}
	}
}

func (f *Fault) matches(cmds ...redis.Cmder) bool {
	return f.Match == nil || slices.ContainsFunc(cmds, f.Match)
}

// connects reports whether a command belongs to the setup of a connection.
func connects(cmd redis.Cmder) bool {
	switch cmd.Name() {
	case "hello", "auth", "select", "client":
		return true
	}
	return false
}

// shown formats a command for a failure message.
func shown(cmd redis.Cmder) string {
	words := []string{}
	for _, arg := range cmd.Args() {
		s := fmt.Sprint(arg)
		words = append(words, s[:min(len(s), 40)])
	}
	return strings.Join(words[:min(len(words), 8)], " ")
}

// faultsVar is "all" for a fault of each kind at each call, or a seed for the random choice of EachFault.
const faultsVar = "MUSTER_FAULTS"

// EachFault runs a scenario twice without a fault and then in parallel subtests with a fault of each kind at each of
// its calls. kinds limits the number of randomly chosen calls per kind, unless MUSTER_FAULTS is "all". The scenario
// connects with [Fault.Client] and starts counting with [Fault.Arm].
//
// If a run makes fewer calls, a subtest may have no fault, which it logs. If that occurs in more than half of the
// subtests, or in all of a kind, t fails.
func EachFault(t *testing.T, kinds map[Kind]int, scenario func(t *testing.T, f *Fault)) {
	t.Helper()
	calls, ran, fine := 0, false, true
	for _, name := range []string{"scripts", "none"} { // the first run loads scripts, which takes additional calls
		fine = t.Run(name, func(t *testing.T) {
			ran = true
			f := NewFault(Refused, 0)
			scenario(t, f)
			calls = f.Calls()
		}) && fine
	}
	if !fine || ran && calls == 0 {
		t.Errorf("%d calls without a fault: the scenario failed or does not use Fault.Client", calls)
		return
	}
	seed, all := chosen(t)
	if !ran { // -run selects other subtests
		calls, all = 2000, true
	}
	rng := rand.New(rand.NewPCG(seed, 0))
	var faults []*Fault
	t.Cleanup(func() { // after all subtests
		if err := mostHit(faults); err != nil && ran {
			t.Error(err)
		}
	})
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		ns := rng.Perm(calls)
		if !all {
			ns = ns[:min(kinds[kind], calls)]
		}
		for _, n := range ns {
			f := NewFault(kind, n+1)
			faults = append(faults, f)
			t.Run(fmt.Sprintf("%s/%d", kind, n+1), func(t *testing.T) {
				t.Parallel()
				t.Cleanup(func() {
					if t.Failed() || !f.isHit() {
						t.Log(f)
					}
				})
				scenario(t, f)
			})
		}
	}
	t.Logf("%d calls; seed %d", calls, seed)
}

// isHit reports whether the failing call was made.
func (f *Fault) isHit() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.hit != ""
}

// mostHit returns an error if more than half of the faults, or all of a kind, did not occur, because the tests are not
// meaningful then. It ignores faults without counted calls, which were not run.
func mostHit(faults []*Fault) error {
	hit, missed, balance := map[Kind]int{}, map[Kind]int{}, 0
	for _, f := range faults {
		switch {
		case f.isHit():
			hit[f.Kind]++
			balance++
		case f.Calls() > 0:
			missed[f.Kind]++
			balance--
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(missed)) {
		if balance < 0 || hit[kind] == 0 {
			return fmt.Errorf("%s: %d faults occurred and %d did not: the scenario makes fewer calls with a fault than without", kind, hit[kind], missed[kind])
		}
	}
	return nil
}

// chosen returns the seed of the random choice, and whether to test all faults.
func chosen(t *testing.T) (seed uint64, all bool) {
	t.Helper()
	switch text := os.Getenv(faultsVar); text {
	case "":
		return 1, false
	case "all":
		return 1, true
	default:
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("invalid %s=%s: must be all or a number", faultsVar, text)
		}
		return n, false
	}
}
