package sites

import (
	"sync"
	"time"
)

// quiet keeps a trouble that lasts from being logged over and over. Its zero
// value is ready to use, by many goroutines.
type quiet struct {
	mu   sync.Mutex // guards said
	said map[string]saying
}

type saying struct {
	what string
	at   time.Time
}

// sayAgain is how often a trouble that stays the same is worth a line.
const sayAgain = 5 * time.Minute

// says tells whether to log a trouble with something: it is a new one, or the
// last word on it was long ago.
func (q *quiet) says(of string, err error) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	last, ok := q.said[of]
	if ok && (time.Since(last.at) < time.Minute || last.what == err.Error() && time.Since(last.at) < sayAgain) {
		return false
	}
	if q.said == nil {
		q.said = map[string]saying{}
	}
	q.said[of] = saying{err.Error(), time.Now()}
	return true
}

// over ends the trouble with something and tells whether there was any.
func (q *quiet) over(of string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	_, ok := q.said[of]
	delete(q.said, of)
	return ok
}
