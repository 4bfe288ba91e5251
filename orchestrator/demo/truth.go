package demo

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"reflect"
	"strings"
)

// Record is the record of a page by field names of the definition of the site; _type is its type.
type Record map[string]any

// id returns the type and key of a record, unique within a site.
func (r Record) id() string {
	for _, field := range []string{"sku", "id"} {
		if v, ok := r[field].(string); ok {
			return fmt.Sprintf("%v %s", r["_type"], v)
		}
	}
	return ""
}

// Truth returns all records of the site in listing order, the result of a complete scrape.
func (s *Site) Truth() []Record {
	out := make([]Record, len(s.truth))
	for i, r := range s.truth {
		out[i] = maps.Clone(r)
	}
	return out
}

// Check compares records, one JSON object per line, with the truth. It returns nil if they are equal, in any order, and otherwise
// an error with missing, duplicate, different and unknown records. It ignores fields with a leading underscore.
func (s *Site) Check(jsonl io.Reader) error {
	want := map[string]Record{}
	for _, r := range s.truth {
		want[r.id()] = r
	}

	var errs []error
	complain := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	seen := map[string]bool{}
	lines := bufio.NewScanner(jsonl)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		var got Record
		if err := json.Unmarshal(lines.Bytes(), &got); err != nil {
			complain("line %d: invalid record: %w", n, err)
			continue
		}
		id := got.id()
		truth, known := want[id]
		switch {
		case !known:
			complain("line %d: %s has no record %q", n, s.Name, id)
		case seen[id]:
			complain("line %d: duplicate record %q", n, id)
		default:
			if field := differs(got, truth); field != "" {
				complain("line %d: %q has %s = %v, want %v", n, id, field, got[field], truth[field])
			}
		}
		seen[id] = true
	}
	if err := lines.Err(); err != nil {
		complain("read records: %w", err)
	}
	for _, r := range s.truth {
		if !seen[r.id()] {
			complain("%q is missing", r.id())
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

// differs returns the name of a field that differs, or "".
func differs(got, truth Record) string {
	plain := asJSON(truth)
	for field, v := range plain {
		if !reflect.DeepEqual(got[field], v) {
			return field
		}
	}
	for field := range got {
		if _, ok := plain[field]; !ok && !strings.HasPrefix(field, "_") {
			return field
		}
	}
	return ""
}

// asJSON returns the record after a round trip through JSON.
func asJSON(r Record) Record {
	var out Record
	if err := json.Unmarshal(must(json.Marshal(r)), &out); err != nil {
		panic(fmt.Sprintf("demo: %v", err)) // valid JSON from Marshal
	}
	return out
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
