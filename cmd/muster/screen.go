package main

import (
	"io"
	"os"
	"slices"
	"strings"

	"github.com/mattn/go-runewidth"
	"golang.org/x/term"
)

// A screen is standard output or standard error. It alone knows whether that is
// a terminal, how wide it is, and whether it has colours.
type screen struct {
	io.Writer          // where text goes
	file      *os.File // the terminal; nil in tests
	terminal  bool     // it shows progress, columns that are cut, and pages that are drawn again
	color     bool
	fixed     int  // how wide it is, in columns; 0 to ask the terminal
	again     bool // a command prints to it again and again: muster --watch
	muted     bool // by --quiet
}

// newScreen returns the screen of a file. Only terminals have colours, and none
// where NO_COLOR is set or TERM is dumb.
func newScreen(f *os.File, environ []string) *screen {
	s := &screen{Writer: f, file: f}
	s.terminal = term.IsTerminal(int(f.Fd())) && !slices.Contains(environ, "TERM=dumb")
	s.color = s.terminal && !slices.ContainsFunc(environ, func(v string) bool {
		value, ok := strings.CutPrefix(v, "NO_COLOR=")
		return ok && value != ""
	})
	return s
}

// size returns the columns and lines of a terminal, 0 elsewhere.
func (s *screen) size() (columns, lines int) {
	if s.fixed > 0 {
		return s.fixed, 0
	}
	if !s.terminal || s.file == nil {
		return 0, 0
	}
	columns, lines, err := term.GetSize(int(s.file.Fd()))
	if err != nil || columns <= 0 {
		return 0, 0
	}
	return columns, lines
}

// mute drops all later writes.
func (s *screen) mute() { s.muted, s.Writer = true, io.Discard }

// screenOf returns w as a screen, or nil if w is not a terminal.
func screenOf(w io.Writer) *screen {
	if s, ok := w.(*screen); ok {
		return s
	}
	return &screen{Writer: w}
}

// raw returns the file of a screen, for libraries that detect a terminal.
func raw(w io.Writer) io.Writer {
	if s := screenOf(w); s.file != nil {
		return s.file
	}
	return w
}

// isTerminal reports whether w is a terminal.
func isTerminal(w io.Writer) bool { return screenOf(w).terminal }

// columnsOf returns how many columns fit w, 0 if any number does: lines are cut
// on terminals only.
func columnsOf(w io.Writer) int {
	columns, _ := screenOf(w).size()
	return columns
}

// widthOf returns how many columns of a terminal a text takes.
func widthOf(text string) int { return runewidth.StringWidth(text) }

// painter colours states on a terminal.
type painter struct{ on bool }

// newPainter returns a painter that has no effect unless standard output has colours.
func newPainter(env environment) painter { return painterOf(env.stdout) }

func painterOf(w io.Writer) painter { return painter{screenOf(w).color} }

// The colours of states, in small letters.
const (
	green, yellow, red, grey = "32", "33", "31", "90"
)

var stateColors = map[string]string{
	"completed": green, "complete": green, "success": green, "ok": green, "done": green, "integrated": green, "alive": green, "delivered": green, "active": green,
	"processing": yellow, "started": yellow, "running": yellow, "retry": yellow, "in_progress": yellow, "degraded": yellow, "draining": yellow, "stuck": yellow,
	"failed": red, "failure": red, "error": red, "critical": red, "rejected": red, "lost": red, "dead": red,
	"cancelled": grey, "revoked": grey, "skipped": grey, "paused": grey, "expired": grey,
}

// status colours a text that is a state, and returns others as they are.
func (p painter) status(text string) string {
	color := stateColors[strings.ToLower(text)]
	if !p.on || color == "" {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[0m"
}
