package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/goccy/go-yaml"
	"github.com/mattn/go-runewidth"
	"golang.org/x/term"
)

// table prints rows under a head, in columns. On a terminal the widest columns but the first, which names the row, are cut
// until a line fits, and the last ones are omitted where that does not suffice. Elsewhere nothing is cut.
type table struct {
	w     io.Writer
	rows  [][]string // the first is the head
	notes []string   // below the rows; "" for none
}

// leastColumn is the width of a column that is cut, gap the space between columns, in columns of the terminal.
const leastColumn, gap = 6, 2

// newTable returns a table with a head of words, in which _ is a space.
func newTable(w io.Writer, head string) *table {
	t := &table{w: w, rows: [][]string{strings.Fields(head)}, notes: []string{""}}
	for i, word := range t.rows[0] {
		t.rows[0][i] = strings.TrimRight(strings.ReplaceAll(word, "_", " "), " ")
	}
	return t
}

// note is a line below a row, given as its last cell; none if it is empty.
type note string

// row adds a row.
func (t *table) row(cells ...any) {
	below, ok := cells[len(cells)-1].(note)
	if ok {
		cells = cells[:len(cells)-1]
	}
	row := make([]string, len(cells))
	for i, c := range cells {
		if row[i] = printable(textOf(c)); row[i] == "" && i < len(cells)-1 {
			row[i] = "-"
		}
	}
	t.rows, t.notes = append(t.rows, row), append(t.notes, printable(string(below)))
}

// textOf returns a value as tables show it: a time by its age, a list without brackets.
func textOf(v any) string {
	switch v := v.(type) {
	case time.Time:
		return age(v)
	case time.Duration:
		return v.Round(time.Millisecond).String()
	case []string:
		return strings.Join(v, ",")
	}
	return fmt.Sprint(v)
}

// flush writes the table.
func (t *table) flush() error {
	widths, room := make([]int, len(t.rows[0])), columnsOf(t.w)
	for _, row := range t.rows {
		for i, text := range row {
			widths[i] = max(widths[i], widthOf(text))
		}
	}
	if room > 0 {
		widths = shrink(widths, room)
	}
	var b strings.Builder
	for r, row := range t.rows {
		for i, width := range widths {
			text := runewidth.Truncate(row[i], width, "…")
			pad := strings.Repeat(" ", width-widthOf(text)+gap)
			if head := t.rows[0][i]; r > 0 && (head == "STATUS" || head == "STATE" || head == "HEALTH") {
				text = screenOf(t.w).state(text)
			}
			b.WriteString(text)
			if i < len(widths)-1 {
				b.WriteString(pad)
			}
		}
		b.WriteByte('\n')
		if note := t.notes[r]; note != "" {
			if room > 0 {
				note = runewidth.Truncate(note, room-2, "…")
			}
			b.WriteString("  " + note + "\n")
		}
	}
	_, err := io.WriteString(t.w, b.String())
	return err
}

// shrink returns the widths of the columns that a line of a terminal has room for.
func shrink(widths []int, room int) []int {
	total := gap * (len(widths) - 1)
	for _, w := range widths {
		total += w
	}
	for ; total > room && len(widths) > 1; total-- {
		rest := widths[1:]
		widest := slices.Index(rest, slices.Max(rest))
		if rest[widest] <= leastColumn {
			break
		}
		rest[widest]--
	}
	for ; total > room && len(widths) > 1; widths = widths[:len(widths)-1] {
		total -= widths[len(widths)-1] + gap
	}
	return widths
}

// printJSON writes v as indented JSON.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// showFields prints an object: with --json as the API responds, otherwise by its fields.
func (s scope) showFields(object any) error {
	if s.Bool("json") {
		return printJSON(s.env.stdout, object)
	}
	return printFields(s.env.stdout, object)
}

// printFields prints the fields of an object that have a value as YAML, in the order of its JSON.
func printFields(w io.Writer, object any) error {
	data, err := json.Marshal(object)
	if err == nil {
		data, err = yaml.JSONToYAML(data)
	}
	if err == nil {
		_, err = io.WriteString(w, printableLines(string(data)))
	}
	return err
}

// showDone prints a changed object: with --json as the API responds, otherwise a line.
func showDone(s scope, object any, err error, format string, args ...any) error {
	if err == nil && s.Bool("json") {
		return printJSON(s.env.stdout, object)
	}
	return done(s.env, err, format, args...)
}

// elapsed returns the time since t, for things that still run.
func elapsed(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return lastedFor(time.Since(t))
}

// lastedFor formats a duration: milliseconds up to a minute, seconds above.
func lastedFor(d time.Duration) string {
	if d > time.Minute {
		return d.Round(time.Second).String()
	}
	return max(0, d).Round(time.Millisecond).String()
}

// printable returns a string on one line, without control sequences.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
}

// printableLines is printable for each line of a string.
func printableLines(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = printable(strings.ReplaceAll(line, "\t", " "))
	}
	return strings.Join(lines, "\n")
}

// cell returns a text in one line, shortened to a width.
func cell(text string, width int) string { return runewidth.Truncate(printable(text), width, "…") }

// age formats the time since at in its largest unit, as in "3m ago", and the zero time as "never".
func age(at time.Time) string {
	switch d := time.Since(at); {
	case at.IsZero():
		return "never"
	case d < time.Minute:
		return fmt.Sprintf("%ds ago", max(0, int(d.Seconds())))
	case d < time.Hour:
		return fmt.Sprintf("%dm ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh ago", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd ago", int(d.Hours())/24)
	}
}

// A screen is standard output or standard error. It alone knows whether that is
// a terminal, how wide it is, and whether it has colours.
type screen struct {
	io.Writer          // where text goes
	file      *os.File // the terminal; nil in tests
	terminal  bool     // it shows progress, and columns that are cut
	color     bool
	fixed     int  // how wide it is, in columns; 0 to ask the terminal
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

// columns returns how many columns a terminal has, 0 elsewhere.
func (s *screen) columns() int {
	if s.fixed > 0 || !s.terminal || s.file == nil {
		return s.fixed
	}
	columns, _, err := term.GetSize(int(s.file.Fd()))
	if err != nil {
		return 0
	}
	return max(0, columns)
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
func columnsOf(w io.Writer) int { return screenOf(w).columns() }

// widthOf returns how many columns of a terminal a text takes.
func widthOf(text string) int { return runewidth.StringWidth(text) }

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

// state colours a text that is a state, if the screen has colours, and returns others as they are.
func (s *screen) state(text string) string {
	color := stateColors[strings.ToLower(text)]
	if !s.color || color == "" {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[0m"
}
