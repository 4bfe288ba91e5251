package api

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// Random requests of all operations get no error of the server.
func TestRandomRequestsAreNoErrorsOfTheServer(t *testing.T) {
	t.Parallel()
	const requests, seed = 1000, 4711
	o, cfg := readSpec(t), everything(t)
	o.has = populate(t, cfg, "")
	h := handler(t, cfg)
	type endpoint struct {
		method, path string
		operation
	}
	var all []endpoint
	for path, methods := range o.Paths {
		if strings.HasSuffix(path, "/events") { // a stream
			continue
		}
		for method, op := range methods {
			all = append(all, endpoint{method, path, op})
		}
	}
	slices.SortFunc(all, func(a, b endpoint) int { return strings.Compare(a.OperationID, b.OperationID) })
	r := randomly{rand.New(rand.NewPCG(seed, 0)), o}
	codes := map[int]int{}
	for n := range requests {
		e := all[r.IntN(len(all))]
		tr := o.base(e.method, e.path, e.operation)
		for _, p := range e.Parameters {
			value, _ := r.value(p.Name, p.Schema, 0).(string)
			switch {
			case p.Name == "wait" || r.IntN(3) > 0:
			case p.In == "path":
				tr.pathValues[p.Name] = url.PathEscape(value)
			case p.In == "query":
				tr.query.Set(p.Name, value)
			default:
				tr.header.Set(p.Name, value)
			}
		}
		if schema := o.bodySchema(e.operation); schema != nil && r.IntN(4) > 0 {
			tr.body = r.value("", schema, 0)
		}
		w := tr.send(t, h)
		if codes[w.Code/100]++; w.Code >= 500 {
			body, _ := json.Marshal(tr.body)
			t.Errorf("request %d: %s %v?%s %v %.500s: got %d %.300s", n, e.OperationID, tr.pathValues, tr.query.Encode(), tr.header, body, w.Code, w.Body)
		}
		if w.Code == http.StatusTooManyRequests {
			t.Fatalf("request %d: %s: got %d", n, e.OperationID, w.Code)
		}
	}
	if codes[2] < requests/10 || codes[4] < requests/10 {
		t.Errorf("got %d accepted and %d refused requests, want at least a tenth of each", codes[2], codes[4])
	}
}

// randomly makes values.
type randomly struct {
	*rand.Rand
	openapi
}

// texts are strings that may confuse a parser, a store or a page.
var texts = []string{"", " ", "0", "-1", "1e9", "9223372036854775808", "NaN", "null", "true", "..", "../../etc/passwd", "a/b", "*", "{}", "[", `"`, "'; --", "\x00", "\xff", "\u202e", "é", "💥", "%", "%00", "\r\nX: y", "1-0", "2026-13-45T99:00:00Z", "5m", "-5m", "99999h", strings.Repeat("x", 300), strings.Repeat("[", 100)}

// value returns a value that is mostly of a schema.
func (r randomly) value(name string, schema map[string]any, depth int) any {
	schema = r.deref(schema)
	switch {
	case r.IntN(8) == 0:
		return texts[r.IntN(len(texts))]
	case r.IntN(20) == 0:
		return []any{nil, 1e300, -1, 0.5, true, []any{}, map[string]any{"a": nil}}[r.IntN(7)]
	case name == "document_url":
		return "https://127.0.0.1/" // refused without a connection
	case r.IntN(3) == 0 || depth > 4:
		return r.valid(name, schema)
	}
	switch kind(schema) {
	case "object":
		v := map[string]any{}
		properties, _ := schema["properties"].(map[string]any)
		for _, field := range slices.Sorted(maps.Keys(properties)) {
			if slices.Contains(required(schema), field) || r.IntN(3) == 0 {
				v[field] = r.value(field, properties[field].(map[string]any), depth+1)
			}
		}
		if more, ok := schema["additionalProperties"].(map[string]any); ok {
			v[texts[r.IntN(len(texts))]] = r.value("", more, depth+1)
		}
		return v
	case "array":
		list := []any{}
		for range r.IntN(4) {
			list = append(list, r.value("", schema["items"].(map[string]any), depth+1))
		}
		return list
	case "integer", "number":
		return []any{0, -1, 1, 2, 100, 1 << 31, int64(1) << 62}[r.IntN(7)]
	case "boolean":
		return r.IntN(2) == 0
	}
	return r.valid(name, schema)
}
