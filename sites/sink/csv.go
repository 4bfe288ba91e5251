package sink

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"muster/internal/atomicfile"
)

// WriteCSV converts a JSONL file to a CSV file (RFC 4180) with a header and these columns. Lists and objects are
// written as JSON, except that a list of plain values is joined by "; ". A text that a spreadsheet would run as a
// formula gets an apostrophe before it. The file is written atomically.
func WriteCSV(jsonl, path string, columns []string, fence Fence) error {
	in, err := os.Open(jsonl)
	if err != nil {
		return fmt.Errorf("open records: %w", err)
	}
	defer in.Close()
	return atomicfile.Write(path, 0o644, func(to io.Writer) error {
		w := csv.NewWriter(to)
		w.UseCRLF = true
		if err := w.Write(columns); err != nil {
			return err
		}
		r := bufio.NewReaderSize(in, 256<<10)
		for {
			line, rerr := r.ReadBytes('\n')
			if rerr != nil && rerr != io.EOF {
				return fmt.Errorf("read %s: %w", jsonl, rerr)
			}
			if len(bytes.TrimSpace(line)) > 0 {
				row, err := csvRow(line, columns)
				if err != nil {
					return fmt.Errorf("read %s: %w", jsonl, err)
				}
				if err := w.Write(row); err != nil {
					return err
				}
			}
			if rerr == io.EOF {
				break
			}
		}
		w.Flush()
		if err := w.Error(); err != nil {
			return err
		}
		return fence()
	})
}

func csvRow(line []byte, columns []string) ([]string, error) {
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.UseNumber()
	var rec map[string]any
	if err := dec.Decode(&rec); err != nil {
		return nil, err
	}
	row := make([]string, len(columns))
	for i, c := range columns {
		row[i] = cell(rec[c])
	}
	return row, nil
}

func cell(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return guarded(v)
	case json.Number:
		return v.String()
	case bool:
		return strconv.FormatBool(v)
	case []any:
		parts := make([]string, len(v))
		for i, m := range v {
			switch m.(type) {
			case map[string]any, []any, nil:
				return plainJSON(v)
			}
			parts[i] = cell(m)
		}
		return strings.Join(parts, "; ")
	}
	return plainJSON(v)
}

func plainJSON(v any) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return ""
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// guarded returns a text that spreadsheets do not run as a formula.
func guarded(s string) string {
	if s == "" || !strings.ContainsRune("=+-@\t\r", rune(s[0])) {
		return s
	}
	if _, err := strconv.ParseFloat(s, 64); err == nil {
		return s
	}
	return "'" + s
}
