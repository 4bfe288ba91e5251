package main

import (
	"encoding/json"

	"muster/internal/schema"
	"muster/jobs"
	"muster/jobs/agent"
	"muster/jobs/pipeline"
	"muster/orchestrator"
	"muster/orchestrator/access"
	"muster/orchestrator/api/client"
	"muster/orchestrator/config"
	"muster/orchestrator/event"
	"muster/orchestrator/health"
	"muster/orchestrator/webhook"
	"muster/proxies"
	"muster/proxies/probe"
	sitereport "muster/sites/report"
	"muster/tasks/limit"
	"muster/tasks/tasktype"
	"muster/tasks/workqueue"
)

// jsonOutput is the type of a value that a command prints as JSON.
type jsonOutput struct {
	when  string // a flag or a case; "" for the usual one
	value any    // of the type that is printed
	lines bool   // one a line, as they are found
}

// single returns the outputs of a command that always prints one type.
func single(value any) []jsonOutput { return []jsonOutput{{value: value}} }

// jsonOutputs lists the types that each command prints with --json. The manual is generated from it, and
// tests fail when a command prints another type.
var jsonOutputs = map[string][]jsonOutput{
	"agents activity":     single(client.Page[agent.Activity]{}),
	"agents list":         single(client.Page[agent.Agent]{}),
	"agents get":          single(agent.Agent{}),
	"audit":               single(client.Page[access.Entry]{}),
	"breakers list":       single(client.Page[limit.BreakerState]{}),
	"breakers reset":      single(client.Page[string]{}),
	"config show":         single([]config.Setting{}),
	"demo":                single(orchestrator.Round{}),
	"health":              single(health.Report{}),
	"inspect active":      single([]tasktype.ActiveNode{}),
	"inspect ping":        single([]pingResult{}),
	"inspect rates":       single([]tasktype.RatePoint{}),
	"inspect registered":  single([]registeredTask{}),
	"inspect reserved":    single([]tasktype.ReservedNode{}),
	"inspect schedule":    single([]tasktype.ScheduleEntry{}),
	"inspect scheduled":   single([]tasktype.DueNode{}),
	"inspect stats":       single(fleetStats{}),
	"inspect workflow":    single([]tasktype.Node{}),
	"inspect workflows":   single([]tasktype.Workflow{}),
	"jobs cancel":         single(client.CancelledJob{}),
	"jobs compare":        single(client.Comparison{}),
	"jobs decide":         {{value: jobs.Item{}}, {when: "of several items", value: client.DecidedItems{}}},
	"jobs events":         {{value: event.Event{}, lines: true}},
	"jobs items":          single(client.Page[jobs.Item]{}),
	"jobs list":           {{value: client.Page[client.Job]{}}, {when: "with --stats", value: client.Page[jobs.Day]{}}, {when: "with --stuck", value: client.Page[jobs.Stuck]{}}},
	"jobs pause":          single(client.Page[client.Job]{}),
	"jobs report":         {{value: client.JobReport{}}, {when: "of a scrape", value: sitereport.Summary{}}},
	"jobs resume":         single(client.Page[client.Job]{}),
	"jobs retry":          {{value: retryResult{}}, {when: "of a scrape that it waited for", value: client.Job{}}},
	"jobs start":          single(startResult{}),
	"jobs status":         {{value: client.Job{}}, {when: "with --progress", value: jobs.Progress{}}, {when: "with --rejected or --failed", value: client.Page[jobs.Item]{}}, {when: "with --report", value: client.JobReport{}}, {when: "with --report, of a scrape", value: sitereport.Summary{}}},
	"jobs wait":           single(client.Page[client.Job]{}),
	"keys create":         single(client.CreatedKey{}),
	"keys revoke":         single(client.Key{}),
	"keys list":           single(client.Page[client.Key]{}),
	"pipelines list":      single([]*pipeline.Pipeline{}),
	"pipelines show":      single(pipeline.Pipeline{}),
	"proxies add":         {{value: probe.Result{}, lines: true}, {when: "with --no-check", value: addedProxies{}}},
	"proxies ban":         single(client.ChangedProxies{}),
	"proxies check":       {{value: probe.Result{}, lines: true}},
	"proxies count":       single(poolCount{}),
	"proxies list":        single(client.Page[proxies.Member]{}),
	"proxies refresh":     single(proxies.Report{}),
	"proxies delete":      single(client.ChangedProxies{}),
	"proxies unban":       single(client.ChangedProxies{}),
	"proxies sources":     single(client.Page[client.ProxySource]{}),
	"proxies stats":       single(proxies.Stats{}),
	"queue enqueue":       single(client.EnqueuedArtifact{}),
	"queue import":        single(client.ImportReport{}),
	"queue pause":         single(client.PausedQueue{}),
	"queue resume":        single(client.PausedQueue{}),
	"queue retry-failed":  single(client.RetriedItems{}),
	"queue run":           single(queueRun{}),
	"queue stats":         single(workqueue.Stats{}),
	"scrape":              {{value: orchestrator.Round{}}, {when: "where it does not wait: the id of the job by site", value: map[string]string{}}},
	"send":                {{value: sendResult{}}, {when: "with --wait: the result of the task", value: json.RawMessage{}}},
	"sites check":         {{when: "with --live", value: []livePage{}}},
	"sites health":        single(client.Page[sitereport.Health]{}),
	"sites list":          single([]listedSite{}),
	"sites test":          single([]testedSite{}),
	"start":               {{when: "with --once", value: orchestrator.Round{}}},
	"store check":         single(schema.Status{}),
	"store migrate":       single(schema.Status{}),
	"store seed":          single(jobs.Seeded{}),
	"tokens list":         {{when: "with TASK", value: []tasktype.OpenToken{}}, {value: []tasktype.OpenTask{}}},
	"version":             single(build{}),
	"webhooks create":     single(client.WebhookSecret{}),
	"webhooks enable":     single(webhook.Endpoint{}),
	"webhooks disable":    single(webhook.Endpoint{}),
	"webhooks redeliver":  single(webhook.Delivery{}),
	"webhooks test":       single(webhook.Delivery{}),
	"webhooks deliveries": single(client.Page[webhook.Delivery]{}),
	"webhooks list":       single(client.Page[webhook.Endpoint]{}),
	"webhooks rotate":     single(client.WebhookSecret{}),
	"webhooks get":        single(webhook.Endpoint{}),
}
