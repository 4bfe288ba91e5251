package report

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"muster/internal/wrap"
	"muster/jobs"
)

// columns are the columns of the CSV report, in order: the keys of an item in JSON. Programs read them by name and by
// place: add new ones at the end.
var columns = []string{
	"key", "id", "status", "priority", "name", "type", "text", "source_document", "source_location", "labels", "research_notes", "citations",
	"mentioned_objects", "mentioned_messages", "confidence_score", "external_id", "stage", "agent", "rejection_reason", "retry_count",
	"last_error", "data", "created_at", "updated_at",
}

// WriteCSV writes the items of a job as CSV (RFC 4180): a header, and a row for each item. Lists are joined by "; ",
// and labels are the labels of the item. A text that a spreadsheet would run as a formula gets an apostrophe before
// it. If the job cannot be read, nothing is written.
func WriteCSV(ctx context.Context, w io.Writer, src Source, id string) error {
	j, err := get(ctx, src, id)
	if err != nil {
		return err
	}
	out := csv.NewWriter(w)
	out.UseCRLF = true
	if err := out.Write(columns); err != nil {
		return fmt.Errorf("write the report on job %s: %w", id, err)
	}
	err = eachItem(ctx, src, j, func(it jobs.Item) error {
		row, err := rowOf(it)
		if err != nil {
			return err
		}
		return out.Write(row)
	})
	if err != nil {
		return err
	}
	out.Flush()
	return wrap.Err(out.Error(), "write the report on job %s", id)
}

// rowOf returns the values of the columns of an item.
func rowOf(it jobs.Item) ([]string, error) {
	data := string(it.Data)
	it.Data = nil
	raw, err := json.Marshal(it)
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	fields := map[string]any{}
	if err := d.Decode(&fields); err != nil {
		return nil, err
	}
	fields["data"] = data
	row := make([]string, len(columns))
	for i, name := range columns {
		row[i] = escapeFormula(textOf(fields[name]))
	}
	return row, nil
}

// textOf returns a value of JSON as a text: a list joined, and of an object the names that are true.
func textOf(value any) string {
	var parts []string
	switch v := value.(type) {
	case nil:
	case []any:
		for _, part := range v {
			parts = append(parts, fmt.Sprint(part))
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if v[name] == true {
				parts = append(parts, name)
			}
		}
	default:
		return fmt.Sprint(v)
	}
	return strings.Join(parts, "; ")
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
