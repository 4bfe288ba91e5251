// Package taskstest runs workflows in tests: in memory, one task at a time, with a clock that jumps instead of
// waiting.
//
//	out, err := taskstest.Run(t, mux, shop.Refresh(urls))
//
// The engine is the production engine on an in-process Redis, so workflows behave identically: states, retries, time
// limits, plans, failures and skipped nodes. There are three differences. Tasks run one at a time, in the order in
// which they became ready, whatever their queues. If no task is ready, the clock jumps to the next scheduled task: an
// hour of [tasks.In] or of a backoff takes no time. A random backoff always has its maximum. Only the nodes of a batch of
// [tasks.HandleBatch] run together, each with its middleware.
//
// Only the clock of the engine, [Fleet.Now], jumps. A handler that sleeps takes real time, and [tasks.Timeout] is
// measured in real time.
//
// A [Fleet] is for tests with several workflows: it sends them, advances the clock and lists the calls of handlers.
// Blocking methods of its client run the tasks of the fleet, so that code under test may call them. [Stub] replaces
// the handler of a task, and [Dies] kills the worker that runs it.
package taskstest
