// Package agent registers agents and assigns the work of jobs to them.
//
// An agent is a program that does the work of one or more roles. It polls for work with [Service.Lease], or it
// registers a URL to which work is pushed. A Go task that a stage names is served like an agent; its role is
// "task:NAME".
//
// An assignment is a lease on a piece of work, held by one agent:
//
//  1. Each process that calls [Service.Run] waits for work of the roles of its pollers, of all agents with a URL and of
//     all Go tasks. It wakes, of the waiters with free capacity, the one with the lowest load relative to its
//     capacity or, if several are equal, the one that has been idle for longest.
//  2. The process leases the work with [Jobs].Take and adds the assignment to the list of its agent. The ID of the
//     assignment encodes the agent and the lease.
//  3. The agent receives the assignment in the response to its poll, or in a signed request to its URL. A Go task
//     receives it as its input.
//  4. The agent extends the lease with [Service.Beat]. The process extends it instead while a request to the agent is
//     open, and for a Go task.
//  5. The agent ends the assignment with [Service.Complete], Fail or Release. The first of these calls counts. For ten
//     minutes, a repeated call succeeds and changes nothing.
//  6. The usage of the assignment is added to its job and its agent once.
//
// If the lease or the deadline of an assignment expires, or its agent is removed or unavailable, the work returns to
// the queue and becomes a new assignment, unless no attempts are left. Calls for the old one then return
// [jobs.ErrLeaseLost]. The same happens if the process that pushed the assignment dies. All state is in Redis, so any
// process with Run continues the work of another one.
package agent
