package monitor

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/mattn/go-runewidth"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// bars draws a progress bar per track and redraws it in place.
type bars struct{ progress *mpb.Progress }

// bar is the bar of a track.
type bar struct {
	*mpb.Bar
	mu   sync.Mutex // guards the fields below; mpb calls decorators from its own goroutine
	now  Progress
	mark string // "" while running
	took string // set with mark
}

func newBars(w io.Writer) *bars {
	return &bars{mpb.New(mpb.WithOutput(w), mpb.WithAutoRefresh(), mpb.WithRefreshRate(120*time.Millisecond))}
}

func (b *bars) Write(p []byte) (int, error) {
	// A ^C echoed by the terminal has moved the cursor.
	if _, err := b.progress.Write(append([]byte("\r"), p...)); err != nil && err != mpb.ErrDone { // ErrDone: the bars have been closed
		return 0, err
	}
	return len(p), nil
}

func (b *bars) start(t *Track) view {
	v := &bar{}
	v.Bar = b.progress.New(0, mpb.BarStyle().Lbound("").Rbound("").Filler("━").Tip("━").Padding("─"),
		mpb.BarWidth(28),
		mpb.PrependDecorators(
			decor.Any(func(decor.Statistics) string { return v.status() }, decor.WC{W: 2, C: decor.DindentRight}),
			decor.Name(runewidth.Truncate(t.Name, 24, "…"), decor.WC{C: decor.DindentRight | decor.DextraSpace | decor.DSyncWidth}),
		),
		mpb.AppendDecorators(
			decor.Any(func(decor.Statistics) string { return " " + v.counts() }, decor.WC{C: decor.DindentRight | decor.DSyncWidth}),
			decor.Any(func(decor.Statistics) string { return "  " + v.time(t.Started) }, decor.WC{C: decor.DindentRight | decor.DSyncWidth}),
			decor.Any(func(s decor.Statistics) string { return v.note(s.AvailableWidth) }),
		),
	)
	return v
}

func (v *bar) update(p Progress) {
	v.mu.Lock()
	v.now = p
	v.mu.Unlock()
	if p.Total > 0 {
		// With the exact total, mpb would treat a full bar as completed.
		v.SetTotal(p.Total+1, false)
	}
	v.SetCurrent(min(p.Done, max(p.Total, p.Done)))
}

func (v *bar) end(p Progress, ok bool, took time.Duration) {
	v.mu.Lock()
	v.now, v.mark, v.took = p, "✓", short(took)
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
	if v.now.Brief != "" && runewidth.StringWidth(text)+leastBar > room {
		text = v.now.Brief
	}
	return "  " + runewidth.Truncate(text, room, "…")
}

// leastBar is the minimum width of the bar.
const leastBar = 10

func short(d time.Duration) string {
	if d < time.Minute {
		return fmt.Sprintf("%4.1fs", d.Seconds())
	}
	return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
}

// lineEvery is the minimum interval between lines of a job.
const lineEvery = 2 * time.Second

// lines writes progress lines at intervals.
type lines struct {
	mu sync.Mutex // guards w and the lines of tracks
	w  io.Writer
}

// trackLines are the lines of a track.
type trackLines struct {
	*lines
	track *Track
	at    time.Time // of the last line
	line  string
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

func (l *lines) start(t *Track) view { return &trackLines{lines: l, track: t} }
func (l *lines) close()              {}

func (l *trackLines) update(p Progress) {
	line := counts(p)
	l.mu.Lock()
	defer l.mu.Unlock()
	if line == "" || line == l.line || time.Since(l.at) < lineEvery {
		return
	}
	l.at, l.line = time.Now(), line
	fmt.Fprintf(l.w, "[PROGRESS] %s: %s - %s\n", l.track.Name, line, elapsed(time.Since(l.track.Started)))
}

func (l *trackLines) end(p Progress, ok bool, took time.Duration) {
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
	fmt.Fprintf(l.w, "[%s] %s: %s - %s\n", word, l.track.Name, line, elapsed(took))
}

// elapsed formats the running time of a track.
func elapsed(d time.Duration) string {
	return fmt.Sprintf("%dm %02ds", int(d.Minutes()), int(d.Seconds())%60)
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
