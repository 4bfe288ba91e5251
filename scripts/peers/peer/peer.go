// Package peer implements the protocol between the benchmark and a peer in Go. Peers in other languages follow the same protocol.
// A peer is a program with these commands:
//
//	version      prints the version of the system
//	setup        prepares an empty store
//	work N       runs a worker with concurrency N until SIGTERM; prints "ready" when it accepts tasks
//	send         reads lines "KIND ID SIZE" and sends the work; prints the Unix time in µs before sending for each line
//	enqueue N    sends N single tasks with one call each; prints the seconds and the µs of CPU time of this process
//	bulk N       like enqueue, with a thousand tasks per call
//
// The kinds are single, slow (a task of ten minutes), chain (SIZE sequential tasks), chord (SIZE parallel tasks, followed by a
// task that receives their results) and fan (SIZE parallel tasks nap of 100 ms, in as few calls as the system permits). For an unsupported kind, the peer prints "none". PEER_URL is the store. PEER_MARKS is a file
// to which each task appends a line when it runs, so that the benchmark can detect executed tasks and their times.
package peer

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// ErrNone is returned by a Sender for features that its system does not support.
var ErrNone = errors.New("none")

// Batch is the number of tasks per call of bulk.
const Batch = 1000

// The durations of tasks.
const (
	SlowFor = 10 * time.Minute
	NapFor  = 100 * time.Millisecond
)

// Nap is the handler of a task of a fan.
func Nap(id int) error {
	time.Sleep(NapFor)
	return Mark("nap", id)
}

// Sender sends tasks.
type Sender interface {
	Single(ctx context.Context, id int) error
	Slow(ctx context.Context, id int) error
	Chain(ctx context.Context, id, steps int) error
	Chord(ctx context.Context, id, members int) error
	Bulk(ctx context.Context, first, n int) error
	Fan(ctx context.Context, n int) error
}

// System is a task queue.
type System struct {
	Module string // module that determines the version of the system; "this tree" for a replaced module
	Setup  func(ctx context.Context, url string) error
	Work   func(ctx context.Context, url string, concurrency int, ready func()) error // until ctx is done
	Open   func(ctx context.Context, url string) (Sender, error)
}

var marks = sync.OnceValues(func() (*os.File, error) {
	return os.OpenFile(os.Getenv("PEER_MARKS"), os.O_WRONLY|os.O_APPEND, 0)
})

// Mark records that a task is running.
func Mark(kind string, id int) error {
	f, err := marks()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, kind, id, time.Now().UnixMicro())
	return err
}

// MarkBody records that the body of a chord is running, and checks the number of its results.
func MarkBody(id, results, members int) error {
	if results != members {
		return fmt.Errorf("the body of chord %d got %d results, want %d", id, results, members)
	}
	return Mark("body", id)
}

// Main implements main of a peer.
func Main(s System) {
	if err := run(s, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "peer:", err)
		os.Exit(1)
	}
}

func run(s System, args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	url, n := os.Getenv("PEER_URL"), 0
	if len(args) == 2 {
		var err error
		if n, err = strconv.Atoi(args[1]); err != nil {
			return err
		}
	}
	if len(args) == 0 {
		return errors.New("usage: peer version|setup|work N|send|enqueue N|bulk N")
	}
	switch args[0] {
	case "version":
		fmt.Println(version(s.Module))
		return nil
	case "setup":
		if s.Setup == nil {
			return nil
		}
		return s.Setup(ctx, url)
	case "work":
		return s.Work(ctx, url, n, func() { fmt.Println("ready") })
	}
	sender, err := s.Open(ctx, url)
	if err != nil {
		return err
	}
	switch args[0] {
	case "send":
		return send(ctx, sender)
	case "enqueue":
		return timed(func() error {
			for i := range n {
				if err := sender.Single(ctx, i); err != nil {
					return err
				}
			}
			return nil
		})
	case "bulk":
		return timed(func() error {
			for first := 0; first < n; first += Batch {
				if err := sender.Bulk(ctx, first, min(Batch, n-first)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return fmt.Errorf("unknown command %q", args[0])
}

// send sends the work in the lines of standard input.
func send(ctx context.Context, s Sender) error {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var kind string
		var id, size int
		if _, err := fmt.Sscan(lines.Text(), &kind, &id, &size); err != nil {
			return fmt.Errorf("line %q: %w", lines.Text(), err)
		}
		start := time.Now().UnixMicro()
		var err error
		switch kind {
		case "single":
			err = s.Single(ctx, id)
		case "slow":
			err = s.Slow(ctx, id)
		case "chain":
			err = s.Chain(ctx, id, size)
		case "chord":
			err = s.Chord(ctx, id, size)
		case "fan":
			err = s.Fan(ctx, size)
		default:
			err = fmt.Errorf("unknown kind %q", kind)
		}
		switch {
		case errors.Is(err, ErrNone):
			fmt.Println("none")
		case err != nil:
			return err
		default:
			fmt.Println(start)
		}
	}
	return lines.Err()
}

// timed prints the duration of work and the CPU time of this process.
func timed(work func() error) error {
	start, before := time.Now(), cpu()
	err := work()
	if errors.Is(err, ErrNone) {
		fmt.Println("none")
		return nil
	}
	if err != nil {
		return err
	}
	fmt.Println(time.Since(start).Seconds(), (cpu() - before).Microseconds())
	return nil
}

func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // the arguments are valid
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func version(module string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, m := range info.Deps {
		if m.Path == module {
			if m.Replace != nil {
				return "this tree"
			}
			return strings.TrimPrefix(m.Version, "v")
		}
	}
	return "unknown"
}
