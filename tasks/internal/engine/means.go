package engine

import (
	"sync/atomic"
	"time"
)

// means holds about how many ns a node takes, by queue.
type means map[string]*atomic.Int64

// newMeans returns unknown means for queues.
func newMeans(queues map[string]int) means {
	out := means{}
	for q := range queues {
		out[q] = &atomic.Int64{}
	}
	return out
}

// of returns about how long a node of a queue takes; 0 if that is not known.
func (m means) of(queue string) time.Duration { return time.Duration(m[queue].Load()) }

// learn adds how long a node of a queue took.
func (m means) learn(queue string, took time.Duration) {
	mean, ok := m[queue]
	if !ok {
		return
	}
	took = max(took, time.Microsecond)
	old := mean.Load()
	if old == 0 {
		old = int64(took)
	}
	mean.Store(max(1, old+(int64(took)-old)/4)) // another slot may overwrite it, which does no harm
}

// batchSize returns how many nodes a batch should have if a task takes mean; 1 if that is not known.
func batchSize(mean time.Duration) int {
	if mean == 0 {
		return 1
	}
	return int(min(batchMost, max(1, batchWork/mean)))
}
