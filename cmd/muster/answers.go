package main

import (
	"encoding/json"

	"muster/orchestrator"
	"muster/orchestrator/access"
	"muster/orchestrator/agent"
	"muster/orchestrator/artifact"
	"muster/orchestrator/config"
	"muster/orchestrator/event"
	"muster/orchestrator/health"
	"muster/orchestrator/job"
	"muster/orchestrator/pipeline"
	"muster/orchestrator/store"
	"muster/orchestrator/webhook"
	"muster/proxies"
	"muster/proxies/probe"
	"muster/sites"
	sitereport "muster/sites/report"
	"muster/tasks/limit"
	"muster/tasks/tasktype"
	"muster/tasks/workqueue"
)

// answer is the type of a value that a command prints as JSON.
type answer struct {
	when  string // a flag or a case; "" for the usual one
	value any    // of the type that is printed
	lines bool   // one a line, as they are found
}

// one returns the list of a command that always prints one type.
func one(value any) []answer { return []answer{{value: value}} }

// answers lists the types that each command prints with --json. The manual is generated from it, and
// tests fail when a command prints another type.
var answers = map[string][]answer{
	"agents activity":     one([]agent.Activity{}),
	"agents list":         one([]agent.Agent{}),
	"agents show":         one(agent.Agent{}),
	"audit":               one([]access.Entry{}),
	"breakers list":       one([]limit.BreakerState{}),
	"breakers reset":      one(resetAnswer{}),
	"config show":         one([]config.Setting{}),
	"demo":                one(orchestrator.Round{}),
	"health":              one(health.Report{}),
	"inspect active":      one([]tasktype.ActiveNode{}),
	"inspect ping":        one([]pong{}),
	"inspect rates":       one([]tasktype.RatePoint{}),
	"inspect registered":  one([]handled{}),
	"inspect reserved":    one([]tasktype.ReservedNode{}),
	"inspect schedule":    one([]tasktype.ScheduleEntry{}),
	"inspect scheduled":   one([]tasktype.DueNode{}),
	"inspect stats":       one(fleetStats{}),
	"inspect workflow":    one([]tasktype.Node{}),
	"inspect workflows":   one([]tasktype.Workflow{}),
	"jobs cancel":         one(cancelled{}),
	"jobs compare":        one(compared{}),
	"jobs decide":         one(job.Item{}),
	"jobs events":         {{value: event.Event{}, lines: true}},
	"jobs health":         one([]sitereport.Health{}),
	"jobs items":          one(job.ItemPage{}),
	"jobs list":           {{value: job.Page{}}, {when: "with --stats", value: []job.Day{}}, {when: "with --stuck", value: stuckJobs{}}},
	"jobs pause":          one([]string{}),
	"jobs report":         {{value: reportOfJob{}}, {when: "of a scrape", value: sitereport.Summary{}}},
	"jobs resume":         one([]string{}),
	"jobs retry":          {{value: retried{}}, {when: "of a scrape that it waited for", value: sites.Job{}}},
	"jobs start":          one(started{}),
	"jobs status":         {{value: jobView{}}, {when: "with --progress", value: job.Progress{}}, {when: "with --rejected or --failed", value: job.ItemPage{}}, {when: "with --report", value: reportOfJob{}}, {when: "with --report, of a scrape", value: sitereport.Summary{}}},
	"jobs wait":           one(waited{}),
	"keys create":         one(createdKey{}),
	"keys list":           one([]access.Key{}),
	"pipelines list":      one([]*pipeline.Pipeline{}),
	"pipelines show":      one(pipeline.Pipeline{}),
	"proxies add":         {{value: probe.Result{}, lines: true}, {when: "with --no-check", value: addedProxies{}}},
	"proxies ban":         one(changedProxies{}),
	"proxies check":       {{value: probe.Result{}, lines: true}},
	"proxies count":       one(poolCount{}),
	"proxies list":        one([]proxies.Member{}),
	"proxies refresh":     one(proxies.Report{}),
	"proxies remove":      one(changedProxies{}),
	"proxies sources":     one(map[string]proxies.SourceYield{}),
	"proxies stats":       one(proxies.Stats{}),
	"queue enqueue":       one(enqueued{}),
	"queue import":        one(artifact.Report{}),
	"queue pause":         one(pausedQueue{}),
	"queue resume":        one(pausedQueue{}),
	"queue retry-failed":  one(retriedItems{}),
	"queue run":           one(queueRun{}),
	"queue stats":         one(workqueue.Stats{}),
	"scrape":              {{value: orchestrator.Round{}}, {when: "where it does not wait: the id of the job by site", value: map[string]string{}}},
	"send":                {{value: sent{}}, {when: "with --wait: the result of the task", value: json.RawMessage{}}},
	"sites check":         {{when: "with --live", value: []livePage{}}},
	"sites list":          one([]listedSite{}),
	"sites test":          one([]testedSite{}),
	"start":               {{when: "with --once", value: orchestrator.Round{}}},
	"store check":         one(store.Status{}),
	"store migrate":       one(store.Status{}),
	"store seed":          one(job.Seeded{}),
	"tokens list":         {{when: "with TASK", value: []tasktype.OpenToken{}}, {value: []tasktype.OpenTask{}}},
	"version":             one(build{}),
	"webhooks add":        one(withSecret{}),
	"webhooks deliveries": one([]webhook.Delivery{}),
	"webhooks list":       one([]webhook.Endpoint{}),
	"webhooks rotate":     one(withSecret{}),
	"webhooks show":       one(webhook.Endpoint{}),
}
