package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// The number of concurrent tasks of the worker of each system.
const (
	concurrency = 10
	napsAtOnce  = 50 // tasks that wait
)

// system is a task queue to measure.
type system struct {
	Name     string
	Version  string // filled by prepare
	Language string
	Store    string // redis or postgres
	Settings string // settings other than the defaults, with reasons; empty for none
	Promise  string // guarantees for a single task in this benchmark
	Recovery string // mechanism that determines when a task of a killed worker runs again
	Loses    bool   // the task of a killed worker is lost

	packages []string          // Debian packages
	commands map[string]string // Debian packages by command that may also have another source
	build    func(ctx context.Context, s *system, dir string) ([]string, error)
	command  []string // filled by prepare
}

// systems returns all systems in the order of the tables.
func systems() []*system {
	return []*system{
		{
			Name: "Muster", Language: "Go", Store: "redis", build: buildGo,
			Promise:  "at least once; results for a day",
			Recovery: "no heartbeat for 3.5 s, detected within 6 s",
		},
		{
			Name: "asynq", Language: "Go", Store: "redis", build: buildGo,
			Promise:  "at least once; no results",
			Recovery: "lease of 30 s, collected once a minute",
		},
		{
			Name: "River", Language: "Go", Store: "postgres", build: buildGo, packages: []string{"postgresql"},
			Settings: "as its benchmark",
			Promise:  "at least once, in your transaction, on disk; kept for a day",
			Recovery: "`RescueStuckJobsAfter`, an hour",
		},
		{
			Name: "DBOS", Language: "Go", Store: "postgres", build: buildGo, packages: []string{"postgresql"},
			Settings: "polls as River",
			Promise:  "each step at least once, on disk; kept until deleted",
			Recovery: "its process starts again",
		},
		{
			Name: "Celery", Language: "Python", Store: "redis", build: buildPython, packages: []string{"python3-celery", "python3-redis"},
			Settings: "`ignore_result` for single tasks, threads for tasks that wait",
			Promise:  "at most once; results of chains and chords for a day",
			Recovery: "acknowledged before it runs; an hour with `acks_late`",
			Loses:    true,
		},
		{
			Name: "Sidekiq", Language: "Ruby", Store: "redis", build: buildRuby, packages: []string{"ruby-sidekiq"},
			Promise:  "at most once; no results",
			Recovery: "removed before it runs, except in paid editions",
			Loses:    true,
		},
		{
			Name: "BullMQ", Language: "Node.js", Store: "redis", build: buildNode, commands: map[string]string{"node": "nodejs", "npm": "npm"},
			Settings: "`removeOnComplete`, as its guide recommends",
			Promise:  "at least once; last 1,000 results",
			Recovery: "lock of 30 s, collected every 30 s",
		},
	}
}

// refresh updates the descriptions from the list of systems.
func (s *system) refresh() {
	for _, now := range systems() {
		if now.Name == s.Name {
			s.Settings, s.Promise, s.Recovery, s.Loses = now.Settings, now.Promise, now.Recovery, now.Loses
		}
	}
}

// chooseSystems returns the systems with the comma-separated names, or all for "".
func chooseSystems(names string) ([]*system, error) {
	all := systems()
	if names == "" {
		return all, nil
	}
	var chosen []*system
	for _, name := range strings.Split(names, ",") {
		i := slices.IndexFunc(all, func(s *system) bool { return strings.EqualFold(s.Name, name) })
		if i < 0 {
			return nil, fmt.Errorf("unknown system %q", name)
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// prepare builds the program of the system in a directory below dir and reads its version.
func (s *system) prepare(ctx context.Context, dir string) error {
	command, err := s.build(ctx, s, filepath.Join(dir, s.folder()))
	if err != nil {
		return err
	}
	s.command = command
	out, err := output(ctx, "", nil, append(command, "version")...)
	s.Version = strings.TrimSpace(out)
	return err
}

// folder returns the directory of the peer.
func (s *system) folder() string { return strings.ToLower(s.Name) }

func buildGo(ctx context.Context, s *system, dir string) ([]string, error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	binary := filepath.Join(dir, s.folder())
	_, err := output(ctx, s.folder(), nil, "go", "build", "-o", binary, ".")
	return []string{binary}, err
}

// buildPython uses the Python of Debian, for which its packages are built.
func buildPython(_ context.Context, s *system, _ string) ([]string, error) {
	path, err := filepath.Abs(filepath.Join(s.folder(), "peer.py"))
	return []string{"/usr/bin/python3", path}, err
}

func buildRuby(_ context.Context, s *system, _ string) ([]string, error) {
	path, err := filepath.Abs(filepath.Join(s.folder(), "peer.rb"))
	return []string{"/usr/bin/ruby", path}, err
}

// buildNode installs the packages of the lock file. It does not use npm ci, which would also require optional packages for other
// systems, which registries may lack. The packages contain their binaries; install scripts do not run.
func buildNode(ctx context.Context, s *system, dir string) ([]string, error) {
	if err := os.CopyFS(dir, os.DirFS(s.folder())); err != nil {
		return nil, err
	}
	if _, err := output(ctx, dir, nil, "npm", "install", "--ignore-scripts", "--no-audit", "--no-fund"); err != nil {
		return nil, err
	}
	return []string{"node", filepath.Join(dir, "peer.js")}, nil
}

// output runs a command in a directory and returns its standard output. Its error contains the standard error.
func output(ctx context.Context, dir string, env []string, command ...string) (string, error) {
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &errs
	cmd.Env = append(os.Environ(), env...)
	// Cancel kills the child processes too.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(command, " "), err, beginning(errs.String()))
	}
	return out.String(), nil
}

// beginning returns the first lines of an error output.
func beginning(text string) string {
	const most = 600
	text = strings.TrimSpace(text)
	return text[:min(most, len(text))]
}
