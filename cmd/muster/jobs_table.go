package main

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"muster/orchestrator/job"
)

// jobTable prints jobs in columns: the id, the name, the state and others. The name is
// cut so that a line fits a terminal, unless the others are too wide. Below a row
// may be a line of its own.
type jobTable struct {
	env   environment
	rows  [][]string
	notes []string // below the rows; "" for none
}

// jobsWide is how wide a list of jobs is at most, in columns.
const jobsWide = 80

// leastName is how much is left of a name in any case.
const leastName = 8

func newJobTable(env environment, head ...string) *jobTable {
	return &jobTable{env: env, rows: [][]string{head}, notes: []string{""}}
}

// add adds a row, and the line below it, which may be empty.
func (t *jobTable) add(note string, cells ...string) {
	t.rows, t.notes = append(t.rows, cells), append(t.notes, note)
}

// widths returns the width of each column.
func (t *jobTable) widths() []int {
	widths := make([]int, len(t.rows[0]))
	all := -2
	for i := range widths {
		for _, row := range t.rows {
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
		}
		all += widths[i] + 2
	}
	widths[1] = max(min(leastName, widths[1]), widths[1]-max(0, all-jobsWide))
	return widths
}

func (t *jobTable) print() error {
	widths := t.widths()
	paint := newPainter(t.env)
	for r, row := range t.rows {
		var b strings.Builder
		for i, text := range row {
			text = cell(text, widths[i])
			pad := widths[i] - utf8.RuneCountInString(text)
			if r > 0 && i == 2 {
				text = paint.status(text)
			}
			b.WriteString(text)
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", pad+2))
			}
		}
		if note := t.notes[r]; note != "" {
			b.WriteString("\n  " + cell(note, jobsWide-2))
		}
		if _, err := fmt.Fprintln(t.env.stdout, b.String()); err != nil {
			return err
		}
	}
	return nil
}

// painter colours the states of jobs on a terminal.
type painter struct{ on bool }

// newPainter returns a painter that has no effect unless standard output is a
// terminal, and none where NO_COLOR is set.
func newPainter(env environment) painter {
	for _, v := range env.environ {
		if value, ok := strings.CutPrefix(v, "NO_COLOR="); ok && value != "" {
			return painter{}
		}
	}
	return painter{isTerminal(env.stdout)}
}

// status colours a text that is the state of a job, and returns others as they are.
func (p painter) status(text string) string {
	if !p.on {
		return text
	}
	color := map[job.Status]string{job.Completed: "32", job.Processing: "33", job.Failed: "31", job.Cancelled: "90"}[job.Status(text)]
	if color == "" {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[0m"
}
