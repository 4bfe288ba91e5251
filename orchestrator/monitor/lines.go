package monitor

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// lineEvery is how often a job may say something. A log that is read later
// is better served by few lines.
const lineEvery = 2 * time.Second

// lines writes a line now and then.
type lines struct {
	mu   sync.Mutex // guards w and said
	w    io.Writer
	said map[*Track]said
}

type said struct {
	at   time.Time
	line string
}

func newLines(w io.Writer) *lines { return &lines{w: w, said: map[*Track]said{}} }

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

func (l *lines) start(*Track) {}
func (l *lines) close()       {}

func (l *lines) update(t *Track, p Progress) {
	line := counts(p)
	l.mu.Lock()
	defer l.mu.Unlock()
	last := l.said[t]
	if line == "" || line == last.line || time.Since(last.at) < lineEvery {
		return
	}
	l.said[t] = said{time.Now(), line}
	fmt.Fprintf(l.w, "[PROGRESS] %s: %s - %s\n", t.Name, line, t.elapsed())
}

func (l *lines) end(t *Track, p Progress, ok bool) {
	word := "DONE"
	if !ok {
		word = "FAILED"
	}
	line := p.Note
	if line == "" {
		line = counts(p)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.said, t)
	fmt.Fprintf(l.w, "[%s] %s: %s - %s\n", word, t.Name, line, t.elapsed())
}

// counts puts a progress in words, without its time.
func counts(p Progress) string {
	var s string
	switch {
	case p.Total > 0:
		s = fmt.Sprintf("%d/%d %s (%d%%)", p.Done, p.Total, p.Unit, p.Percent())
	case p.Done > 0:
		s = fmt.Sprintf("%d %s", p.Done, p.Unit)
	}
	if p.Note != "" && s != "" {
		s += ", "
	}
	return s + p.Note
}
