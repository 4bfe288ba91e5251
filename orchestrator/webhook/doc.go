// Package webhook sends events to endpoints: URLs that receive each event as a signed request, at least once.
//
//	stream of events ─▶ relay ─▶ work queue ─▶ pool ─▶ endpoint
//
// The relay creates a delivery of each event for each subscribed endpoint, then stores its position, up to which the stream
// may be trimmed. A delivery is an item of a workqueue.Queue, in the lane of its endpoint. Its ID consists of the IDs of the
// event and the endpoint, so a relay that crashed before it stored its position can repeat a round without harm. The pool
// retries a delivery until it is acknowledged, for about a day.
//
// [Service.Run] runs the relay and the pool. Any number of processes may run it.
package webhook
