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

// concurrency is how many tasks the worker of each system runs at once.
const concurrency = 10

// system is a task queue that is measured.
type system struct {
	Name     string
	Version  string // filled by prepare
	Language string
	Store    string // redis or postgres
	Settings string // those that are not defaults, and why
	Promise  string // what the system guarantees for a single task, as it is measured here
	Recovery string // what decides how soon a task of a killed worker runs again
	Loses    bool   // that task: it never runs again

	packages []string          // of Debian
	commands map[string]string // and the packages of those that may come from elsewhere
	build    func(ctx context.Context, s *system, dir string) ([]string, error)
	command  []string // filled by prepare
}

// systems are all of them, in the order of the tables.
func systems() []*system {
	return []*system{
		{
			Name: "Muster", Language: "Go", Store: "redis", build: buildGo,
			Settings: "defaults",
			Promise:  "At least once. The result and the state are kept for 24 hours; workflows are stored as a whole when they are sent.",
			Recovery: "a worker without a heartbeat for 6 s is dead, which others find within 12 s; workers of `muster start` are found at once",
		},
		{
			Name: "asynq", Language: "Go", Store: "redis", build: buildGo,
			Settings: "defaults; an idle worker looks for tasks once a second (`TaskCheckInterval`)",
			Promise:  "At least once. No result is kept unless a task asks for it; no chains, no joins.",
			Recovery: "a lease lasts 30 s; once a minute, those that ended 30 s before are looked for; then the task waits for its retry, 15 to 45 s",
		},
		{
			Name: "machinery", Language: "Go", Store: "redis", build: buildGo,
			Settings: "those of its example for go-redis",
			Promise:  "At most once when a worker is killed: it takes a task off the list before it runs it. The state and the result are kept for an hour.",
			Recovery: "it is taken off the list before it runs",
			Loses:    true,
		},
		{
			Name: "River", Language: "Go", Store: "postgres", build: buildGo, packages: []string{"postgresql"},
			Settings: "`FetchCooldown` 2 ms and `FetchPollInterval` 5 ms, as in its own benchmark; with its defaults (100 ms, 1 s) it fetches at most 10 tasks in 100 ms here",
			Promise:  "At least once, and stored in the transaction of your data, flushed to the disk before `Insert` returns. Finished tasks are kept for a day. Workflows are in its paid edition.",
			Recovery: "`RescueStuckJobsAfter`, an hour",
		},
		{
			Name: "Celery", Language: "Python", Store: "redis", build: buildPython, packages: []string{"python3-celery", "python3-redis"},
			Settings: "defaults (prefork); single tasks with `ignore_result`",
			Promise:  "At most once when a worker is killed: a task is acknowledged before it runs. No result of single tasks is kept here; those of chains and chords are kept for a day.",
			Recovery: "it is acknowledged before it runs; with `acks_late` it runs again after `visibility_timeout`, an hour",
			Loses:    true,
		},
		{
			Name: "Sidekiq", Language: "Ruby", Store: "redis", build: buildRuby, packages: []string{"ruby-sidekiq"},
			Settings: "defaults",
			Promise:  "At most once when a worker is killed: a task is taken off the list before it runs. It keeps no results. Batches and a reliable fetch are in its paid editions.",
			Recovery: "it is taken off the list before it runs; the paid editions find it",
			Loses:    true,
		},
		{
			Name: "BullMQ", Language: "Node.js", Store: "redis", build: buildNode, commands: map[string]string{"node": "nodejs", "npm": "npm"},
			Settings: "defaults; finished jobs are removed (`removeOnComplete` of an hour and 1,000 jobs), as its guide to production advises",
			Promise:  "At least once. The results of the last 1,000 jobs are kept here.",
			Recovery: "the lock of a job lasts 30 s; stalled jobs are looked for every 30 s",
		},
	}
}

// refresh takes the texts from the list of systems.
func (s *system) refresh() {
	for _, now := range systems() {
		if now.Name == s.Name {
			s.Settings, s.Promise, s.Recovery, s.Loses = now.Settings, now.Promise, now.Recovery, now.Loses
		}
	}
}

// chooseSystems returns the systems with these names, separated by commas; all if there are none.
func chooseSystems(names string) ([]*system, error) {
	all := systems()
	if names == "" {
		return all, nil
	}
	var chosen []*system
	for _, name := range strings.Split(names, ",") {
		i := slices.IndexFunc(all, func(s *system) bool { return strings.EqualFold(s.Name, name) })
		if i < 0 {
			return nil, fmt.Errorf("no system is named %q", name)
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// prepare builds the program of the system in a folder below dir, and asks it for its version.
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

// folder is the folder of the peer beside this file.
func (s *system) folder() string { return strings.ToLower(s.Name) }

func buildGo(ctx context.Context, s *system, dir string) ([]string, error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	binary := filepath.Join(dir, s.folder())
	_, err := output(ctx, s.folder(), nil, "go", "build", "-o", binary, ".")
	return []string{binary}, err
}

// Debian's packages are for Debian's Python and Ruby.
func buildPython(_ context.Context, s *system, _ string) ([]string, error) {
	path, err := filepath.Abs(filepath.Join(s.folder(), "peer.py"))
	return []string{"/usr/bin/python3", path}, err
}

func buildRuby(_ context.Context, s *system, _ string) ([]string, error) {
	path, err := filepath.Abs(filepath.Join(s.folder(), "peer.rb"))
	return []string{"/usr/bin/ruby", path}, err
}

// buildNode installs what the lock file names: npm ci would also want optional packages for other systems, which registries
// may lack. The packages bring their binaries; no script of theirs runs.
func buildNode(ctx context.Context, s *system, dir string) ([]string, error) {
	if err := os.CopyFS(dir, os.DirFS(s.folder())); err != nil {
		return nil, err
	}
	if _, err := output(ctx, dir, nil, "npm", "install", "--ignore-scripts", "--no-audit", "--no-fund"); err != nil {
		return nil, err
	}
	return []string{"node", filepath.Join(dir, "peer.js")}, nil
}

// output runs a command in a folder and returns its standard output. Its error has the standard error.
func output(ctx context.Context, dir string, env []string, command ...string) (string, error) {
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &errs
	cmd.Env = append(os.Environ(), env...)
	// Its children end with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(command, " "), err, beginning(errs.String()))
	}
	return out.String(), nil
}

// beginning is the first lines of what a command says about its failure.
func beginning(text string) string {
	const most = 600
	text = strings.TrimSpace(text)
	return text[:min(most, len(text))]
}
