package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/mattn/go-runewidth"
	"github.com/urfave/cli/v2"
)

// table prints rows under a head, in columns. On a terminal the widest columns
// are cut until a line fits, but not the first, which names the row. Where that
// does not suffice, less important columns are omitted. Elsewhere nothing is cut.
type table struct {
	w     io.Writer
	rows  [][]string // the first is the head
	notes []string   // below the rows; "" for none
	less  []string   // heads of columns that matter less
}

// leastColumn is how much is left of a column that is cut, in columns of the terminal.
const leastColumn = 6

func newTable(w io.Writer, head ...string) *table {
	return &table{w: w, rows: [][]string{head}, notes: []string{""}}
}

// row adds a row.
func (t *table) row(cells ...string) { t.add("", cells...) }

// add adds a row, and a line below it if note is not empty.
func (t *table) add(note string, cells ...string) {
	row := make([]string, len(cells))
	for i, text := range cells {
		row[i] = printable(text)
	}
	t.rows, t.notes = append(t.rows, row), append(t.notes, printable(note))
}

// flush writes the table.
func (t *table) flush() error {
	widths, room, gap := t.widths(), columnsOf(t.w), 2
	if room > 0 && !shrink(widths, room, gap) {
		short := t.withoutLess()
		widths, gap = short.widths(), 1
		shrink(widths, room, gap)
		t = short
	}
	var b strings.Builder
	paint := painterOf(t.w)
	for r, row := range t.rows {
		for i, text := range row {
			text = runewidth.Truncate(text, widths[i], "…")
			pad := strings.Repeat(" ", widths[i]-widthOf(text)+gap)
			if r > 0 {
				text = t.paint(paint, i, text)
			}
			b.WriteString(text)
			if i < len(row)-1 {
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

// withoutLess returns a table without the columns that matter less.
func (t *table) withoutLess() *table {
	short := &table{w: t.w, notes: t.notes}
	for _, row := range t.rows {
		var cells []string
		for i, text := range row {
			if !slices.Contains(t.less, t.rows[0][i]) {
				cells = append(cells, text)
			}
		}
		short.rows = append(short.rows, cells)
	}
	return short
}

// widths returns how wide each column is.
func (t *table) widths() []int {
	widths := make([]int, len(t.rows[0]))
	for _, row := range t.rows {
		for i, text := range row {
			widths[i] = max(widths[i], widthOf(text))
		}
	}
	return widths
}

// shrink makes the widest columns but the first narrower until a line has room,
// with gaps between the columns, and reports whether it has.
func shrink(widths []int, room, gap int) bool {
	total := gap * (len(widths) - 1)
	for _, w := range widths {
		total += w
	}
	for ; total > room; total-- {
		widest := 0
		for i := 1; i < len(widths); i++ {
			if widest == 0 || widths[i] > widths[widest] {
				widest = i
			}
		}
		if widest == 0 || widths[widest] <= leastColumn {
			return false
		}
		widths[widest]--
	}
	return true
}

// paint colours the states of a table.
func (t *table) paint(p painter, column int, text string) string {
	switch t.rows[0][column] {
	case "STATUS", "STATE", "HEALTH":
		return p.status(text)
	}
	return text
}

// printJSON writes v as JSON: indented, or on one line if a command
// prints repeatedly.
func printJSON(w io.Writer, v any) error {
	s := screenOf(w)
	enc := json.NewEncoder(w)
	if s.asJSON = true; !s.again {
		enc.SetIndent("", "  ")
	}
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// printFields prints the fields of an object that have a value, one a line, in the order of its JSON.
func printFields(w io.Writer, object any) error {
	data, err := json.Marshal(object)
	if err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	_, err = dec.Token() // the opening brace
	for err == nil && dec.More() {
		var name json.Token
		var value json.RawMessage
		if name, err = dec.Token(); err == nil {
			err = dec.Decode(&value)
		}
		if text := fieldText(value); text != "" {
			fmt.Fprintf(w, "%-18s %s\n", strings.ReplaceAll(fmt.Sprint(name), "_", " "), printable(text))
		}
	}
	return err
}

// fieldText returns a JSON value as a table shows it, "" for an empty one.
func fieldText(value json.RawMessage) string {
	var text string
	var list []string
	switch {
	case json.Unmarshal(value, &text) == nil:
		return text
	case json.Unmarshal(value, &list) == nil:
		return strings.Join(list, ", ")
	case slices.Contains([]string{"{}", "[]", "false"}, string(value)):
		return ""
	}
	return string(value)
}

// showDone prints a changed object: with --json as the API responds, otherwise a line.
func showDone(env environment, c *cli.Context, object any, err error, format string, args ...any) error {
	if err == nil && c.Bool("json") {
		return printJSON(env.stdout, object)
	}
	return done(env, err, format, args...)
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

// cell returns a text in one line, shortened to a number of characters.
func cell(text string, width int) string {
	text = printable(text)
	if utf8.RuneCountInString(text) > width {
		text = string([]rune(text)[:width-1]) + "…"
	}
	return text
}

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
