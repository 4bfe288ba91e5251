package engine

import (
	"sync/atomic"

	"muster/tasks/tasktype"
)

type stats struct{ begun, succeeded, failed, retried, recovered atomic.Int64 }

func (s *stats) read() tasktype.WorkerStats {
	return tasktype.WorkerStats{Begun: s.begun.Load(), Succeeded: s.succeeded.Load(), Failed: s.failed.Load(),
		Retried: s.retried.Load(), Recovered: s.recovered.Load()}
}
