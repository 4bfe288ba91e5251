package source

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// json parses JSON of any nesting. It returns false if body is not JSON.
func (p *parser) json(body []byte) bool {
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	documents := 0
	for { // also accepts JSON lines
		var document any
		if err := decoder.Decode(&document); err != nil {
			return documents > 0
		}
		documents++
		p.walk(document, maxJSONDeep)
	}
}

func (p *parser) walk(v any, depth int) {
	if depth == 0 {
		return
	}
	switch v := v.(type) {
	case []any:
		for _, member := range v {
			p.walk(member, depth-1)
		}
	case map[string]any:
		row := map[string]string{}
		for key, member := range v {
			row[strings.ToLower(key)] = scalar(member)
		}
		if host := firstOf(row, columns.host); host != "" && p.row(row) {
			return
		}
		for _, key := range slices.Sorted(maps.Keys(v)) { // keeps the order of candidates deterministic
			p.walk(v[key], depth-1)
		}
	case string:
		if !p.line(v) && strings.Contains(v, ":") {
			p.reject(Unparsed)
		}
	}
}

// scalar returns a JSON value as a string, the elements of a list separated by spaces.
func scalar(v any) string {
	switch v := v.(type) {
	case string:
		return strings.TrimSpace(v)
	case json.Number:
		return v.String()
	case []any:
		var words []string
		for _, member := range v {
			words = append(words, scalar(member))
		}
		return strings.Join(words, " ")
	}
	return ""
}
