// Command fuzz runs fuzz targets one after the other, each for a while.
//
//	go run ./scripts/fuzz [-time 10s] [-total 5m] [-base REF] [all | PACKAGE…]
//
// Without arguments it takes the packages that have changed since the branch left REF: by default main or, where that is
// checked out, the last tag. all takes every package with targets. It prints a line for each target: how often it ran, and what
// it found. What makes a target fail is kept in testdata/fuzz of its package, where go test runs it from then on.
//
// Exit status 0: all targets held; 1: some failed; 2: wrong usage.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

var (
	errUsage  = errors.New("wrong usage")
	errFailed = errors.New("some targets failed")
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errUsage):
		fmt.Fprintln(os.Stderr, "fuzz:", err)
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "fuzz:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("fuzz", flag.ContinueOnError)
	flags.SetOutput(stderr)
	each := flags.String("time", "10s", "run each target for `D`, or for a number of times, as in 100000x")
	total := flags.Duration("total", 0, "run all targets together for about `D`: each gets its share, at least a second and at most -time")
	base := flags.String("base", "", "take the packages that have changed since the branch left `REF`")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	if !validTime.MatchString(*each) {
		return fmt.Errorf("%w: -time %s: write 10s or 100000x", errUsage, *each)
	}
	if strings.HasSuffix(*each, "x") && *total != 0 || *total < 0 {
		return fmt.Errorf("%w: -total %s: it is a time above 0, and -time is one, too", errUsage, *total)
	}
	root, err := git(ctx, "rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	if err := os.Chdir(strings.TrimSpace(root)); err != nil { // all paths are from there
		return err
	}
	packages, err := choose(ctx, flags.Args(), *base, stderr)
	if err != nil {
		return err
	}
	if len(packages) == 0 {
		fmt.Fprintln(stdout, "no package with fuzz targets has changed; give all, or packages")
		return nil
	}
	if *total > 0 {
		n, err := count(ctx, packages)
		if err != nil {
			return err
		}
		if *each, err = share(*each, *total, n); err != nil {
			return err
		}
	}
	return fuzzAll(ctx, packages, *each, stdout)
}

// count is how many targets the packages have.
func count(ctx context.Context, packages []string) (int, error) {
	args := []string{"grep", "--untracked", "-h", "^func Fuzz", "--"}
	for _, p := range packages {
		args = append(args, ":(glob)"+path.Clean(p)+"/*_test.go")
	}
	found, err := git(ctx, args...)
	return strings.Count(found, "\n"), err
}

// share is the time of each of n targets that together have total: at most most, and at least a second.
func share(most string, total time.Duration, n int) (string, error) {
	limit, err := time.ParseDuration(most)
	if err != nil {
		return "", fmt.Errorf("%w: -time %s: %w", errUsage, most, err)
	}
	each := max(time.Second, (total / time.Duration(n)).Truncate(time.Millisecond))
	return min(limit, each).String(), nil
}

// fuzzAll runs all targets of the packages, each for a time.
func fuzzAll(ctx context.Context, packages []string, each string, stdout io.Writer) error {
	dir, err := os.MkdirTemp("", "muster-fuzz-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	began, total, failed := time.Now(), 0, 0
	for _, pkg := range packages {
		p := target{pkg: pkg, binary: filepath.Join(dir, "fuzz.test"), time: each}
		names, err := p.build(ctx)
		if err != nil {
			return err
		}
		for _, p.name = range names {
			n, found, err := p.fuzz(ctx)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			total += n
			fmt.Fprintf(stdout, "%-28s %-22s %10d runs %s\n", pkg, p.name, n, found)
			if err != nil {
				failed++
			}
		}
	}
	fmt.Fprintf(stdout, "%d runs in %s, %d targets failed\n", total, time.Since(began).Round(time.Second), failed)
	if failed > 0 {
		return errFailed
	}
	return nil
}

var validTime = regexp.MustCompile(`^[0-9]+(x|s|m|h|ms)$`)

// choose returns the packages to take, as ./a/b.
func choose(ctx context.Context, args []string, base string, stderr io.Writer) ([]string, error) {
	files, err := git(ctx, "grep", "--untracked", "-l", "^func Fuzz", "--", "*_test.go")
	if err != nil {
		return nil, err
	}
	have := folders(files)
	switch {
	case len(args) == 1 && args[0] == "all":
		return have, nil
	case len(args) > 0:
		for _, a := range args {
			if !slices.Contains(have, a) {
				return nil, fmt.Errorf("%w: %s has no fuzz targets; there are %s", errUsage, a, strings.Join(have, " "))
			}
		}
		return args, nil
	}
	if base == "" {
		base = defaultBase(ctx)
	}
	if base == "" {
		fmt.Fprintln(stderr, "fuzz: there is neither another main nor a tag to compare with: all packages are taken")
		return have, nil
	}
	changed, err := git(ctx, "diff", "--name-only", "--merge-base", base)
	if err != nil {
		return nil, err
	}
	added, err := git(ctx, "ls-files", "--others", "--exclude-standard")
	if err != nil {
		return nil, err
	}
	fmt.Fprintln(stderr, "fuzz: packages that have changed since", base)
	touched := folders(changed + added)
	return slices.DeleteFunc(have, func(p string) bool { return !slices.Contains(touched, p) }), nil
}

// defaultBase is main or, if that is checked out, the last tag before it; "" if there is neither.
func defaultBase(ctx context.Context) string {
	head, err := git(ctx, "rev-parse", "HEAD")
	if err != nil {
		return ""
	}
	if main, err := git(ctx, "rev-parse", "--verify", "--quiet", "main"); err == nil && main != head {
		return "main"
	}
	tag, err := git(ctx, "describe", "--tags", "--abbrev=0", "HEAD^")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(tag)
}

func git(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "git", args...).Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", strings.Join(args, " "), err)
	}
	return string(out), nil
}

// folders returns the folders of files, one on a line each, as packages.
func folders(files string) []string {
	var all []string
	for file := range strings.Lines(files) {
		if file = strings.TrimSpace(file); strings.HasSuffix(file, ".go") {
			all = append(all, "./"+path.Dir(file))
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// target is a fuzz target of a package.
type target struct {
	pkg, name string
	binary    string // the test of the package, instrumented
	time      string
}

// build compiles the tests of the package, and returns the names of its targets.
func (t target) build(ctx context.Context) ([]string, error) {
	out, err := exec.CommandContext(ctx, "go", "test", "-vet=off", "-c", "-fuzz=^Fuzz", "-o", t.binary, t.pkg).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("build the tests of %s: %w\n%s", t.pkg, err, out)
	}
	if out, err = t.run(ctx, "-test.list=^Fuzz"); err != nil {
		return nil, fmt.Errorf("list the targets of %s: %w\n%s", t.pkg, err, out)
	}
	return targetsIn(string(out)), nil
}

// run runs the binary in the folder of the package, as go test does.
func (t target) run(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, t.binary, args...)
	cmd.Dir = t.pkg
	return cmd.CombinedOutput()
}

func targetsIn(listed string) []string {
	var targets []string
	for line := range strings.Lines(listed) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "Fuzz") {
			targets = append(targets, line)
		}
	}
	return targets
}

// fuzz runs a target. found is what it found, on a line.
func (t target) fuzz(ctx context.Context) (n int, found string, err error) {
	cache := t.binary + ".cache" // of inputs that run other code; lost with the folder, as they are found again
	out, err := t.run(ctx, "-test.run=-", "-test.parallel=1", "-test.fuzz=^"+t.name+"$", "-test.fuzztime="+t.time,
		"-test.fuzzminimizetime=10s", "-test.fuzzcachedir="+filepath.Join(cache, t.pkg))
	n, found = summary(string(out))
	if err != nil && endedLate(string(out)) {
		return n, found, nil
	}
	if err != nil {
		found = "FAILED\n" + string(out)
	}
	return n, found, err
}

var progress = regexp.MustCompile(`execs: (\d+) \(.*(?:new interesting: (\d+) )`)

// endedLate reports whether a target failed only because an input was running when the time was over, which package
// testing reports as a failure.
func endedLate(out string) bool {
	return strings.Contains(out, "context deadline exceeded") && !strings.Contains(out, "Failing input written")
}

// summary returns how often a target ran, and how many inputs it found that run other code.
func summary(out string) (n int, found string) {
	found = "nothing new"
	for _, m := range progress.FindAllStringSubmatch(out, -1) {
		n, _ = strconv.Atoi(m[1])
		if m[2] != "0" {
			found = m[2] + " new inputs"
		}
	}
	return n, found
}
