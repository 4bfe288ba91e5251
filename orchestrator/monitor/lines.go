package monitor

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// lineEvery is the minimum interval between lines of a job.
const lineEvery = 2 * time.Second

// lines writes progress lines at intervals.
type lines struct {
	mu   sync.Mutex // guards w and last
	w    io.Writer
	last map[*Track]printed
}

// printed is the last line of a track.
type printed struct {
	at   time.Time
	line string
}

func newLines(w io.Writer) *lines { return &lines{w: w, last: map[*Track]printed{}} }

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
	last := l.last[t]
	if line == "" || line == last.line || time.Since(last.at) < lineEvery {
		return
	}
	l.last[t] = printed{time.Now(), line}
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
	delete(l.last, t)
	fmt.Fprintf(l.w, "[%s] %s: %s - %s\n", word, t.Name, line, t.elapsed())
}

// counts formats a progress without its time.
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
