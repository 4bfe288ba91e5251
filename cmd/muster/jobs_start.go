package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sync/errgroup"

	"muster/jobs"
	"muster/jobs/pipeline"
	"muster/orchestrator/redisd"
)

// shownPrompt is how much of a prompt is shown, in characters.
const shownPrompt = 80

func jobsStartCommand(env environment) *cli.Command {
	return &cli.Command{
		Name: "start", Usage: "create a job of a pipeline", ArgsUsage: "[PIPELINE]",
		Description: `Prints the id of the job and returns; with --wait it shows the progress and exits
with 1 unless the job is completed. Agents and workers of a running orchestrator
do the work. If none is running, --wait starts workers, Go tasks and the agents of
agents.static for the duration of the command. Other agents need the HTTP
interface of muster start.

    muster jobs start --prompt 'find all duties' --document a.pdf --wait
    muster jobs start audit --prompt check --context '{"customer": "acme"}'
    muster jobs start --prompt 'and again' --after JOB --priority high --at 2h`,
		Flags: append(flagsOf(workerSettings...),
			&cli.StringFlag{Name: "prompt", Usage: "instructions for the agents, as `TEXT`"},
			&cli.StringFlag{Name: "document", Aliases: []string{"document-path"}, Usage: "the `FILE` that it is about"},
			&cli.StringFlag{Name: "context", Usage: "more for the agents: a JSON object, or `@FILE` with one"},
			&cli.StringSliceFlag{Name: "after", Usage: "begin when `JOB` has ended; may be repeated"},
			&cli.StringFlag{Name: "on-failure", Usage: "when a job that it comes after was not completed, `HOW` to continue: cancel or run", DefaultText: jobs.OnFailureCancel},
			&cli.StringFlag{Name: "at", Usage: "begin at `TIME`, as in 2027-01-31T15:04:05Z, or after a duration such as 2h", DefaultText: "now"},
			&cli.StringFlag{Name: "cron", Usage: "create such a job at the times of `SPEC`, as in '0 6 * * 1'"},
			&cli.StringFlag{Name: "priority", Usage: "high, normal, low or `N` from -100 to 100; a step is worth a minute of waiting", DefaultText: "normal"},
			&cli.StringSliceFlag{Name: "label", Usage: "find it by `LABEL`; may be repeated"},
			&cli.StringFlag{Name: "version-of", Usage: "make it the next version of `JOB`, for jobs compare"},
			&cli.StringFlag{Name: "dedupe", Usage: "when the same was asked for before, `HOW` to continue: allow, join or reject", DefaultText: "the setting jobs.dedupe"},
			&cli.BoolFlag{Name: "force", Usage: "create it also when the same was asked for before: --dedupe allow"},
			&cli.BoolFlag{Name: "wait", Usage: "wait for the end, and show the progress"},
			progressFlag(), jsonFlag()),
		Action: func(c *cli.Context) error {
			if err := arguments(c, 0, 1); err != nil {
				return err
			}
			req, err := requestOf(c)
			if err != nil {
				return err
			}
			return onJobs(env.creating(), 0, 1, func(ctx context.Context, c *cli.Context, s jobScope) error {
				return s.start(ctx, c, req)
			}, workerSettings...)(c)
		},
	}
}

// requestOf returns the request that the flags of jobs start describe, without the document.
func requestOf(c *cli.Context) (req jobs.Request, err error) {
	req = jobs.Request{
		Pipeline: c.Args().First(), Prompt: c.String("prompt"), After: c.StringSlice("after"), OnFailure: c.String("on-failure"),
		Cron: c.String("cron"), Labels: c.StringSlice("label"), VersionOf: c.String("version-of"), Dedupe: c.String("dedupe"),
	}
	if strings.TrimSpace(req.Prompt) == "" {
		return req, usageError{errors.New("prompt cannot be empty; set it with --prompt TEXT")}
	}
	if req.Context, err = contextOf(c.String("context")); err != nil {
		return req, err
	}
	if at := c.String("at"); at != "" {
		if req.At, err = timeOf("at", at, time.Now()); err != nil {
			return req, err
		}
	}
	if req.Priority, err = priorityOf(cmp.Or(c.String("priority"), "normal")); err != nil {
		return req, err
	}
	if err := oneOf("on-failure", req.OnFailure, []string{jobs.OnFailureCancel, jobs.OnFailureRun}); err != nil {
		return req, err
	}
	if err := oneOf("dedupe", req.Dedupe, []string{jobs.DedupeAllow, jobs.DedupeJoin, jobs.DedupeReject}); err != nil {
		return req, err
	}
	switch {
	case c.Bool("force") && req.Dedupe != "" && req.Dedupe != jobs.DedupeAllow:
		return req, usageError{fmt.Errorf("--force is --dedupe allow; leave --dedupe %s out", req.Dedupe)}
	case c.Bool("force"):
		req.Dedupe = jobs.DedupeAllow
	}
	if req.Cron != "" && c.Bool("wait") {
		return req, usageError{errors.New("--wait waits for a job to end, and one with --cron does not end")}
	}
	if path := c.String("document"); path != "" {
		if _, err := os.Stat(path); err != nil {
			return req, missingFile(path, err)
		}
	}
	return req, nil
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

// start creates a job, prints it, and waits for it if that is asked for.
func (s jobScope) start(ctx context.Context, c *cli.Context, req jobs.Request) error {
	others, err := s.system.Workers.Elsewhere(ctx)
	if err != nil {
		return err
	}
	if !others && !c.Bool("wait") && s.system.Redis().Mode() == redisd.Embedded {
		return errors.New("create the job: the built-in Redis of this command forgets it at the end; begin with muster start, or use --wait")
	}
	path := c.String("document")
	if path != "" {
		doc, err := s.system.Documents.PutFile(ctx, path)
		if err != nil {
			return wrongField(err)
		}
		req.Document = &doc
	}
	j, created, err := s.jobs.Create(ctx, req)
	if err != nil {
		return startError(req, err)
	}
	result := startResult{JobID: j.ID, Status: j.Status, Prompt: j.Prompt, Document: path, Duplicate: !created}
	if !c.Bool("json") {
		printStarted(s.env, result)
	}
	if !others && !c.Bool("wait") {
		fmt.Fprintln(s.env.stderr, "muster: no workers are running; the job begins when an orchestrator does: muster start")
	}
	if !c.Bool("wait") {
		if c.Bool("json") {
			return printJSON(s.env.stdout, result)
		}
		return nil
	}
	return s.startAndWait(ctx, c, j, result)
}

// startError adds the next step to the error of a job that was not created.
func startError(req jobs.Request, err error) error {
	if errors.As(err, new(*pipeline.UnknownError)) {
		return usageError{err}
	}
	if errors.Is(err, jobs.ErrExists) {
		return fmt.Errorf("%w; create another with --force, or join it with --dedupe join", err)
	}
	if errors.Is(err, jobs.ErrNotFound) {
		return fmt.Errorf("create a job of pipeline %s: %w; see muster jobs list", cmp.Or(req.Pipeline, pipeline.Default), err)
	}
	return wrongField(err)
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

// startAndWait waits for a job that was created, on workers that run elsewhere or here.
func (s jobScope) startAndWait(ctx context.Context, c *cli.Context, j jobs.Job, result startResult) error {
	stop, err := s.serve(ctx)
	if err != nil {
		return err
	}
	if !c.Bool("json") {
		fmt.Fprintln(s.env.stdout, "Waiting for completion...")
	}
	ended, err := s.wait(ctx, []jobs.Job{j})
	if err = errors.Join(err, stop()); err != nil {
		return withJobState(ctx, s.system, err, []string{j.ID}, "muster jobs retry "+j.ID+" --wait")
	}
	result.Final = ended[0].Status
	if c.Bool("json") {
		p, err := s.jobs.Progress(ctx, j.ID)
		if err != nil {
			return err
		}
		result.Progress = &p
		err = printJSON(s.env.stdout, result)
		return errors.Join(err, notCompleted(ended))
	}
	fmt.Fprintf(s.env.stdout, "Job completed with status: %s\n", newPainter(s.env).status(string(result.Final)))
	return notCompleted(ended)
}

// serve does the work of jobs in this process until stop is called, unless workers run
// elsewhere.
func (s jobScope) serve(ctx context.Context) (stop func() error, err error) {
	others, err := s.system.Workers.Elsewhere(ctx)
	if err != nil || others {
		return func() error { return nil }, err
	}
	if err := s.system.Workers.Start(ctx); err != nil {
		return nil, err
	}
	running, cancel := context.WithCancel(ctx)
	parts, running := errgroup.WithContext(running)
	for _, run := range []func(context.Context) error{s.system.Jobs.Run, s.system.Agents.Run} {
		parts.Go(func() error {
			if err := run(running); running.Err() == nil {
				return err
			}
			return nil
		})
	}
	return func() error { cancel(); return parts.Wait() }, nil
}
