package record

import "sync"

// logOnce logs a persistent error once. The zero value is ready to use and safe for concurrent use.
type logOnce struct {
	mu     sync.Mutex        // guards logged
	logged map[string]string // by job
}

// shouldLog reports whether an error of a job differs from its last one.
func (l *logOnce) shouldLog(job string, err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.logged == nil {
		l.logged = map[string]string{}
	}
	last := l.logged[job]
	l.logged[job] = err.Error()
	return last != err.Error()
}

// clear forgets the error of a job and reports whether there was one.
func (l *logOnce) clear(job string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.logged[job]
	delete(l.logged, job)
	return ok
}
