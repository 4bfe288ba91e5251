//go:build unix

// Command soak runs the complete system for a long time under a moderate load, with a fault per minute, and checks for lost and
// duplicate work and for leaks.
//
//	go run ./scripts/soak [-minutes N] [-seed N] [-rate N] [-out PREFIX] [-keep]
//	go run ./scripts/soak -resume DIR [-out PREFIX] [-keep]
//
// It starts a redis-server, `muster start` with worker processes, `muster queue run`, a separate worker for workflows, agents of
// examples/agents, and the sites and proxies of `muster demo`, all on loopback. A run has four quarters. Each ends with a drain, in
// which the load stops until all sent work has finished. A line per minute is printed to standard error. At the end a Markdown
// table is printed and written to PREFIX.md, with the data in PREFIX.json.
//
// In the second half the orchestrator and its first worker are not killed, so that leaks become visible.
//
// An interrupted run finishes the sent work, at most for four minutes, and stops. -resume continues it on the same data.
//
// Exit status 0: all accounts balance without growth; 1: a check failed, or the run was interrupted; 2: invalid usage.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// options are the command line options.
type options struct {
	minutes int
	seed    uint64
	rate    int
	out     string
	keep    bool
	resume  string // directory of an interrupted run
}

// errUsage is an error in the command line, errFailed an error of the system under test.
var (
	errUsage       = errors.New("invalid usage")
	errFailed      = errors.New("the system failed the test")
	errInterrupted = errors.New("interrupted")
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process
	var err error
	if url := os.Getenv(workerEnv); url != "" {
		err = runWorker(ctx, url, os.Getenv(metricsEnv), os.Getenv(outboxEnv))
	} else {
		err = run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	}
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errUsage):
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

func parse(args []string, stderr io.Writer) (options, error) {
	o := options{seed: rand.Uint64() >> 12}
	flags := flag.NewFlagSet("soak", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&o.minutes, "minutes", 120, "run for about `N` minutes, including drains; growth is judged from 20 minutes on")
	flags.Uint64Var(&o.seed, "seed", o.seed, "seed `N` of the random faults; 0 to 2^53")
	flags.IntVar(&o.rate, "rate", 150, "send `N` workflows per minute, and other work in proportion")
	flags.StringVar(&o.out, "out", "", "also write `PREFIX`.json and PREFIX.md")
	flags.BoolVar(&o.keep, "keep", false, "keep the directory with data and logs")
	flags.StringVar(&o.resume, "resume", "", "continue the interrupted run in `DIR`, with its duration, seed and rate")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return o, err
		}
		return o, fmt.Errorf("%w: %w", errUsage, err)
	}
	if flags.NArg() > 0 || o.minutes < 2 || o.rate < 1 {
		return o, fmt.Errorf("%w: soak takes no arguments, at least 2 minutes and a rate of at least 1; see -help", errUsage)
	}
	return o, nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	r, dir := &report{Minutes: o.minutes, Seed: o.seed, Rate: o.rate, Began: time.Now().UTC()}, o.resume
	if dir == "" {
		dir, err = os.MkdirTemp("", "muster-soak-")
	} else {
		r, err = readReport(dir)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(stderr, "soak: %d minutes, -seed %d, in %s\n", r.Minutes, r.Seed, dir)
	switch err = soak(ctx, r, dir, stderr); {
	case errors.Is(err, errInterrupted):
		if werr := writeJSON(r, filepath.Join(dir, reportFile)); werr != nil {
			return werr
		}
		return fmt.Errorf("%w after %s; to continue: make soak SOAK='-resume %s'", err, r.elapsed().Round(time.Second), dir)
	case err != nil:
		return err
	}
	r.judge()
	err = write(r, o.out, stdout)
	if err == nil && !r.OK {
		err = errFailed
	}
	if err == nil && !o.keep {
		return os.RemoveAll(dir)
	}
	fmt.Fprintln(stderr, "soak: data and logs are in", dir)
	return err
}

// write prints the report and writes it to files if prefix is not empty.
func write(r *report, prefix string, stdout io.Writer) error {
	text := r.markdown()
	if prefix != "" {
		if err := errors.Join(writeJSON(r, prefix+".json"), os.WriteFile(prefix+".md", []byte(text), 0o600)); err != nil {
			return err
		}
	}
	_, err := io.WriteString(stdout, text)
	return err
}

func writeJSON(r *report, file string) error {
	raw, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(raw, '\n'), 0o600)
}

// reportFile contains the report of an interrupted run so far.
const reportFile = "report.json"

// readReport reads the report of an interrupted run.
func readReport(dir string) (*report, error) {
	raw, err := os.ReadFile(filepath.Join(dir, reportFile))
	if err != nil {
		return nil, fmt.Errorf("%w: -resume requires the directory of an interrupted run: %w", errUsage, err)
	}
	r := &report{}
	if err := json.Unmarshal(raw, r); err != nil {
		return nil, fmt.Errorf("read %s: %w", reportFile, err)
	}
	r.Resumed++
	return r, nil
}

// build builds a command of this module into dir.
func build(ctx context.Context, dir, name, pkg string) (string, error) {
	path := filepath.Join(dir, name)
	out, err := exec.CommandContext(ctx, "go", "build", "-o", path, pkg).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", pkg, err, out)
	}
	return path, nil
}

// soak runs the system under load until the end of r, to which it adds its measurements. If ctx is done, it finishes the sent
// work and returns errInterrupted.
func soak(ctx context.Context, r *report, dir string, stderr io.Writer) error {
	s, err := startSystem(ctx, dir, r)
	if err != nil {
		return err
	}
	defer s.close()
	l := newLoad(s, r)
	random := rand.New(rand.NewPCG(r.Seed, uint64(1+len(r.Samples))))
	sampler := newSampler(s)
	began := time.Now().Add(-r.elapsed())
	quarter := time.Duration(r.Minutes) * time.Minute / quarters
	for ; r.Quarter < quarters && ctx.Err() == nil; r.Quarter++ {
		take := func(drained bool, injected string) {
			sample := sampler.take(context.WithoutCancel(ctx), r.Quarter, drained)
			sample.Fault = injected
			r.Samples = append(r.Samples, sample)
			if !drained {
				l.audit(ctx)
			}
			fmt.Fprintln(stderr, sample.line(l.account()))
		}
		until := began.Add(time.Duration(r.Quarter+1) * quarter).Add(-drainShare(quarter))
		l.start(ctx)
		for ctx.Err() == nil && time.Now().Before(until) {
			minute := time.Now().Add(min(time.Minute, max(time.Until(until), time.Second)))
			f := pick(random, r.Quarter >= quarters/2)
			l.pause(ctx, time.Duration(random.IntN(20))*time.Second)
			injected := s.inflict(ctx, f)
			l.pause(ctx, time.Until(minute))
			s.revive()
			take(false, injected)
		}
		if err := l.drain(); err != nil {
			r.Problems = append(r.Problems, err.Error())
		}
		if ctx.Err() != nil {
			break
		}
		for range drainSamples {
			l.pause(ctx, 5*time.Second)
			take(true, "")
		}
	}
	r.Seconds = int(time.Since(began).Seconds())
	r.Accounts, r.Sequence = l.account(), l.n
	r.Problems = append(r.Problems, l.problems()...)
	if ctx.Err() != nil {
		return errInterrupted
	}
	return nil
}

// drainSamples is the number of samples after a drain.
const drainSamples = 3

// drainShare returns the part of a quarter that is reserved for its drain.
func drainShare(quarter time.Duration) time.Duration { return min(quarter/4, 90*time.Second) }
