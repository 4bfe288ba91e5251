package sites

import (
	"context"
	"sync"
)

// maxClosed bounds the jobs that a Reader remembers.
const maxClosed = 500

// closedJobs remembers jobs whose files are closed: they do not change. The zero value is ready to use, by many goroutines.
type closedJobs struct {
	mu   sync.Mutex // guards jobs
	jobs map[string]Job
}

// Listed is Job for lists: a job that has a summary is read once. It reports whether it was read now.
func (r *Reader) Listed(ctx context.Context, id string) (j Job, read bool, err error) {
	r.closed.mu.Lock()
	j, ok := r.closed.jobs[id]
	r.closed.mu.Unlock()
	if ok {
		return j, false, nil
	}
	if j, err = r.Job(ctx, id); err != nil || j.Summary == nil {
		return j, true, err
	}
	r.closed.mu.Lock()
	defer r.closed.mu.Unlock()
	if r.closed.jobs == nil || len(r.closed.jobs) >= maxClosed {
		r.closed.jobs = map[string]Job{}
	}
	r.closed.jobs[id] = j
	return j, true, nil
}
