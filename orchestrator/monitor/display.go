// Package monitor shows the progress of the jobs of a run: as bars on a
// terminal, as lines in a log, as JSON events for another program.
//
// A Display owns one output. Each job is a Track of it: call Update whenever its
// numbers have changed, as often as you like, and Done or Fail once. The Display
// decides how often it shows them.
package monitor

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"
)

// A Format is a way of showing progress.
type Format string

// The formats. Auto means Bars on a terminal and Lines elsewhere.
const (
	Auto  Format = "auto"
	Bars  Format = "bars"
	Lines Format = "lines"
	JSON  Format = "json"
	None  Format = "none"
)

// Formats lists what ParseFormat accepts.
var Formats = []Format{Auto, Bars, Lines, JSON, None}

// ParseFormat returns the format called s.
func ParseFormat(s string) (Format, error) {
	for _, f := range Formats {
		if string(f) == s {
			return f, nil
		}
	}
	return "", fmt.Errorf("no progress format %q; use one of %v", s, Formats)
}

// Progress is the state of a job.
type Progress struct {
	Done  int64  // units done
	Total int64  // units in all; 0 while unknown
	Unit  string // what is counted, in the plural: "chunks", "pages"
	Note  string // a few words on what else matters: "37 alive", "2 errors"
	Brief string // Note for where there is little room. Defaults to Note

	// State and Numbers are what Note says, for programs. Optional.
	State   string
	Numbers map[string]float64
}

// Percent returns how much of the job is through, 0 while its size is unknown.
func (p Progress) Percent() int64 {
	if p.Total <= 0 {
		return 0
	}
	return min(100, 100*p.Done/p.Total)
}

// A Display shows the tracks of one run. Its methods may be called
// concurrently. It is also a writer: what is written to it, in whole lines,
// appears above the bars, so a logger can share the terminal with them.
type Display struct {
	painter painter
	mu      sync.Mutex
	tracks  []*Track
	closed  bool
}

// painter draws tracks in one format.
type painter interface {
	io.Writer
	start(t *Track)
	update(t *Track, p Progress)
	end(t *Track, p Progress, ok bool)
	close()
}

// New returns a display on w. The caller closes it.
func New(w io.Writer, format Format) *Display {
	if format == Auto {
		format = Lines
		if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
			format = Bars
		}
	}
	d := &Display{}
	switch format {
	case Bars:
		d.painter = newBars(w)
	case JSON:
		d.painter = newEvents(w)
	case None:
		d.painter = nothing{w}
	default:
		d.painter = newLines(w)
	}
	return d
}

// Write passes whole lines through without tearing a bar.
func (d *Display) Write(p []byte) (int, error) { return d.painter.Write(p) }

// Track starts showing a job under the given name.
func (d *Display) Track(name string) *Track {
	t := &Track{display: d, Name: name, Started: time.Now()}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed {
		d.tracks = append(d.tracks, t)
		d.painter.start(t)
	}
	return t
}

// Close ends what is still shown and leaves the cursor below it. Later calls
// of the display and its tracks do nothing.
func (d *Display) Close() {
	d.mu.Lock()
	tracks := d.tracks
	d.mu.Unlock()
	for _, t := range tracks {
		t.end(t.last(), false)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed {
		d.closed = true
		d.painter.close()
	}
}

// A Track is the job of a Display. Its methods may be called concurrently.
type Track struct {
	Name    string
	Started time.Time

	display *Display
	mu      sync.Mutex // guards the fields below
	now     Progress
	ended   bool
	took    time.Duration // set when ended
}

// Update shows p. Numbers that fall are shown as they are: a total may turn
// out smaller than thought.
func (t *Track) Update(p Progress) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return
	}
	t.now = p
	t.display.painter.update(t, p)
}

// Done ends the track as a success, with a last note.
func (t *Track) Done(note string) { t.finish(note, true) }

// Fail ends the track as a failure, with the reason.
func (t *Track) Fail(note string) { t.finish(note, false) }

func (t *Track) finish(note string, ok bool) {
	p := t.last()
	p.Note = note
	if ok {
		p.Done = max(p.Done, p.Total) // the last look may have been a moment too early
	}
	t.end(p, ok)
}

func (t *Track) last() Progress {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.now
}

func (t *Track) end(p Progress, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return
	}
	t.now, t.ended, t.took = p, true, time.Since(t.Started)
	t.display.painter.end(t, p, ok)
}

// elapsed returns how long the track has run, or did run.
func (t *Track) elapsed() string {
	d := t.took
	if !t.ended {
		d = time.Since(t.Started)
	}
	return fmt.Sprintf("%dm %02ds", int(d.Minutes()), int(d.Seconds())%60)
}

// nothing shows no progress and passes log lines through.
type nothing struct{ io.Writer }

func (nothing) start(*Track)               {}
func (nothing) update(*Track, Progress)    {}
func (nothing) end(*Track, Progress, bool) {}
func (nothing) close()                     {}
