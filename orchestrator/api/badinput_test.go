package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// long is accepted by URLs and headers; huge exceeds the limit of most bodies.
var long, huge = strings.Repeat("x", 60<<10), strings.Repeat("x", 2<<20)

// trial is a request for an operation of the description.
type trial struct {
	method, path string
	pathValues   map[string]string // escaped
	query        url.Values
	header       http.Header
	body         any  // nil: none; rawText is written without encoding
	unknown      bool // 404 or 409 are accepted, because of an example in its path
}

// rawText is the inside of a JSON string, with bytes that no encoder writes.
type rawText string

// MarshalJSON marks the text; encode puts it in place.
func (r rawText) MarshalJSON() ([]byte, error) { return []byte(`"@RAW@"`), nil }

func (tr *trial) encode(t *testing.T) []byte {
	t.Helper()
	if tr.body == nil {
		return nil
	}
	data, err := json.Marshal(tr.body)
	if err != nil {
		t.Fatal(err)
	}
	if raw := findRaw(tr.body); raw != "" {
		data = bytes.Replace(data, []byte("@RAW@"), []byte(raw), 1)
	}
	return data
}

func findRaw(v any) rawText {
	switch v := v.(type) {
	case rawText:
		return v
	case map[string]any:
		for _, value := range v {
			if r := findRaw(value); r != "" {
				return r
			}
		}
	case []any:
		for _, value := range v {
			if r := findRaw(value); r != "" {
				return r
			}
		}
	}
	return ""
}

func (tr *trial) send(t *testing.T, h http.Handler) *httptest.ResponseRecorder {
	t.Helper()
	path := tr.path
	for name, value := range tr.pathValues {
		path = strings.ReplaceAll(path, "{"+name+"}", value)
	}
	r := httptest.NewRequestWithContext(t.Context(), tr.method, "http://localhost/", bytes.NewReader(tr.encode(t)))
	u, err := url.Parse("http://localhost" + path + "?" + tr.query.Encode())
	if err != nil {
		t.Fatal(err)
	}
	r.URL, r.Header = u, tr.header.Clone()
	if tr.body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// base returns a good request for an operation.
func (o openapi) base(method, path string, op operation) *trial {
	known := map[string]string{"stage": "create", "key": "a%2Fb", "site": "quotes.toscrape.com", "name": "default", "other": o.has.other, "delivery": "1-0", "id": o.has.job}
	if strings.HasPrefix(path, "/v1/agents") {
		known["id"] = o.has.agent
	}
	if strings.HasPrefix(path, "/v1/keys") {
		known["id"] = "some"
	}
	if strings.HasPrefix(path, "/v1/webhooks") {
		known["id"] = "ops"
	}
	if strings.HasPrefix(path, "/v1/assignments") {
		known["id"] = o.has.assignment
	}
	if strings.HasPrefix(path, "/v1/workflows") {
		known["id"], known["node"] = o.has.workflow, "0"
	}
	tr := &trial{method: strings.ToUpper(method), path: path, pathValues: known, query: url.Values{}, header: http.Header{}}
	for _, p := range op.Parameters {
		switch {
		case p.In == "header" && p.Required:
			tr.header.Set(p.Name, fmt.Sprintf("%q", strconv.FormatInt(o.has.version, 10)))
		case p.In == "query" && p.Required:
			tr.query.Set(p.Name, fmt.Sprint(o.valid(p.Name, p.Schema)))
		case p.In == "path" && known[p.Name] == "":
			known[p.Name], tr.unknown = url.PathEscape(fmt.Sprint(o.valid(p.Name, p.Schema))), true
		}
	}
	if schema := o.bodySchema(op); schema != nil {
		tr.body = o.valid("", schema)
	}
	switch path {
	case "/v1/breakers/reset": // it takes one of two fields
		tr.body = map[string]any{"all": true}
	case "/v1/queues/{queue}/import":
		tr.header.Set("Content-Type", jsonLines)
	case "/v1/jobs/{id}", "/v1/workflows/{id}": // it has not ended, so it is not deleted
		tr.unknown = method == "delete"
	case "/v1/webhooks/{id}/deliveries/{delivery}/redeliver", // nothing was sent
		"/v1/proxies/ban", "/v1/proxies/unban", "/v1/proxies/delete", // the pool is empty
		"/v1/scrapes/{id}", "/v1/scrapes/{id}/cancel", "/v1/scrapes/{id}/resume", // and so is the list of scrapes
		"/v1/workflows/{id}/nodes/{node}/complete", "/v1/workflows/{id}/nodes/{node}/fail", "/v1/workflows/{id}/nodes/{node}/extend", // no task is open
		"/v1/tokens/complete", "/v1/tokens/fail", "/v1/tokens/extend",
		"/v1/schedules/{name}", "/v1/schedules/{name}/pause", "/v1/schedules/{name}/resume", "/v1/schedules/{name}/trigger", "/v1/schedules/{name}/backfill", // no scheduler runs
		"/v1/workflows/{id}/retry", // it runs
		"/v1/workers/concurrency":  // no workers are running
		tr.unknown = true
	}
	return tr
}

func (o openapi) bodySchema(op operation) map[string]any {
	if op.RequestBody == nil {
		return nil
	}
	return o.deref(op.RequestBody.Content["application/json"].Schema)
}

func (o openapi) deref(schema map[string]any) map[string]any {
	for {
		ref, ok := schema["$ref"].(string)
		if !ok {
			return schema
		}
		schema, _ = o.resolve(ref).(map[string]any)
	}
}

// kind is the type of a schema: null beside another type is left out.
func kind(schema map[string]any) string {
	switch v := schema["type"].(type) {
	case string:
		return v
	case []any:
		for _, one := range v {
			if s, _ := one.(string); s != "null" {
				return s
			}
		}
	}
	return ""
}

func required(schema map[string]any) []string {
	var names []string
	list, _ := schema["required"].([]any)
	for _, name := range list {
		names = append(names, name.(string))
	}
	return names
}

// valid returns a value of a schema, with the fields that are required.
func (o openapi) valid(name string, schema map[string]any) any {
	schema = o.deref(schema)
	if list, _ := schema["enum"].([]any); len(list) > 0 {
		return list[0]
	}
	if name == "agent" {
		return o.has.agent
	}
	if name == "fence" {
		return o.has.fence
	}
	switch kind(schema) {
	case "object":
		v := map[string]any{}
		properties, _ := schema["properties"].(map[string]any)
		for _, name := range required(schema) {
			v[name] = o.valid(name, properties[name].(map[string]any))
		}
		return v
	case "array":
		return []any{o.valid("", schema["items"].(map[string]any))}
	case "boolean":
		return true
	case "integer", "number":
		return 1
	case "string":
		if list, _ := schema["examples"].([]any); len(list) > 0 {
			if text, ok := list[0].(string); ok {
				return text
			}
		}
		if schema["format"] == "date-time" {
			return "2026-11-23T00:00:00Z"
		}
		if pattern, _ := schema["pattern"].(string); strings.HasPrefix(pattern, "^https?") {
			return "https://x.example/"
		}
		return "x"
	}
	return "anything"
}

// field is a part of a body.
type field struct {
	steps    []any // names and indexes
	schema   map[string]any
	required bool
	member   bool // of an object with names of the client's choice
}

func (f field) location() string {
	var b strings.Builder
	b.WriteString("body")
	for _, step := range f.steps {
		if i, ok := step.(int); ok {
			fmt.Fprintf(&b, "[%d]", i)
		} else {
			fmt.Fprintf(&b, ".%s", step)
		}
	}
	return b.String()
}

// fields lists the parts of a body.
func (o openapi) fields(schema map[string]any, steps []any) []field {
	var out []field
	schema = o.deref(schema)
	properties, _ := schema["properties"].(map[string]any)
	for name, sub := range properties {
		s := o.deref(sub.(map[string]any))
		at := append(slices.Clone(steps), name)
		out = append(out, field{steps: at, schema: s, required: slices.Contains(required(schema), name)})
		out = append(out, o.fields(s, at)...)
	}
	if more, ok := schema["additionalProperties"].(map[string]any); ok {
		s := o.deref(more)
		at := append(slices.Clone(steps), "some")
		out = append(out, field{steps: at, schema: s, member: true})
		out = append(out, o.fields(s, at)...)
	}
	if kind(schema) == "array" {
		s := o.deref(schema["items"].(map[string]any))
		at := append(slices.Clone(steps), 0)
		out = append(out, field{steps: at, schema: s})
		out = append(out, o.fields(s, at)...)
	}
	return out
}

// absent makes put remove the field.
type absent struct{}

// put returns body with a value at the steps, and creates missing parents.
func (o openapi) put(body any, schema map[string]any, steps []any, value any) any {
	if len(steps) == 0 {
		return value
	}
	schema = o.deref(schema)
	if i, ok := steps[0].(int); ok {
		list, _ := body.([]any)
		sub := schema["items"].(map[string]any)
		if len(list) == 0 {
			list = []any{o.valid("", sub)}
		}
		list = slices.Clone(list)
		list[i] = o.put(list[i], sub, steps[1:], value)
		return list
	}
	name := steps[0].(string)
	out := map[string]any{}
	old, _ := body.(map[string]any)
	for key, v := range old {
		out[key] = v
	}
	properties, _ := schema["properties"].(map[string]any)
	sub, ok := properties[name].(map[string]any)
	if !ok {
		sub = schema["additionalProperties"].(map[string]any)
	}
	if _, remove := value.(absent); remove && len(steps) == 1 {
		delete(out, name)
		return out
	}
	if _, there := out[name]; !there {
		out[name] = o.valid(name, sub)
	}
	out[name] = o.put(out[name], sub, steps[1:], value)
	return out
}

// badValues returns invalid values of a field, by the kind of the mistake.
func (o openapi) badValues(f field) map[string]any {
	bad := map[string]any{}
	if f.required {
		bad["absent"] = absent{}
	}
	switch kind(f.schema) {
	case "integer", "number":
		bad["a huge number"], bad["a hugely negative number"], bad["more digits than fit"] = json.Number("1e308"), json.Number("-1e308"), json.Number(strings.Repeat("9", 5000))
	}
	switch kind(f.schema) {
	case "string":
		bad["wrong type"], bad["object"] = 4711, map[string]any{"a": 1}
		if n, ok := f.schema["maxLength"].(float64); ok {
			bad["too long"] = strings.Repeat("x", int(n)+1)
		} else if f.schema["enum"] == nil && f.schema["format"] != "date-time" && !f.member { // the members of maps are limited by code
			bad["without a limit"] = nil // there must be one
		} else {
			bad["60 KB"] = long
		}
		if f.schema["enum"] != nil || f.schema["format"] == "date-time" {
			bad["nonsense"] = "nonsense"
		}
	case "integer", "number":
		bad["wrong type"], bad["60 KB"] = "x", long
		if kind(f.schema) == "integer" {
			bad["fraction"] = 1.5
		}
	case "boolean", "array", "object":
		bad["wrong type"], bad["60 KB"] = "x", long
		if n, ok := f.schema["maxItems"].(float64); ok && n <= 1000 {
			bad["too many"] = slices.Repeat([]any{o.valid("", f.schema["items"].(map[string]any))}, int(n)+1)
		}
	}
	return bad
}

// oddValues are values that an operation may accept or reject.
var oddValues = []any{
	rawText(`a\u0000b`), rawText("a\xffb"), rawText(`a\ud800b`), json.Number("1e400"), json.Number("1e308"),
	json.RawMessage(strings.Repeat("[", 200) + strings.Repeat("]", 200)), json.RawMessage(`{"a": 1, "a": 2}`),
}

// refused fails unless the response is a client error that names a location.
func refused(t *testing.T, what string, w *httptest.ResponseRecorder, locations ...string) {
	t.Helper()
	var p Problem
	err := json.Unmarshal(w.Body.Bytes(), &p)
	if w.Code < 400 || w.Code >= 500 || w.Header().Get("Content-Type") != problemType || err != nil || p.Status != w.Code || p.Title == "" || p.Detail == "" {
		t.Errorf("%s: got %d %s %.300s, want a problem with a status from 400 to 499", what, w.Code, w.Header().Get("Content-Type"), w.Body)
		return
	}
	if w.Code == http.StatusRequestEntityTooLarge {
		locations = append(locations, "body")
	}
	for _, e := range p.Errors {
		if e.Message != "" && slices.ContainsFunc(locations, func(at string) bool {
			return e.Location == at || strings.HasSuffix(at, "…") && strings.HasPrefix(e.Location, strings.TrimSuffix(at, "…"))
		}) {
			return
		}
	}
	t.Errorf("%s: got %d %.300s, want an error at %v", what, w.Code, w.Body, locations)
}

// Each field of each operation is refused when it is bad, with its path, and never with 500.
func TestBadInputIsRefusedWithItsField(t *testing.T) {
	t.Parallel()
	o := readSpec(t)
	fresh := func(t *testing.T) (openapi, http.Handler) {
		cfg := everything(t)
		o := o
		o.has = populate(t, cfg, "")
		return o, handler(t, cfg)
	}
	reads, reader := fresh(t)
	for path, methods := range o.Paths {
		for method, op := range methods {
			t.Run(op.OperationID, func(t *testing.T) {
				t.Parallel()
				o, h := reads, reader
				if method != "get" { // it may change the objects of other operations
					o, h = fresh(t)
				}
				streams := strings.HasSuffix(path, "/events") || path == "/metrics"
				if good := o.base(method, path, op); !streams {
					if w := good.send(t, h); w.Code/100 != 2 && (!good.unknown || w.Code != http.StatusNotFound && w.Code != http.StatusConflict) {
						t.Fatalf("a good request: got %d %s, want 200 or 201", w.Code, w.Body)
					}
				}
				for _, p := range op.Parameters {
					badParameter(t, o, h, method, path, op, p)
				}
				if schema := o.bodySchema(op); schema != nil {
					badBody(t, o, h, method, path, op, schema)
				}
				if op.RequestBody != nil {
					badForm(t, o, h, path, op)
				}
			})
		}
	}
}

func badBody(t *testing.T, o openapi, h http.Handler, method, path string, op operation, schema map[string]any) {
	t.Helper()
	for _, f := range o.fields(schema, nil) {
		for what, value := range o.badValues(f) {
			if what == "without a limit" {
				t.Errorf("%s %s has no limit", op.OperationID, f.location())
				continue
			}
			tr := o.base(method, path, op)
			tr.body = o.put(tr.body, schema, f.steps, value)
			refused(t, fmt.Sprintf("%s %s, %s", op.OperationID, f.location(), what), tr.send(t, h), f.location(), "body")
		}
		for _, value := range oddValues {
			tr := o.base(method, path, op)
			tr.body = o.put(tr.body, schema, f.steps, value)
			if w := tr.send(t, h); w.Code >= 500 {
				t.Errorf("%s %s, %.20q: got %d %.300s, want no error of the server", op.OperationID, f.location(), fmt.Sprint(value), w.Code, w.Body)
			}
		}
	}
	for what, body := range map[string]any{
		"an unknown field": map[string]any{"there_is_no_such_field": 1}, "2 MB": map[string]any{"there_is_no_such_field": huge}, "a list": []any{}, "a text": "x", "a number": 1, "nothing": json.RawMessage("null"),
	} {
		tr := o.base(method, path, op)
		if tr.body = body; what == "nothing" && !op.RequestBody.Required {
			continue
		}
		refused(t, op.OperationID+" with "+what, tr.send(t, h), "body…")
	}
}

// badForm sends forms with each of their fields bad.
func badForm(t *testing.T, o openapi, h http.Handler, path string, op operation) {
	t.Helper()
	schema := o.deref(op.RequestBody.Content["multipart/form-data"].Schema)
	properties, _ := schema["properties"].(map[string]any)
	for name, sub := range properties {
		s := o.deref(sub.(map[string]any))
		if s["format"] == "binary" || s["contentEncoding"] == "binary" {
			continue // a file may have any bytes
		}
		bad := map[string][]string{"NUL": {"a\x00b"}, "invalid UTF-8": {"a\xffb"}, "2 MB": {huge}}
		if kind(s) == "array" {
			bad["too many"] = slices.Repeat([]string{"x"}, 200)
		} else {
			bad["twice"] = []string{"1", "2"}
		}
		for what, values := range bad {
			var parts []part
			for _, required := range required(schema) {
				if required != name {
					parts = append(parts, part{name: required, text: "x"})
				}
			}
			for _, value := range values {
				parts = append(parts, part{name: name, text: value})
			}
			body, typed := formOf(t, parts...)
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost"+path, bytes.NewReader(body))
			typed(r)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			refused(t, fmt.Sprintf("%s form %s, %s", op.OperationID, name, what), w, "body."+name+"…")
		}
	}
}

func badParameter(t *testing.T, o openapi, h http.Handler, method, path string, op operation, p parameter) {
	t.Helper()
	bad := map[string]string{"too long": strings.Repeat("x", 5000), "60 KB": long, "NUL": "\x00", "invalid UTF-8": "\xff"}
	switch kind(p.Schema) {
	case "integer", "boolean":
		bad["wrong type"], bad["injection"] = "x", "7;DROP"
	}
	if p.Schema["enum"] != nil || p.Schema["pattern"] != nil {
		bad["nonsense"] = "<nonsense>"
	}
	if p.Name == "Idempotency-Key" {
		delete(bad, "nonsense") // any printable text is one
	}
	for what, value := range bad {
		tr := o.base(method, path, op)
		switch p.In {
		case "path":
			tr.pathValues[p.Name] = url.PathEscape(value)
		case "query":
			tr.query.Set(p.Name, value)
		case "header":
			tr.header.Set(p.Name, value)
		}
		at := []string{p.In + "." + p.Name}
		if p.In == "path" {
			at = append(at, "path")
			if p.Schema["pattern"] == nil && p.Schema["maxLength"] == nil {
				t.Errorf("%s: %s has no limit", op.OperationID, p.Name)
			}
		}
		if kind(p.Schema) == "array" {
			at = append(at, at[0]+"[0]")
		}
		refused(t, fmt.Sprintf("%s %s.%s, %s", op.OperationID, p.In, p.Name, what), tr.send(t, h), at...)
	}
	if p.In == "header" && p.Required {
		tr := o.base(method, path, op)
		tr.header.Del(p.Name)
		refused(t, op.OperationID+" without "+p.Name, tr.send(t, h), "header."+p.Name)
	}
}
