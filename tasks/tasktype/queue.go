package tasktype

import "time"

// Queue is the state of a queue. Tasks that were sent with asynq's own client count, too.
type Queue struct {
	Name     string        `json:"name"`
	Pending  int64         `json:"pending"`    // tasks that are ready
	Active   int64         `json:"active"`     // tasks in the batches of workers
	Archived int64         `json:"archived"`   // asynq's own tasks that an operator or asynq has archived
	Latency  time.Duration `json:"latency_ns"` // how long nothing was taken although something is pending; 0 if nothing is
	Paused   bool          `json:"paused"`     // whether workers take nothing from it
}

// Outbox is how much there is for workers to look after besides tasks that are ready, and how far they are behind.
type Outbox struct {
	Entries int64         // nodes that wait for their time, and steps of workflows that another process may have to take
	Overdue time.Duration // how long ago the earliest was due; 0 if none is
}
