package redistest

import (
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

// Kind is how a call to Redis goes wrong.
type Kind string

const (
	Refused  Kind = "refused"    // it is not sent; its caller gets ErrFault
	Unheard  Kind = "unheard"    // Redis does it; its caller gets ErrFault
	Repeated Kind = "repeated"   // Redis does it twice, as when the connection sends it again; the caller gets the second reply
	Dies     Kind = "dies"       // it is not sent, nor are any later ones: the process is dead
	DiesLate Kind = "dies-after" // Redis does it, and later ones are not sent: the process is dead
	Slow     Kind = "slow"       // it is sent only after slowCalls more calls of its client, or Release
	Killed   Kind = "killed"     // the process is killed before it or, with Reply, after it
	Frozen   Kind = "frozen"     // it and all later ones are sent only after Release: the process is frozen
)

// ErrFault is the error of calls that go wrong.
var ErrFault = errors.New("redistest: connection reset by peer")

// slowCalls is how many other calls overtake a slow one.
const slowCalls = 12

// EveryCall as the number of a call selects every call.
const EveryCall = -1

// Fault is a hook of a client that makes one call fail. A pipeline is one call; commands that open a connection are none.
//
// Dies at call 1 kills a process at the time of Arm, and Frozen at call 1 freezes it then.
type Fault struct {
	Kind  Kind
	N     int                    // the number of that call; 0 for none, or EveryCall
	Match func(redis.Cmder) bool // selects the calls that count, by one of their commands. Defaults to all.
	Reply func(redis.Cmder) bool // likewise, by a command with its successful reply; for Killed only

	mu       sync.Mutex // guards the fields below
	calls    int        // so far
	hit      string     // the call that went wrong
	armed    bool       // calls count
	dead     bool
	overtook chan struct{} // closed after slowCalls calls
	hitDone  chan struct{} // closed when the call has come
	release  chan struct{} // closed by Release
}

// NewFault returns a fault at call n. Calls count from Arm on.
func NewFault(kind Kind, n int) *Fault {
	return &Fault{Kind: kind, N: n, overtook: make(chan struct{}), hitDone: make(chan struct{}), release: make(chan struct{})}
}

// Client returns a client of the Redis at an address, as from [URL], that has the fault. It ends with tb.
func (f *Fault) Client(tb testing.TB, address string) *redis.Client {
	tb.Helper()
	rdb := redis.NewClient(options(tb, address))
	rdb.AddHook(f)
	tb.Cleanup(func() {
		f.Release()
		_ = rdb.Close()
	})
	return rdb
}

// Arm begins to count calls.
func (f *Fault) Arm() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.armed = true
}

// Disarm ends the counting of calls, and with it the fault.
func (f *Fault) Disarm() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.armed = false
}

// Release sends what is slow or frozen.
func (f *Fault) Release() {
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case <-f.release:
	default:
		close(f.release)
	}
}

// Hit is closed when the call has come that goes wrong.
func (f *Fault) Hit() <-chan struct{} { return f.hitDone }

// Calls returns how many calls there were.
func (f *Fault) Calls() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
}

// Fails reports whether callers see an error.
func (f *Fault) Fails() bool { return f.Kind == Refused || f.Kind == Unheard || f.Deadly() }

// Deadly reports whether the process is dead after the fault.
func (f *Fault) Deadly() bool { return f.Kind == Dies || f.Kind == DiesLate }

func (f *Fault) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return fmt.Sprintf("call %d of %d %s: %s", f.N, f.calls, f.Kind, cmp.Or(f.hit, "not reached"))
}

// call makes one call; do can be called more than once.
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
	f.mu.Unlock()
	switch {
	case dead:
		return ErrFault
	case frozen:
		<-f.release
	case !is:
	case f.Kind == Killed:
		Die()
	case f.Kind == Refused || f.Kind == Dies:
		return ErrFault
	case f.Kind == Unheard || f.Kind == DiesLate:
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

// Die ends the process as kill -9 does.
func Die() {
	if me, err := os.FindProcess(os.Getpid()); err == nil {
		_ = me.Kill()
	}
	select {}
}

// DialHook implements redis.Hook.
func (f *Fault) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

// ProcessHook implements redis.Hook.
func (f *Fault) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if f.Reply != nil {
			err := next(ctx, cmd)
			f.replied(cmd)
			return err
		}
		if connects(cmd) || !f.matches(cmd) {
			return next(ctx, cmd)
		}
		err := f.call(func() string { return shown(cmd) }, func() error {
			cmd.SetErr(nil)
			return next(ctx, cmd)
		})
		if errors.Is(err, ErrFault) {
			cmd.SetErr(err)
		}
		return err
	}
}

// ProcessPipelineHook implements redis.Hook.
func (f *Fault) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if f.Reply != nil {
			err := next(ctx, cmds)
			f.replied(cmds...)
			return err
		}
		if connects(cmds[0]) || !f.matches(cmds...) {
			return next(ctx, cmds)
		}
		err := f.call(func() string {
			var all []string
			for _, cmd := range cmds {
				all = append(all, shown(cmd))
			}
			return strings.Join(all, "; ")
		}, func() error {
			for _, cmd := range cmds {
				cmd.SetErr(nil)
			}
			return next(ctx, cmds)
		})
		if errors.Is(err, ErrFault) {
			for _, cmd := range cmds {
				cmd.SetErr(err)
			}
		}
		return err
	}
}

// replied counts a call that has returned, if Reply selects it.
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

// connects reports whether a command is one with which a connection begins.
func connects(cmd redis.Cmder) bool {
	switch cmd.Name() {
	case "hello", "auth", "select", "client":
		return true
	}
	return false
}

// shown describes a command for the reader of a failure.
func shown(cmd redis.Cmder) string {
	words := []string{}
	for _, arg := range cmd.Args() {
		s := fmt.Sprint(arg)
		words = append(words, s[:min(len(s), 40)])
	}
	return strings.Join(words[:min(len(words), 8)], " ")
}

// faultsVar is "all" to have each call go wrong in each way, or a seed for the calls that EachFault chooses.
const faultsVar = "MUSTER_FAULTS"

// EachFault runs a scenario twice without a fault, and then as parallel subtests in which each of its calls goes wrong, in each of
// some kinds. Of a kind that map says how many calls go wrong, chosen at random, unless MUSTER_FAULTS is "all".
// The scenario connects by [Fault.Client], and begins to count by [Fault.Arm].
//
// A scenario may make fewer calls at times, so that a subtest has no fault; it logs that. If that is so in more than half of
// the subtests of a kind, t fails.
func EachFault(t *testing.T, kinds map[Kind]int, scenario func(t *testing.T, f *Fault)) {
	t.Helper()
	calls, ran, fine := 0, false, true
	for _, name := range []string{"scripts", "none"} { // the first run loads scripts, by more calls than the others
		fine = t.Run(name, func(t *testing.T) {
			ran = true
			f := NewFault(Refused, 0)
			scenario(t, f)
			calls = f.Calls()
		}) && fine
	}
	if !fine || ran && calls == 0 {
		t.Errorf("%d calls without a fault: the scenario failed, or has no client of its fault", calls)
		return
	}
	seed, all := chosen(t)
	if !ran { // -run names one of the others
		calls, all = 2000, true
	}
	rng := rand.New(rand.NewPCG(seed, 0))
	var faults []*Fault
	t.Cleanup(func() { // the subtests have ended
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

// isHit reports whether the call has come that goes wrong.
func (f *Fault) isHit() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.hit != ""
}

// mostHit returns an error if over half of the faults of a kind did not come, so that the tests show little. Faults
// that counted no call were not run.
func mostHit(faults []*Fault) error {
	hit, missed := map[Kind]int{}, map[Kind]int{}
	for _, f := range faults {
		switch {
		case f.isHit():
			hit[f.Kind]++
		case f.Calls() > 0:
			missed[f.Kind]++
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(missed)) {
		if missed[kind] > hit[kind] {
			return fmt.Errorf("%s: %d faults came and %d did not: with a fault, the scenario makes fewer calls than without", kind, hit[kind], missed[kind])
		}
	}
	return nil
}

// chosen returns the seed for what goes wrong, and whether all does.
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
			t.Fatalf("%s=%s: write all, or a number", faultsVar, text)
		}
		return n, false
	}
}
