package tasktype

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Queue is the state of a queue, including tasks sent by asynq's own client.
type Queue struct {
	Name     string        `json:"name"`
	Pending  int64         `json:"pending"`    // ready tasks
	Active   int64         `json:"active"`     // tasks that workers have
	Archived int64         `json:"archived"`   // asynq's own tasks archived by an operator or by asynq
	Asynq    int64         `json:"asynq"`      // asynq's own tasks in Pending, Active and Archived
	Latency  time.Duration `json:"latency_ns"` // time since a worker last took a task while some are pending; 0 without pending tasks
	Paused   bool          `json:"paused"`     // whether workers are prevented from taking tasks
	Workers  int           `json:"workers"`    // number of live workers of the queue

	Unhandled map[string]int64 `json:"unhandled,omitempty"` // number of tasks that wait for a worker with a handler, by name; not in Pending
}

// UnhandledTasks lists the tasks that wait for a worker with a handler, such as "mail.send (3), mail.sort (1)".
func (q *Queue) UnhandledTasks() string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(q.Unhandled)) {
		out = append(out, fmt.Sprintf("%s (%d)", name, q.Unhandled[name]))
	}
	return strings.Join(out, ", ")
}

// Outbox is the size and delay of the outbox.
type Outbox struct {
	Entries int64         // nodes scheduled for later, and steps that workers repeat after the death of a process
	Overdue time.Duration // time since the earliest entry was due; 0 if none is due
}
