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

// Record is what a page of a site says, under the names of the site's definition; _type is the kind of
// record.
type Record map[string]any

// id is what tells records of a site apart.
func (r Record) id() string {
	for _, field := range []string{"sku", "id"} {
		if v, ok := r[field].(string); ok {
			return fmt.Sprintf("%v %s", r["_type"], v)
		}
	}
	return ""
}

// Truth is every record the site has, in the order of its listing: what a complete scrape yields, each
// once.
func (s *Site) Truth() []Record {
	out := make([]Record, len(s.truth))
	for i, r := range s.truth {
		out[i] = maps.Clone(r)
	}
	return out
}

// Check reads records, a JSON object on a line, and holds them against the truth. Its error names what
// is missing, what came twice, what differs and what nobody said; it is nil when the records are exactly
// the site's, in whatever order. Fields that begin with an underscore belong to the scraper and are not
// looked at.
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

// differs is the first field in which a record is not as the truth has it, or "".
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

// asJSON is a record as it comes back from JSON.
func asJSON(r Record) Record {
	var out Record
	if err := json.Unmarshal(must(json.Marshal(r)), &out); err != nil {
		panic(fmt.Sprintf("demo: %v", err)) // it was just encoded
	}
	return out
}

// shorten makes one error of many and keeps it readable.
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
