// Package webhook sends events to endpoints: URLs that get each event as a signed request, at least once.
//
//	stream of events ─▶ relay ─▶ work queue ─▶ pool ─▶ endpoint
//
// The relay makes a delivery of each event for each endpoint that wants it, and then stores how far it is; the stream is
// trimmed behind that. A delivery is an item of a workqueue.Queue, in a lane of
// its endpoint; its id is that of the event and the endpoint, so that a relay that died before it stored this
// repeats itself without harm. The pool sends a delivery until it is acknowledged, for about a day.
//
// [Service.Run] is the relay and the pool. Any number of processes may run it.
package webhook
