package monitor

import (
	"fmt"
	"io"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// bars draws a progress bar per track and redraws it in place.
type bars struct {
	progress *mpb.Progress
	mu       sync.Mutex // guards bars
	bars     map[*Track]*bar
}

type bar struct {
	*mpb.Bar
	mu   sync.Mutex // guards the fields below; mpb calls decorators from its own goroutine
	now  Progress
	mark string // "" while running
	took string // set with mark
}

func newBars(w io.Writer) *bars {
	return &bars{
		progress: mpb.New(mpb.WithOutput(w), mpb.WithAutoRefresh(), mpb.WithRefreshRate(120*time.Millisecond)),
		bars:     map[*Track]*bar{},
	}
}

func (b *bars) Write(p []byte) (int, error) {
	// A ^C echoed by the terminal has moved the cursor.
	if _, err := b.progress.Write(append([]byte("\r"), p...)); err != nil && err != mpb.ErrDone { // ErrDone: the bars have been closed
		return 0, err
	}
	return len(p), nil
}

func (b *bars) start(t *Track) {
	v := &bar{}
	v.Bar = b.progress.New(0, mpb.BarStyle().Lbound("").Rbound("").Filler("━").Tip("━").Padding("─"),
		mpb.BarWidth(28),
		mpb.PrependDecorators(
			decor.Any(func(decor.Statistics) string { return v.status() }, decor.WC{W: 2, C: decor.DindentRight}),
			decor.Name(clip(t.Name, 24), decor.WC{C: decor.DindentRight | decor.DextraSpace | decor.DSyncWidth}),
		),
		mpb.AppendDecorators(
			decor.Any(func(decor.Statistics) string { return " " + v.counts() }, decor.WC{C: decor.DindentRight | decor.DSyncWidth}),
			decor.Any(func(decor.Statistics) string { return "  " + v.time(t.Started) }, decor.WC{C: decor.DindentRight | decor.DSyncWidth}),
			decor.Any(func(s decor.Statistics) string { return v.note(s.AvailableWidth) }),
		),
	)
	b.mu.Lock()
	b.bars[t] = v
	b.mu.Unlock()
}

func (b *bars) of(t *Track) *bar {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.bars[t]
}

func (b *bars) update(t *Track, p Progress) {
	v := b.of(t)
	if v == nil {
		return
	}
	v.mu.Lock()
	v.now = p
	v.mu.Unlock()
	if p.Total > 0 {
		// With the exact total, mpb would treat a full bar as completed.
		v.SetTotal(p.Total+1, false)
	}
	v.SetCurrent(min(p.Done, max(p.Total, p.Done)))
}

func (b *bars) end(t *Track, p Progress, ok bool) {
	v := b.of(t)
	if v == nil {
		return
	}
	v.mu.Lock()
	v.now, v.mark, v.took = p, "✓", short(t.took)
	if !ok {
		v.mark = "✗"
	}
	v.mu.Unlock()
	if ok {
		v.SetTotal(max(p.Total, 1), false)
		v.SetCurrent(max(p.Total, 1))
		v.SetTotal(-1, true)
		return
	}
	v.Abort(false)
}

func (b *bars) close() { b.progress.Wait() }

func (v *bar) status() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.mark == "" {
		return "• "
	}
	return v.mark + " "
}

func (v *bar) counts() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch p := v.now; {
	case p.Total > 0:
		return fmt.Sprintf("%d/%d %s", p.Done, p.Total, p.Unit)
	case p.Done > 0:
		return fmt.Sprintf("%d %s", p.Done, p.Unit)
	}
	return ""
}

func (v *bar) time(started time.Time) string {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.took != "" {
		return v.took
	}
	return short(time.Since(started))
}

// note returns the note, limited to the given number of columns. The bar fills the remaining columns.
func (v *bar) note(columns int) string {
	v.mu.Lock()
	defer v.mu.Unlock()
	text, room := v.now.Note, columns-2
	if text == "" || room < 1 {
		return ""
	}
	if v.now.Brief != "" && utf8.RuneCountInString(text)+leastBar > room {
		text = v.now.Brief
	}
	return "  " + clip(text, room)
}

// leastBar is the minimum width of the bar.
const leastBar = 10

func short(d time.Duration) string {
	if d < time.Minute {
		return fmt.Sprintf("%4.1fs", d.Seconds())
	}
	return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
}

// clip truncates s to n runes, including a final ellipsis.
func clip(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	return string(r[:n-1]) + "…"
}

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
