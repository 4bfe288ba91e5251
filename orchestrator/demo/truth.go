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

// Record is the record of a page, with the field names of the site's definition; _type is its type.
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

// Truth returns every record of the site, in the order of its listing: what a complete scrape yields.
func (s *Site) Truth() []Record {
	out := make([]Record, len(s.truth))
	for i, r := range s.truth {
		out[i] = maps.Clone(r)
	}
	return out
}

// Check reads records, a JSON object on a line, and compares them with the truth. It returns nil if they are
// exactly the site's, in any order, or else an error that names records that are missing, twice, different
// or unknown. Fields that begin with an underscore belong to the scraper and are ignored.
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
			complain("line %d is no record: %w", n, err)
			continue
		}
		id := got.id()
		truth, known := want[id]
		switch {
		case !known:
			complain("line %d: %s has no record %q", n, s.Name, id)
		case seen[id]:
			complain("line %d: %q came twice", n, id)
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

// CheckFiles is Check of files that hold the records together.
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

// differs returns a field in which the records differ, or "".
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

// asJSON returns the record as JSON decodes it.
func asJSON(r Record) Record {
	var out Record
	if err := json.Unmarshal(must(json.Marshal(r)), &out); err != nil {
		panic(fmt.Sprintf("demo: %v", err)) // it was just encoded
	}
	return out
}

// shorten joins errors, the first ten of them, or returns nil for none.
func shorten(site string, errs []error) error {
	const most = 10
	if len(errs) == 0 {
		return nil
	}
	rest := len(errs) - most
	if rest > 0 {
		errs = append(errs[:most:most], fmt.Errorf("and %d more", rest))
	}
	return fmt.Errorf("records of %s are not what the site has: %w", site, errors.Join(errs...))
}
