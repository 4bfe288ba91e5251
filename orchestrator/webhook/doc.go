// Package webhook sends events to endpoints: URLs that get each event as a signed request, at least once.
//
//	script that changes a job ─▶ outbox ─▶ relay ─▶ work queue ─▶ pool ─▶ endpoint
//
// The script that adds an event adds it to the outbox too, while there is an endpoint. The relay makes a delivery of it
// for each endpoint that wants it, and then deletes the entry. A delivery is an item of a workqueue.Queue, in a lane of
// its endpoint; its id is that of the event and the endpoint, so that a relay that died before it deleted the entry
// repeats itself without harm. The pool sends a delivery until it is acknowledged, for about a day.
//
// [Service.Run] is the relay and the pool. Any number of processes may run it.
package webhook
