package record

import (
	"sync"
	"time"
)

// logOnce limits how often an error that lasts is logged. The zero value is ready
// to use, by many goroutines.
type logOnce struct {
	mu     sync.Mutex // guards logged
	logged map[string]logged
}

type logged struct {
	text string
	at   time.Time
}

const (
	repeatSame  = 5 * time.Minute // how often the same error is logged again
	repeatOther = time.Minute     // how soon another one is
)

// shouldLog reports whether to log an error of a job: it is a new one, or was
// last logged long ago.
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
