// Package peer is the protocol between the benchmark and a peer that is written in Go. The peers in other languages
// follow it, too. A peer is a program with these commands:
//
//	version      prints the version of the system
//	setup        prepares the store, which is empty
//	work N       runs a worker that runs N tasks at once, until SIGTERM; prints "ready" when it takes tasks
//	send         reads lines "KIND ID SIZE" and sends what they name; answers each with the unix time in µs before
//	enqueue N    sends N single tasks, one call for each; prints their seconds and the µs of CPU time of this process
//	bulk N       the same in calls of a thousand tasks
//
// The kinds are single, slow (a task that lasts ten minutes), chain (SIZE tasks, one after the other) and chord (SIZE
// tasks at once, then one that gets their results). What a system does not have is answered with "none". PEER_URL is
// the store. PEER_MARKS is a file; each task appends a line to it when it runs, so the benchmark sees what ran and when.
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

// ErrNone is returned by a Sender for what its system does not have.
var ErrNone = errors.New("none")

// Batch is how many tasks a call of bulk sends.
const Batch = 1000

// SlowFor is how long a slow task lasts.
const SlowFor = 10 * time.Minute

// Sender sends tasks.
type Sender interface {
	Single(ctx context.Context, id int) error
	Slow(ctx context.Context, id int) error
	Chain(ctx context.Context, id, steps int) error
	Chord(ctx context.Context, id, members int) error
	Bulk(ctx context.Context, first, n int) error
}

// System is a task queue.
type System struct {
	Module string // whose version is the version of the system; the main module's version is "this tree"
	Setup  func(ctx context.Context, url string) error
	Work   func(ctx context.Context, url string, concurrency int, ready func()) error // until ctx ends
	Open   func(ctx context.Context, url string) (Sender, error)
}

var marks = sync.OnceValues(func() (*os.File, error) {
	return os.OpenFile(os.Getenv("PEER_MARKS"), os.O_WRONLY|os.O_APPEND, 0)
})

// Mark records that a task runs.
func Mark(kind string, id int) error {
	f, err := marks()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, kind, id, time.Now().UnixMicro())
	return err
}

// MarkBody records that the body of a chord runs, which got so many results of members.
func MarkBody(id, results, members int) error {
	if results != members {
		return fmt.Errorf("the body of chord %d got %d results, want %d", id, results, members)
	}
	return Mark("body", id)
}

// Main is main of a peer.
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
	return fmt.Errorf("no command %q", args[0])
}

// send sends what the lines of standard input name.
func send(ctx context.Context, s Sender) error {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var kind string
		var id, size int
		if _, err := fmt.Sscan(lines.Text(), &kind, &id, &size); err != nil {
			return fmt.Errorf("line %q: %w", lines.Text(), err)
		}
		began := time.Now().UnixMicro()
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
		default:
			err = fmt.Errorf("no kind %q", kind)
		}
		switch {
		case errors.Is(err, ErrNone):
			fmt.Println("none")
		case err != nil:
			return err
		default:
			fmt.Println(began)
		}
	}
	return lines.Err()
}

// timed prints how long work takes, and the CPU time of this process meanwhile.
func timed(work func() error) error {
	began, before := time.Now(), cpu()
	err := work()
	if errors.Is(err, ErrNone) {
		fmt.Println("none")
		return nil
	}
	if err != nil {
		return err
	}
	fmt.Println(time.Since(began).Seconds(), (cpu() - before).Microseconds())
	return nil
}

func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // the arguments are right
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
