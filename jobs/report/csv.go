package report

import (
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster/internal/wrap"
	"muster/jobs"
)

// column is a column of the CSV report.
type column struct {
	name string
	of   func(*jobs.Item) string
}

// columns are the columns of the CSV report, in order. Programs read them by name and by place: add new ones at the
// end.
func columns() []column {
	return []column{
		{"key", func(it *jobs.Item) string { return it.Key }},
		{"id", func(it *jobs.Item) string { return it.ID }},
		{"status", func(it *jobs.Item) string { return string(it.Status) }},
		{"priority", func(it *jobs.Item) string { return it.Priority }},
		{"name", func(it *jobs.Item) string { return it.Name }},
		{"type", func(it *jobs.Item) string { return it.Type }},
		{"text", func(it *jobs.Item) string { return it.Text }},
		{"source_document", func(it *jobs.Item) string { return it.SourceDocument }},
		{"source_location", func(it *jobs.Item) string { return it.SourceLocation }},
		{"labels", func(it *jobs.Item) string { return joinList(labelsOf(it)) }},
		{"research_notes", func(it *jobs.Item) string { return it.ResearchNotes }},
		{"citations", func(it *jobs.Item) string { return joinList(it.Citations) }},
		{"mentioned_objects", func(it *jobs.Item) string { return joinList(it.MentionedObjects) }},
		{"mentioned_messages", func(it *jobs.Item) string { return joinList(it.MentionedMessages) }},
		{"confidence_score", func(it *jobs.Item) string { return number(it.Confidence) }},
		{"external_id", func(it *jobs.Item) string { return it.ExternalID }},
		{"stage", func(it *jobs.Item) string { return it.Stage }},
		{"agent", func(it *jobs.Item) string { return it.Agent }},
		{"rejection_reason", func(it *jobs.Item) string { return it.RejectionReason }},
		{"retry_count", func(it *jobs.Item) string { return strconv.Itoa(it.RetryCount) }},
		{"last_error", func(it *jobs.Item) string { return it.LastError }},
		{"data", func(it *jobs.Item) string { return string(it.Data) }},
		{"created_at", func(it *jobs.Item) string { return stamp(it.CreatedAt) }},
		{"updated_at", func(it *jobs.Item) string { return stamp(it.UpdatedAt) }},
	}
}

// WriteCSV writes the items of a job as CSV (RFC 4180): a header, and a row for each item. Lists are joined by "; ",
// and labels are the labels of the item. A text that a spreadsheet would run as a formula gets an apostrophe before
// it. If the job cannot be read, nothing is written.
func WriteCSV(ctx context.Context, w io.Writer, src Source, id string) error {
	j, err := get(ctx, src, id)
	if err != nil {
		return err
	}
	columns := columns()
	row := make([]string, len(columns))
	for i, c := range columns {
		row[i] = c.name
	}
	out := csv.NewWriter(w)
	out.UseCRLF = true
	if err := out.Write(row); err != nil {
		return fmt.Errorf("write the report on job %s: %w", id, err)
	}
	err = eachItem(ctx, src, j, func(it jobs.Item) error {
		for i, c := range columns {
			row[i] = escapeFormula(c.of(&it))
		}
		return out.Write(row)
	})
	if err != nil {
		return err
	}
	out.Flush()
	return wrap.Err(out.Error(), "write the report on job %s", id)
}

func joinList(list []string) string { return strings.Join(list, "; ") }

// labelsOf lists the labels that an item has.
func labelsOf(it *jobs.Item) (labels []string) {
	for _, label := range slices.Sorted(maps.Keys(it.Labels)) {
		if it.Labels[label] {
			labels = append(labels, label)
		}
	}
	return labels
}

func number(f *float64) string {
	if f == nil {
		return ""
	}
	return strconv.FormatFloat(*f, 'g', -1, 64)
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// formulaStart matches the first character of a formula, also in a part of a text that a spreadsheet splits at
// semicolons, tabs or lines.
var formulaStart = regexp.MustCompile(`(^|[;\t\r\n])([ ]*)([=+@-])`)

// escapeFormula returns a text that spreadsheets do not run as a formula: with an apostrophe before each possible one.
func escapeFormula(s string) string {
	if _, err := strconv.ParseFloat(s, 64); err == nil {
		return s
	}
	return formulaStart.ReplaceAllString(s, "$1$2'$3")
}
