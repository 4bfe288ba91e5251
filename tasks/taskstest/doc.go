// Package taskstest runs workflows in a test: in memory, one task after the other, at a clock that
// jumps instead of waiting.
//
//	out, err := taskstest.Run(t, mux, shop.Refresh(urls))
//
// It is the same engine as in production, on a Redis in this process, so what a workflow does here it
// does there: states, retries, time limits, plans, failures and what they skip. Three things differ.
// Tasks run one at a time, in the order in which they became ready, whatever their queues. When
// nothing can run, the clock jumps to when something can: an hour of [tasks.In] or of a back-off takes
// no time. And a random back-off is as long as it can be.
//
// The clock is that of the engine, [Fleet.Now]: a handler that sleeps, sleeps, and a [tasks.Timeout]
// takes its time.
//
// A [Fleet] is for tests of more than one workflow: it sends, moves the clock and lists what ran.
// [Stub] puts something else in the place of a task.
package taskstest
