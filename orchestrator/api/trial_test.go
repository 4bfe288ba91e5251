package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"muster/internal/testutil"
)

// trial is a request for an operation of the description.
type trial struct {
	method, path string
	pathValues   map[string]string // escaped
	query        url.Values
	header       http.Header
	body         any  // nil: none
	unknown      bool // 404 or 409 are accepted, because of an example in its path
}

func (tr *trial) send(t *testing.T, h http.Handler) *httptest.ResponseRecorder {
	t.Helper()
	var data []byte
	if tr.body != nil {
		var err error
		if data, err = json.Marshal(tr.body); err != nil {
			t.Fatal(err)
		}
	}
	path := tr.path
	for name, value := range tr.pathValues {
		path = strings.ReplaceAll(path, "{"+name+"}", value)
	}
	r := httptest.NewRequestWithContext(t.Context(), tr.method, "http://localhost/", bytes.NewReader(data))
	u := testutil.Must(url.Parse("http://localhost" + path + "?" + tr.query.Encode()))(t)
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
	case "/v1/workflows", "/v1/schedules/{name}": // they take a task or work
		tr.unknown = path == "/v1/schedules/{name}" // no scheduler runs
		switch send := map[string]any{"task": "x", "input": 1}; method {
		case "post":
			tr.body = send
		case "put":
			tr.body.(map[string]any)["send"] = send
		}
	case "/v1/tasks/lease": // no task is ready
		tr.body = map[string]any{"tasks": []string{"x"}, "wait": "0s"}
	case "/v1/breakers/reset": // it takes one of two fields
		tr.body = map[string]any{"all": true}
	case "/v1/limits/{limit}": // of three
		if method == "put" {
			tr.body = map[string]any{"key": "*", "n": 1}
		}
	case "/v1/queues/{queue}/import":
		tr.header.Set("Content-Type", jsonLines)
	case "/v1/jobs/{id}", "/v1/workflows/{id}": // it has not ended, so it is not deleted
		tr.unknown = method == "delete"
	case "/v1/webhooks/{id}/deliveries/{delivery}/redeliver", // nothing was sent
		"/v1/proxies/ban", "/v1/proxies/unban", "/v1/proxies/delete", // the pool is empty
		"/v1/scrapes/{id}", "/v1/scrapes/{id}/cancel", "/v1/scrapes/{id}/resume", // and so is the list of scrapes
		"/v1/workflows/{id}/nodes/{node}/complete", "/v1/workflows/{id}/nodes/{node}/fail", "/v1/workflows/{id}/nodes/{node}/extend", // no task is open
		"/v1/tokens/complete", "/v1/tokens/fail", "/v1/tokens/extend", "/v1/tasks/beat", "/v1/tasks/complete", "/v1/tasks/fail",
		"/v1/schedules/{name}/pause", "/v1/schedules/{name}/resume", "/v1/schedules/{name}/trigger", "/v1/schedules/{name}/backfill",
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

// Each text that an operation accepts has a limit.
func TestTextsHaveALimit(t *testing.T) {
	t.Parallel()
	o := readSpec(t)
	var check func(at string, schema map[string]any)
	checked := map[any]bool{} // schemas: they can contain themselves
	check = func(at string, schema map[string]any) {
		if ref := schema["$ref"]; ref != nil && checked[ref] {
			return
		} else if ref != nil {
			checked[ref] = true
		}
		schema = o.deref(schema)
		if kind(schema) == "string" && schema["maxLength"] == nil && schema["enum"] == nil && schema["pattern"] == nil && schema["format"] != "date-time" {
			t.Errorf("%s has no limit", at)
		}
		properties, _ := schema["properties"].(map[string]any)
		for name, sub := range properties {
			check(at+"."+name, sub.(map[string]any))
		}
		if items, ok := schema["items"].(map[string]any); ok {
			check(at+"[]", items)
		}
	}
	for _, methods := range o.Paths {
		for _, op := range methods {
			for _, p := range op.Parameters {
				if p.In == "path" {
					check(op.OperationID+" "+p.Name, p.Schema)
				}
			}
			if schema := o.bodySchema(op); schema != nil {
				check(op.OperationID+" body", schema)
			}
		}
	}
}
