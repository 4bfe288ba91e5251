package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"
	"golang.org/x/sync/errgroup"

	"muster/internal/nearest"
	"muster/jobs"
	"muster/jobs/pipeline"
	"muster/orchestrator"
	"muster/orchestrator/api/client"
	"muster/orchestrator/monitor"
)

// shownPrompt is how much of a prompt is shown, in characters.
const shownPrompt = 80

func jobsStartCommand(env environment) *cli.Command {
	c := apiCommand(env.creating(), &cli.Command{
		Name: "start", Usage: "create a job of a pipeline", ArgsUsage: "[PIPELINE]",
		Description: `Prints the id of the job and returns; with --wait it shows the progress and exits
with 1 unless the job is completed. Agents and workers of a running orchestrator
do the work. If none is running, --wait starts workers, Go tasks and the agents of
agents.static for the duration of the command. Other agents need the HTTP
interface of muster start.

    muster jobs start --prompt 'find all duties' --document a.pdf --wait
    muster jobs start audit --prompt check --context '{"customer": "acme"}'
    muster jobs start --prompt 'and again' --after JOB --priority high --at 2h
    muster jobs start --file list.jsonl

With --file, each line is a job: an object like {"id": "first", "prompt": "Check
all contracts", "priority": 5}. Jobs whose ID exists are skipped, so the command
can run at each start of a system.`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "file", Usage: "create the jobs of `FILE`; - is standard input"},
			&cli.StringFlag{Name: "document", Aliases: []string{"document-path"}, Usage: "`FILE` is the document for the agents"},
			&cli.StringFlag{Name: "priority", Usage: "high, normal, low or `N` from -100 to 100; a step is worth a minute of waiting", Value: "normal"},
			programFlag("wait"), programFlag("timeout"), jsonFlag(),
		},
		Before: checkJob,
	}, func(s scope, in client.With[client.NewJob]) (err error) {
		if in.Body.Priority, err = priorityOf(s.String("priority")); err != nil {
			return err
		}
		return s.start(in.Body)
	})
	create := c.Action
	c.Action = func(c *cli.Context) error {
		if file := c.String("file"); file != "" {
			return seedJobs(env, c, file)
		}
		return create(c)
	}
	return c
}

// checkJob checks flags of jobs start.
func checkJob(c *cli.Context) error {
	if c.IsSet("file") {
		return nil
	}
	if strings.TrimSpace(c.String("prompt")) == "" {
		return usageError{errors.New("prompt cannot be empty; set it with --prompt TEXT")}
	}
	if path := c.String("document"); path != "" {
		if _, err := os.Stat(path); err != nil {
			return missingFile(path, err)
		}
	}
	_, err := priorityOf(c.String("priority"))
	return err
}

// startResult is the JSON result of jobs start.
type startResult struct {
	JobID     string         `json:"job_id"`
	Status    jobs.Status    `json:"status"`
	Prompt    string         `json:"prompt"`
	Document  string         `json:"document_path,omitempty"`
	Duplicate bool           `json:"duplicate,omitempty"` // it is the job of an earlier request for the same
	Final     jobs.Status    `json:"final_status,omitempty"`
	Progress  *jobs.Progress `json:"progress,omitempty"` // at the end, with --wait
}

// start creates a job, prints it, and waits for it with --wait.
func (s scope) start(req client.NewJob) error {
	others := true
	if s.own != nil {
		var err error
		if others, err = s.own.Workers.Elsewhere(s.ctx); err != nil {
			return err
		}
	}
	path := s.String("document")
	j, err := s.create(req, path)
	if err != nil {
		return err
	}
	result := startResult{JobID: j.ID, Status: j.Status, Prompt: j.Prompt, Document: path, Duplicate: j.Duplicate}
	if !s.Bool("json") {
		printStarted(s.env, result)
	}
	if !others && !s.Bool("wait") {
		fmt.Fprintln(s.env.stderr, "muster: no workers are running; the job begins when an orchestrator does: muster start")
	}
	if !s.Bool("wait") {
		if s.Bool("json") {
			return printJSON(s.env.stdout, result)
		}
		return nil
	}
	if !s.Bool("json") {
		fmt.Fprintln(s.env.stdout, "Waiting for completion...")
	}
	return s.finish(j, func(ended client.Job) (any, error) {
		p, err := client.GetJobProgress.Call(s.ctx, s.api, client.JobPath{ID: j.ID})
		result.Final, result.Progress = ended.Status, &p
		return result, err
	})
}

// create creates a job with the document of a file; "" means none.
func (s scope) create(req client.NewJob, path string) (client.Job, error) {
	var content io.Reader
	if path != "" {
		file, err := os.Open(path)
		if err != nil {
			return client.Job{}, missingFile(path, err)
		}
		defer file.Close()
		content = file
	}
	j, err := s.api.CreateJob(s.ctx, req, "", filepath.Base(path), content)
	switch {
	case hasCode(err, "job_exists"):
		err = fmt.Errorf("%w; create another with --dedupe allow, or join it with --dedupe join", err)
	case hasCode(err, "job_not_found"):
		err = fmt.Errorf("create a job of pipeline %s: %w; see muster jobs list", cmp.Or(req.Pipeline, pipeline.Default), err)
	}
	return j, err
}

func printStarted(env environment, r startResult) {
	word := "Created job"
	if r.Duplicate {
		word = "Joined job"
	}
	fmt.Fprintf(env.stdout, "%s: %s\nPrompt: %s\n", word, r.JobID, cell(r.Prompt, shownPrompt))
	if r.Document != "" {
		fmt.Fprintf(env.stdout, "Document: %s\n", r.Document)
	}
}

// finish waits for a job, and does its work in this process unless other processes have workers. Then it prints the result: with
// --json the JSON of the ended job.
func (s scope) finish(j client.Job, result func(ended client.Job) (any, error)) error {
	stop, _, err := s.serve(true)
	if err != nil {
		return err
	}
	ended, err := s.wait(j)
	if err = errors.Join(err, stop()); err != nil {
		return withJobState(s.ctx, s.own, err, "jobs", []string{j.ID}, "muster jobs retry "+j.ID+" --wait")
	}
	if !s.Bool("json") {
		fmt.Fprintf(s.env.stdout, "Job completed with status: %s\n", screenOf(s.env.stdout).state(string(ended.Status)))
		return notCompleted(ended)
	}
	object, err := result(ended)
	if err != nil {
		return err
	}
	return errors.Join(printJSON(s.env.stdout, object), notCompleted(ended))
}

// serve does the work of jobs, or else of scrapes, in this process until stop is called, unless other processes have workers.
func (s scope) serve(jobs bool) (stop func() error, serving bool, err error) {
	none := func() error { return nil }
	if s.own == nil {
		return none, false, nil
	}
	others, err := s.own.Workers.Elsewhere(s.ctx)
	if err != nil || others {
		return none, false, err
	}
	if err := s.own.Workers.Start(s.ctx); err != nil {
		return nil, false, err
	}
	running, cancel := context.WithCancel(s.ctx)
	parts, running := errgroup.WithContext(running)
	work := []func(context.Context) error{func(ctx context.Context) error { s.own.Proxies.Keep(ctx); return nil }}
	if jobs {
		work = []func(context.Context) error{s.own.Jobs.Run, s.own.Agents.Run}
	}
	for _, run := range work {
		parts.Go(func() error {
			if err := run(running); running.Err() == nil {
				return err
			}
			return nil
		})
	}
	return func() error { cancel(); return parts.Wait() }, true, nil
}

// seedJobs creates the jobs of a file.
func seedJobs(env environment, c *cli.Context, file string) error {
	if c.NArg() > 0 {
		return usageError{errors.New("jobs start: --file takes no pipeline; its lines name theirs")}
	}
	for _, f := range c.Command.Flags {
		if name := f.Names()[0]; c.IsSet(name) && name != "file" && name != "json" && (refusals[name] != "" || !isGlobal(f)) {
			return usageError{fmt.Errorf("--%s does not apply with --file, whose lines describe the jobs that it creates in the store of --data-dir or --redis", name)}
		}
	}
	from := env.stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return fmt.Errorf("seed: %w", err)
		}
		defer f.Close()
		from = f
	}
	loaded, err := loadConfig(env, c)
	if err != nil {
		return err
	}
	return withSystem(env.creating(), c, loaded, true, func(ctx context.Context, o *orchestrator.Orchestrator, _ *monitor.Display) error {
		done, err := o.Jobs.Seed(ctx, from)
		if err != nil {
			return fmt.Errorf("%w; %d jobs were created before it, and are skipped when the file is used again", err, done.Created)
		}
		if c.Bool("json") {
			return printJSON(env.stdout, done)
		}
		_, err = fmt.Fprintf(env.stdout, "Created %d jobs; %d existed\n", done.Created, done.Kept)
		return err
	})
}

// The priorities that have names. A step is worth a minute of waiting.
var namedPriorities = map[string]int{"high": 100, "normal": 0, "low": -100}

// priorityOf reads a priority: a number, or one of high, normal and low.
func priorityOf(text string) (int, error) {
	if n, ok := namedPriorities[text]; ok {
		return n, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < -100 || n > 100 {
		return 0, usageError{fmt.Errorf("--priority %q: use high, normal, low or a number from -100 to 100", text)}
	}
	return n, nil
}

// oneOf checks the value of a flag that has few.
func oneOf[T ~string](flag, value string, values []T) error {
	if value == "" || slices.Contains(values, T(value)) {
		return nil
	}
	known := make([]string, len(values))
	for i, v := range values {
		known[i] = string(v)
	}
	return usageError{fmt.Errorf("--%s %q%s: use one of %s", flag, value, nearest.Hint(value, known), strings.Join(known, ", "))}
}

// missingFile names a document that does not exist.
func missingFile(path string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("document not found: %s", path)
	}
	return err
}
