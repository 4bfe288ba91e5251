package draft

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"muster/sites/definition"
	"muster/sites/extract"
)

// fromJSON guesses the records in an API response.
func (o *outline) fromJSON(text []byte) error {
	doc, err := extract.PageJSON(text)
	if err != nil {
		return fmt.Errorf("the page looks like JSON but is invalid: %w", err)
	}
	path, objects := largestList(doc, "", 0)
	if len(objects) == 0 {
		return errors.New("the JSON has no list of objects for records")
	}
	fields := objectFields(objects, "", 0)
	if len(fields) == 0 {
		return errors.New("the objects in the list have no keys with single values")
	}
	o.format = "json"
	o.records = []*record{{name: "item", from: definition.KindListing, eachJSON: path + "[*]", fields: fields}}
	top, _ := doc.(map[string]any)
	o.next = jsonNext(top)
	return nil
}

// largestList returns the list with the most objects and its path.
func largestList(v any, path string, depth int) (string, []map[string]any) {
	bestPath, best := "", []map[string]any(nil)
	better := func(p string, objects []map[string]any) {
		if len(objects) > len(best) {
			bestPath, best = p, objects
		}
	}
	switch v := v.(type) {
	case []any:
		var objects []map[string]any
		for _, m := range v {
			if obj, ok := m.(map[string]any); ok {
				objects = append(objects, obj)
			}
		}
		if path == "" {
			path = "$"
		}
		better(path, objects)
	case map[string]any:
		if depth > 6 {
			break
		}
		for _, k := range slices.Sorted(maps.Keys(v)) {
			if p, objects := largestList(v[k], step(path, k), depth+1); len(objects) > 0 {
				better(p, objects)
			}
		}
	}
	return bestPath, best
}

// step adds a name to a JSON path.
func step(path, name string) string {
	if !isSimpleName(name) {
		return path + "[" + fmt.Sprintf("%q", name) + "]"
	}
	if path == "" {
		return name
	}
	return path + "." + name
}

// objectFields returns a field for each key with a single value.
func objectFields(objects []map[string]any, path string, depth int) []field {
	var fields []field
	for _, k := range slices.Sorted(maps.Keys(objects[0])) {
		at := step(path, k)
		var v any
		for _, o := range objects {
			if v = o[k]; v != nil {
				break
			}
		}
		f := field{name: fieldName(at), source: "json: " + quote(at)}
		switch v := v.(type) {
		case map[string]any:
			if depth < 2 {
				for _, inner := range objectFields([]map[string]any{v}, at, depth+1) {
					fields = add(fields, inner)
				}
			}
			continue
		case []any:
			if len(v) == 0 {
				continue
			}
			switch v[0].(type) {
			case map[string]any, []any:
				continue
			}
			f.typ = "list"
		case json.Number:
			f.typ = "number"
		case bool:
			f.typ = "bool"
		case string:
			switch {
			case strings.HasPrefix(v, "http://") || strings.HasPrefix(v, "https://"):
				f.typ = "url"
			case isDate(v):
				f.typ = "date"
			}
		default:
			continue
		}
		if len(fields) < 2*maxFields {
			fields = add(fields, f)
		}
	}
	return fields
}

// jsonNext returns listing.next for the next response, or "": an address, or a cursor for a parameter, whose name is a guess.
func jsonNext(top map[string]any) string {
	for _, path := range []string{"", "paging", "pagination", "meta", "links"} {
		in, _ := top[path].(map[string]any)
		if path == "" {
			in = top
		}
		for _, k := range []string{"next", "next_page_url", "next_url", "next_cursor", "cursor", "nextPageToken"} {
			s, _ := in[k].(string)
			if n, ok := in[k].(json.Number); ok {
				s = n.String()
			}
			switch {
			case s == "":
			case strings.HasPrefix(s, "/") || strings.HasPrefix(s, "http") || strings.HasPrefix(s, "?"):
				return "{json: " + step(path, k) + "}"
			default:
				return "{param: cursor, cursor: " + step(path, k) + "}  # cursor is a guess: name the parameter of the API"
			}
		}
	}
	return ""
}
