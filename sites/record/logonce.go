package record

import (
	"sync"
	"time"
)

// logOnce limits how often a persistent error is logged. The zero value is ready to use and safe for concurrent use.
type logOnce struct {
	mu     sync.Mutex // guards logged
	logged map[string]logged
}

type logged struct {
	text string
	at   time.Time
}

const (
	repeatSame  = 5 * time.Minute // interval for the same error
	repeatOther = time.Minute     // interval for a different error
)

// shouldLog reports whether to log an error of a job: it is new, or was last logged long ago.
func (l *logOnce) shouldLog(job string, err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	last, ok := l.logged[job]
	if ok && (time.Since(last.at) < repeatOther || last.text == err.Error() && time.Since(last.at) < repeatSame) {
		return false
	}
	if l.logged == nil {
		l.logged = map[string]logged{}
	}
	l.logged[job] = logged{err.Error(), time.Now()}
	return true
}

// clear forgets the error of a job and reports whether there was one.
func (l *logOnce) clear(job string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.logged[job]
	delete(l.logged, job)
	return ok
}
