// Package taskstest runs workflows in a test: in memory, one task after the other, with a clock that
// jumps instead of waiting.
//
//	out, err := taskstest.Run(t, mux, shop.Refresh(urls))
//
// The engine is that of production, on a Redis in this process, so a workflow behaves in the same way: states, retries,
// time limits, plans, failures and skipped nodes. Three things differ. Tasks run one at a time, in the order in which
// they became ready, whatever their queues. When no task can run, the clock jumps to the time when the next one can: an
// hour of [tasks.In] or of a back-off takes no time. And a random back-off is as long as it can be.
//
// Only the clock of the engine, [Fleet.Now], jumps. A handler that sleeps does sleep, and a [tasks.Timeout] counts real
// time.
//
// A [Fleet] is for tests of more than one workflow: it sends, moves the clock and lists the calls of handlers. Methods of
// its client that wait for a workflow run the tasks of the fleet, so that code under test may call them.
// [Stub] replaces the handler of a task, and [Dies] kills the worker that runs it.
package taskstest
