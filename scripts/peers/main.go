// Command peers runs the same workloads on Muster and on comparable task queues on this machine, and writes docs/performance.md.
//
//	go run . [-only NAMES] [-turns N] [-wait D] [-save FILE] [-load FILE] [-out DIR]
//
// It requires Linux and Debian packages, and names missing ones. Each peer is a program in a separate directory;
// peer/peer.go describes its protocol.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	only := flag.String("only", "", "run only the systems with these `NAMES`, separated by commas")
	turns := flag.Int("turns", 5, "number of rounds, each in a random order; the results are medians")
	wait := flag.Duration("wait", 20*time.Minute, "longest wait for a quiet machine; on a busy one the page has ratios")
	save := flag.String("save", "results.json", "also write the results to `FILE`, as JSON")
	load := flag.String("load", "", "write the page for the results in `FILE` without measuring")
	out := flag.String("out", "../../docs", "output directory `DIR` of performance.md")
	flag.Parse()
	if flag.NArg() > 0 || *turns < 1 {
		fmt.Fprintln(os.Stderr, "peers: wrong usage; see -help")
		os.Exit(2)
	}
	if err := run(ctx, *only, *turns, *wait, *save, *load, *out); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, only string, turns int, wait time.Duration, save, load, out string) error {
	var res *results
	var err error
	if load != "" {
		res, err = loadResults(load)
	} else {
		res, err = measureAll(ctx, only, turns, wait)
	}
	if err != nil {
		return err
	}
	if save != "" {
		if err := saveResults(save, res); err != nil {
			return err
		}
	}
	page, err := render(res)
	if err != nil {
		return err
	}
	path := filepath.Join(out, "performance.md")
	say("writing %s", path)
	return os.WriteFile(path, page, 0o644)
}

// results are the measurements of a run, stored as JSON.
type results struct {
	Machine machine
	Took    time.Duration
	Turns   int
	Limit   time.Duration // timeout for the task of a killed worker
	Systems []*outcome
	LeftOut []string // reasons why peers are missing
}

func (res *results) leaveOut(name string, err error) {
	line, _, _ := strings.Cut(err.Error(), "\n")
	res.LeftOut = append(res.LeftOut, name+": "+line)
}

func saveResults(path string, res *results) error {
	raw, err := json.MarshalIndent(res, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(path, raw, 0o644)
}

func loadResults(path string) (*results, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var res results
	if err := json.Unmarshal(raw, &res); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	for _, o := range res.Systems {
		o.System.refresh() // use the current descriptions
	}
	return &res, nil
}

func measureAll(ctx context.Context, only string, turns int, wait time.Duration) (*results, error) {
	chosen, err := chooseSystems(only)
	if err != nil {
		return nil, err
	}
	if err := missingPackages(ctx, chosen); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "muster-peers-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	// PostgreSQL runs in it as another user.
	if err := os.Chmod(dir, 0o755); err != nil {
		return nil, err
	}

	res := &results{Turns: turns, Limit: recoveryLimit}
	b := &bench{dir: dir}
	for _, s := range chosen {
		if err := s.prepare(ctx, dir); ctx.Err() != nil {
			return nil, ctx.Err()
		} else if err != nil {
			say("%s is skipped: %v", s.Name, err)
			res.leaveOut(s.Name, err)
			continue
		}
		say("%s %s", s.Name, s.Version)
		res.Systems = append(res.Systems, &outcome{System: *s})
	}

	if err := awaitQuiet(ctx, wait); err != nil {
		return nil, err
	}
	start := time.Now()
	if res.Machine, err = thisMachine(ctx); err != nil {
		return nil, err
	}
	for turn := range turns {
		order := slices.Clone(res.Systems)
		rand.Shuffle(len(order), func(i, k int) { order[i], order[k] = order[k], order[i] })
		for _, o := range order {
			say("turn %d of %d: %s", turn+1, turns, o.System.Name)
			if err := b.turn(ctx, o); ctx.Err() != nil {
				return nil, ctx.Err()
			} else if err != nil {
				// A failed system does not stop the others.
				say("%s is skipped: %v", o.System.Name, err)
				res.leaveOut(o.System.Name, err)
				res.Systems = slices.DeleteFunc(res.Systems, func(other *outcome) bool { return other == o })
			}
		}
	}
	say("killing workers, and waiting up to %v for their tasks", recoveryLimit)
	if err := b.recoveries(ctx, res.Systems); err != nil {
		return nil, err
	}
	res.Took = time.Since(start)
	return res, nil
}

// missingPackages returns an error with the command that installs the missing Debian packages of the systems.
func missingPackages(ctx context.Context, systems []*system) error {
	wanted := []string{"redis-server", "redis-tools"}
	for _, s := range systems {
		wanted = append(wanted, s.packages...)
		for command, name := range s.commands {
			if _, err := exec.LookPath(command); err != nil {
				wanted = append(wanted, name)
			}
		}
	}
	states, err := output(ctx, "", nil, "dpkg-query", "--show", "--showformat", "${Package} ${db:Status-Status}\n")
	if err != nil {
		return fmt.Errorf("list the Debian packages: %w", err)
	}
	missing := slices.DeleteFunc(wanted, func(name string) bool { return slices.Contains(strings.Split(states, "\n"), name+" installed") })
	if len(missing) > 0 {
		return fmt.Errorf("missing packages; install them, and stop the services that they start:\n  apt-get install --no-install-recommends %s", strings.Join(missing, " "))
	}
	return nil
}

func say(format string, args ...any) { fmt.Fprintf(os.Stderr, "peers: "+format+"\n", args...) }
