package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"muster/internal/limit"
	"muster/internal/nearest"
	"muster/orchestrator/api/client"
	"muster/orchestrator/webhook"
	tasksapi "muster/tasks/api"
)

// pausable is a kind of objects that can be paused. change pauses or resumes one, and returns a remark for the user.
type pausable struct {
	kind   string
	change func(ctx context.Context, api *client.Client, name string, pause bool) (note string, err error)
}

// pausables are the kinds of muster pause and muster resume.
var pausables = []pausable{
	{"job", func(ctx context.Context, api *client.Client, id string, pause bool) (string, error) {
		note, err := pair(client.PauseJob, client.ResumeJob, func(id string) client.JobPath { return client.JobPath{ID: id} })(ctx, api, id, pause)
		return note, noJobID(id, err)
	}},
	{"agent", func(ctx context.Context, api *client.Client, name string, pause bool) (string, error) {
		a, err := findAgent(ctx, api, name)
		switch {
		case err != nil:
			return "", err
		case pause:
			return fmt.Sprintf(", with %s", count(a.Held, "assignment")), client.PauseAgent.Do(ctx, api, client.AgentPath{ID: a.ID})
		}
		return "", client.ResumeAgent.Do(ctx, api, client.AgentPath{ID: a.ID})
	}},
	{"site", pair(client.PauseSite, client.ResumeSite, func(name string) client.SiteChange { return client.SiteChange{Site: name} })},
	{"workflow", pair(client.PauseWorkflow, client.ResumeWorkflow, func(id string) tasksapi.WorkflowChange {
		return tasksapi.WorkflowChange{Reference: tasksapi.Reference{ID: id}}
	})},
	{"queue", func(ctx context.Context, api *client.Client, name string, pause bool) (string, error) {
		change := client.ResumeTaskQueue
		if pause {
			change = client.PauseTaskQueue
		}
		q, err := change.Call(ctx, api, tasksapi.QueueChange{Queue: name})
		if err == nil && q.Workers == 0 {
			return "; no live worker takes from it", nil
		}
		return "", err
	}},
	{"schedule", pair(client.PauseSchedule, client.ResumeSchedule, func(name string) tasksapi.ScheduleChange {
		return tasksapi.ScheduleChange{ScheduleReference: tasksapi.ScheduleReference{Name: name}}
	})},
	{"webhook", func(ctx context.Context, api *client.Client, id string, pause bool) (string, error) {
		return "", client.EditWebhook.Do(ctx, api, client.WebhookChange{WebhookPath: client.WebhookPath{ID: id}, Body: webhook.EndpointEdit{Disabled: &pause}})
	}},
	{"artifacts", pair(client.PauseQueue, client.ResumeQueue, func(queue string) client.QueueChange {
		return client.QueueChange{QueuePath: client.QueuePath{Queue: queue}}
	})},
}

// pair returns the change of a kind with two operations, of the object that in names.
func pair[I, O any](pause, resume client.Operation[I, O], in func(name string) I) func(context.Context, *client.Client, string, bool) (string, error) {
	return func(ctx context.Context, api *client.Client, name string, paused bool) (string, error) {
		if paused {
			return "", pause.Do(ctx, api, in(name))
		}
		return "", resume.Do(ctx, api, in(name))
	}
}

func pauseCommand(env environment) *cli.Command {
	return apiCommand(env, &cli.Command{
		Name: "pause", ArgsUsage: "KIND NAME…",
		Usage: "pause jobs, agents, sites, workflows, queues of tasks, schedules, webhooks or artifact queues",
		Description: `Work that has begun continues. Until muster resume, nothing new begins, by KIND:

    job        no agent gets work of the job with this ID
    agent      the agent gets no work
    site       no process fetches pages of the site
    workflow   no worker starts tasks of the workflow with this ID
    queue      no worker starts tasks of the queue
    schedule   no runs of the schedule are sent
    webhook    no events are sent to it; its pending deliveries are skipped
    artifacts  no process starts items of the artifact queue

    muster pause site books.toscrape.com
    muster pause queue default`,
		BashComplete: completePausables(env),
	}, func(s scope, _ client.None) error { return s.changePaused(true) })
}

func resumeCommand(env environment) *cli.Command {
	return apiCommand(env, &cli.Command{
		Name: "resume", ArgsUsage: "KIND NAME…",
		Usage: "resume paused objects",
		Description: `KIND is one of muster pause. Runs of a schedule that were due in the pause are not
sent, nor events for a webhook. A webhook that responds with 410 is paused.

    muster resume site books.toscrape.com`,
		BashComplete: completePausables(env),
	}, func(s scope, _ client.None) error { return s.changePaused(false) })
}

// completePausables prints the kinds, and after the kind site the names of sites.
func completePausables(env environment) cli.BashCompleteFunc {
	return func(c *cli.Context) {
		if c.Args().First() == "site" {
			completeSites(env)(c)
		}
		for _, p := range pausables {
			if c.NArg() == 0 {
				fmt.Fprintln(c.App.Writer, p.kind)
			}
		}
	}
}

// changePaused pauses or resumes the objects of the arguments.
func (s scope) changePaused(pause bool) error {
	var kinds []string
	for _, p := range pausables {
		kinds = append(kinds, p.kind)
	}
	kind := slices.Index(kinds, s.Args().First())
	if kind < 0 {
		return usageError{fmt.Errorf("unknown kind %q%s: use one of %s", s.Args().First(), nearest.Hint(s.Args().First(), kinds), strings.Join(kinds, ", "))}
	}
	result := "resumed"
	if pause {
		result = "paused"
	}
	return forEach(s, s.Args().Tail(), func(name string) error {
		note, err := pausables[kind].change(s.ctx, s.api, name, pause)
		return done(s.env, err, "%s: %s%s", result, name, note)
	})
}

func breakersCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:  "breakers",
		Usage: "list and close the circuit breakers of sites, hosts and agents",
		Description: `A breaker opens when requests keep failing: it blocks them for a while, then allows
a few trials, and closes when one succeeds. Its KEY is site@host for a site,
host:NAME for a host of the work queue, agent:ID for an agent with a URL.`,
		Subcommands: []*cli.Command{
			list(env, &cli.Command{Name: "list", Usage: "list the breakers that are not closed",
				Description: "TRIALS and BLOCKED count the requests since it opened that were allowed and not."},
				client.ListBreakers, "All breakers are closed", "KEY "+breakerColumns, breakerRow),
			act(env, &cli.Command{
				Name: "reset", Usage: "close breakers and reset their failure counts", ArgsUsage: "[NAME…]", Before: namedOr("all"),
				Description: `A NAME is a KEY, or the site, host or id in it. Blocked work is
retried within two minutes. If requests still fail, the breaker opens again.`,
			}, client.ResetBreakers, func(_ client.With[client.BreakerReset], closed client.Page[string]) string {
				return fmt.Sprintf("%d closed", len(closed.Data))
			}),
		},
	}
}

const breakerColumns = "STATE OPEN_SINCE NEXT_TRIAL TRIALS BLOCKED LAST_FAILURE"

func breakerRow(s limit.BreakerState) []any {
	next := "now"
	if left := time.Until(s.Until); left > 0 {
		next = "in " + left.Round(time.Second).String()
	}
	return []any{cell(s.Key, 60), s.State, s.Since, next, s.Allowed, s.Blocked, cell(s.LastBlock, 40)}
}
