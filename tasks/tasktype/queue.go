package tasktype

import "time"

// Queue is the state of a queue. It includes tasks that were sent with asynq's own client.
type Queue struct {
	Name     string        `json:"name"`
	Pending  int64         `json:"pending"`    // tasks that are ready
	Active   int64         `json:"active"`     // tasks in the batches of workers
	Archived int64         `json:"archived"`   // asynq's own tasks that an operator or asynq has archived
	Latency  time.Duration `json:"latency_ns"` // how long no worker has taken a task although some are pending; 0 if none are
	Paused   bool          `json:"paused"`     // whether it is paused: workers take no tasks from it
	Workers  int           `json:"workers"`    // live workers that take tasks from it
}

// Outbox is the size of the outbox, and how far workers are behind with it.
type Outbox struct {
	Entries int64         // nodes that wait for their time, and steps that workers repeat if a process has died
	Overdue time.Duration // how long ago the earliest entry was due; 0 if none is
}
