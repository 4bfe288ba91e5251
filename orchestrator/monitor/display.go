// Package monitor displays the progress of jobs: bars on a terminal, or lines in a log.
//
// A Display owns one output. Each job has a Track: call Update whenever its progress changes, and Done or Fail once. The
// Display limits the output rate.
package monitor

import (
	"io"
	"sync"
	"time"
)

// A Format is an output format of progress.
type Format string

// The formats.
const (
	Bars  Format = "bars"
	Lines Format = "lines"
	None  Format = "none"
)

// Progress is the progress of a job.
type Progress struct {
	Done  int64  // finished units
	Total int64  // total units; 0 while unknown
	Unit  string // plural name of the unit: "chunks", "pages"
	Note  string // additional information: "37 alive", "2 errors"
	Brief string // shorter Note for narrow terminals; default: Note
}

// Percent returns the finished percentage, 0 while the total is unknown.
func (p Progress) Percent() int64 {
	if p.Total <= 0 {
		return 0
	}
	return min(100, 100*p.Done/p.Total)
}

// A Display shows the tracks of one run. Its methods may be called concurrently. It implements io.Writer: lines that are
// written to it appear above the bars, so that a logger can share the terminal.
type Display struct {
	painter painter
	mu      sync.Mutex
	tracks  []*Track
	closed  bool
}

// painter renders tracks in one format.
type painter interface {
	io.Writer
	start(t *Track) view
	close()
}

// view shows a track.
type view interface {
	update(p Progress)
	end(p Progress, ok bool, took time.Duration)
}

// New returns a display that writes to w. The caller must close it.
func New(w io.Writer, format Format) *Display {
	d := &Display{}
	switch format {
	case Bars:
		d.painter = newBars(w)
	case None:
		d.painter = nothing{w}
	default:
		d.painter = &lines{w: w}
	}
	return d
}

// Write writes whole lines without corrupting a bar.
func (d *Display) Write(p []byte) (int, error) { return d.painter.Write(p) }

// Track adds a job with the given name.
func (d *Display) Track(name string) *Track {
	t := &Track{view: nothing{}, Name: name, Started: time.Now()}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed {
		d.tracks = append(d.tracks, t)
		t.view = d.painter.start(t)
	}
	return t
}

// Close finishes the remaining tracks and moves the cursor below them. Later calls of the display and its tracks do nothing.
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

// A Track is a job in a Display. Its methods may be called concurrently.
type Track struct {
	Name    string
	Started time.Time

	view  view
	mu    sync.Mutex // guards the fields below
	now   Progress
	ended bool
	took  time.Duration // set when ended
}

// Update displays p. Numbers may decrease, because a total may have been an estimate.
func (t *Track) Update(p Progress) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return
	}
	t.now = p
	t.view.update(p)
}

// Done marks the track as successful, with a final note.
func (t *Track) Done(note string) { t.finish(note, true) }

// Fail marks the track as failed, with the reason.
func (t *Track) Fail(note string) { t.finish(note, false) }

func (t *Track) finish(note string, ok bool) {
	p := t.last()
	p.Note = note
	if ok {
		p.Done = max(p.Done, p.Total) // the last update may be outdated
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
	t.view.end(p, ok, t.took)
}

// Took returns the running time of the track, as the display shows it.
func (t *Track) Took() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return t.took
	}
	return time.Since(t.Started)
}

// nothing shows no progress and writes log lines unchanged.
type nothing struct{ io.Writer }

func (nothing) start(*Track) view                 { return nothing{} }
func (nothing) update(Progress)                   {}
func (nothing) end(Progress, bool, time.Duration) {}
func (nothing) close()                            {}
