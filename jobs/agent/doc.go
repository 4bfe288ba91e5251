// Package agent keeps the agents that process jobs, and assigns work to them.
//
// The life of an assignment:
//
//  1. An agent waits for work: it pulls in [Service.Lease], or it has registered a URL to push to. A Go task waits
//     through a free slot of the process.
//  2. The dispatcher of a process is notified of work, and chooses a waiting agent: the least load for its
//     capacity, then the longest idle.
//  3. It reserves room for the agent, takes the work with [Jobs].Take, and stores the assignment under a random id.
//  4. The agent gets it in the response to its poll, or in a signed request; a Go task gets it as its input.
//  5. The lease of the work is extended by [Service.Beat]; for an open request and for a Go task the process does that.
//  6. The agent ends it with [Service.Complete], Fail or Release under the fence of the lease. The first end counts.
//  7. Its usage is added to the job and the agent once, and a short record serves repeated calls for ten minutes.
//  8. If its lease or its deadline passes, or its agent dies, the work goes to others, and later calls get
//     [job.ErrLeaseLost].
//  9. If the process that pushed it dies, another process pushes it again under the same id.
//  10. Any process looks after what is due: nothing of this is in the memory of one process only.
package agent
