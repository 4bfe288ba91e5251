package demo

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

// Record is the record of a page by field names of the definition of the site; _type is its type.
type Record map[string]any

// Truth returns all records of the site in listing order, the result of a complete scrape.
func (s *Site) Truth() []Record {
	out := make([]Record, len(s.truth))
	for i, r := range s.truth {
		out[i] = maps.Clone(r)
	}
	return out
}

// Check compares records, one JSON object per line, with the truth. It returns nil if they are equal, in any order, and otherwise
// an error with missing and other records. It ignores fields with a leading underscore, but for _type.
func (s *Site) Check(jsonl io.Reader) error {
	missing := map[string]int{} // how often a record is missing, as JSON with sorted fields
	for _, r := range s.truth {
		missing[string(must(json.Marshal(r)))]++
	}
	var errs []error
	lines := bufio.NewScanner(jsonl)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		var got Record
		if err := json.Unmarshal(lines.Bytes(), &got); err != nil {
			errs = append(errs, fmt.Errorf("line %d: invalid record: %w", n, err))
			continue
		}
		maps.DeleteFunc(got, func(field string, _ any) bool { return strings.HasPrefix(field, "_") && field != "_type" })
		record := string(must(json.Marshal(got)))
		if missing[record]--; missing[record] < 0 {
			errs = append(errs, fmt.Errorf("line %d: the site has no such record, or not twice: %s", n, record))
		}
	}
	if err := lines.Err(); err != nil {
		errs = append(errs, fmt.Errorf("read records: %w", err))
	}
	for _, record := range slices.Sorted(maps.Keys(missing)) {
		if missing[record] > 0 {
			errs = append(errs, fmt.Errorf("missing: %s", record))
		}
	}
	return shorten(s.Name, errs)
}

// CheckFiles is like Check for the concatenation of files.
func (s *Site) CheckFiles(names ...string) error {
	var parts []io.Reader
	for _, name := range names {
		f, err := os.Open(name)
		if err != nil {
			return fmt.Errorf("check the records of %s: %w", s.Name, err)
		}
		defer f.Close()
		parts = append(parts, f)
	}
	return s.Check(io.MultiReader(parts...))
}

// shorten joins at most the first ten errors. It returns nil for none.
func shorten(site string, errs []error) error {
	const most = 10
	if len(errs) == 0 {
		return nil
	}
	rest := len(errs) - most
	if rest > 0 {
		errs = append(errs[:most:most], fmt.Errorf("and %d more", rest))
	}
	return fmt.Errorf("records of %s differ from the site: %w", site, errors.Join(errs...))
}
