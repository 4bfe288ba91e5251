package sink

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"muster/internal/atomicfile"
	"muster/sites/definition"
	"muster/sites/internal/lines"
)

// Column is a column of a CSV file: a value of a record or of its objects.
type Column []string // the names from the record to the value

// Name returns the names joined by dots, as in price.amount.
func (c Column) Name() string { return strings.Join(c, ".") }

// Columns returns the columns for fields: two for a price (amount and currency), and the columns of its fields for an object. Any
// other field has one column, including lists and objects without fields.
func Columns(fields definition.Fields) []Column {
	var columns []Column
	for i := range fields {
		f := &fields[i]
		at := Column{f.Name}
		switch {
		case f.Type == definition.TypePrice:
			columns = append(columns, append(at, "amount"), Column{f.Name, "currency"})
		case f.Type == definition.TypeObject && len(f.Fields) > 0:
			for _, inner := range Columns(f.Fields) {
				columns = append(columns, append(Column{f.Name}, inner...))
			}
		default:
			columns = append(columns, at)
		}
	}
	return columns
}

// value returns the value of a column in a record, or nil.
func (c Column) value(record map[string]any) any {
	var v any = record
	for _, name := range c {
		object, _ := v.(map[string]any)
		v = object[name]
	}
	return v
}

// WriteCSV atomically converts a JSONL file to a CSV file (RFC 4180) with a header. Lists and objects are written as JSON, except
// that a list of plain values is joined by "; ". Strings are written unchanged, even if a spreadsheet would run them as formulas.
func WriteCSV(jsonl, path string, columns []Column) error {
	return atomicfile.Write(path, 0o600, func(to io.Writer) error {
		w := csv.NewWriter(to)
		w.UseCRLF = true
		head := make([]string, len(columns))
		for i, c := range columns {
			head[i] = c.Name()
		}
		if err := w.Write(head); err != nil {
			return err
		}
		for line, err := range lines.File(jsonl) {
			if err != nil {
				return fmt.Errorf("read %s: %w", jsonl, err)
			}
			if len(bytes.TrimSpace(line)) == 0 {
				continue
			}
			row, err := csvRow(line, columns)
			if err != nil {
				return fmt.Errorf("read %s: %w", jsonl, err)
			}
			if err := w.Write(row); err != nil {
				return err
			}
		}
		w.Flush()
		return w.Error()
	})
}

func csvRow(line []byte, columns []Column) ([]string, error) {
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.UseNumber()
	var rec map[string]any
	if err := dec.Decode(&rec); err != nil {
		return nil, err
	}
	row := make([]string, len(columns))
	for i, c := range columns {
		row[i] = cell(c.value(rec))
	}
	return row, nil
}

func cell(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case json.Number:
		return v.String()
	case bool:
		return strconv.FormatBool(v)
	case []any:
		parts := make([]string, len(v))
		for i, m := range v {
			switch m.(type) {
			case map[string]any, []any, nil:
				text, _ := lines.JSON(v) // v was decoded from JSON
				return string(text)
			}
			parts[i] = cell(m)
		}
		return strings.Join(parts, "; ")
	}
	text, _ := lines.JSON(v)
	return string(text)
}
