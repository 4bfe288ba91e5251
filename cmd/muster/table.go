package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/urfave/cli/v2"
)

// table prints rows under a head, in columns.
type table struct{ w *tabwriter.Writer }

func newTable(w io.Writer, head ...string) *table {
	t := &table{tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)}
	t.row(head...)
	return t
}

// row adds a row. A cell must hold neither tab nor line break.
func (t *table) row(cells ...string) { fmt.Fprintln(t.w, strings.Join(cells, "\t")) }

// flush writes the table.
func (t *table) flush() error { return t.w.Flush() }

// printJSON writes v as indented JSON.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// show prints a listing, as a table or as JSON.
func show[T any](env environment, c *cli.Context, list []T, head []string, row func(T) []string) error {
	if c.Bool("json") {
		return printJSON(env.stdout, append([]T{}, list...)) // [], not null
	}
	t := newTable(env.stdout, head...)
	for _, item := range list {
		t.row(row(item)...)
	}
	return t.flush()
}

// ago is the time since t.
func ago(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return time.Since(t).Round(time.Second).String()
}

// cell returns a text for a column of a table: in one line, and shortened to a width.
func cell(text string, width int) string {
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
	if utf8.RuneCountInString(text) > width {
		text = string([]rune(text)[:width-1]) + "…"
	}
	return text
}

// since is how long ago something was, in the largest unit that fits.
func since(at time.Time) string {
	switch d := time.Since(at); {
	case at.IsZero():
		return "never"
	case d < time.Minute:
		return fmt.Sprintf("%d s ago", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h ago", int(d.Hours()))
	default:
		return fmt.Sprintf("%d days ago", int(d.Hours())/24)
	}
}
