package event

import "muster/tasks/tasktype"

// Types are the types of events.
var Types = []string{
	"job.created", "job.started", "job.edited", "job.retried", "job.reopened", "job.paused", "job.resumed", "job.stuck", "job.recovered",
	"job.completed", "job.failed", "job.cancelled", "job.deleted",
	"stage.completed", "item.failed", "item.review", "item.decided",
	"scrape.completed", "scrape.failed", "site.unhealthy", "site.recovered",
	"breaker.opened", "breaker.closed",
	"agent.registered", "agent.removed",
	tasktype.EventSucceeded, tasktype.EventFailed, tasktype.EventRevoked, tasktype.EventStuck, // not in the streams: the index of workflows has them
}
