package engine

import (
	"bytes"
	"encoding"
	"encoding/json"
	"reflect"
	"strings"
)

// Sample describes how a task is sent by hand.
type Sample struct {
	Queue string          `json:"queue,omitempty"` // its default queue
	Input json.RawMessage `json:"input"`           // an example of an input: all fields, with empty values
}

// samples returns the samples of the tasks of handlers, as JSON by name.
func samples(handlers map[string]*Handler) map[string]any {
	out := map[string]any{}
	for name, h := range handlers {
		if h.Builtin || h.In == nil {
			continue
		}
		if raw, err := json.Marshal(Sample{Queue: h.Opts.Queue, Input: example(h.In, 0)}); err == nil && len(raw) <= maxSample {
			out[name] = raw
		}
	}
	return out
}

const (
	maxSample   = 16 << 10 // bytes
	sampleDepth = 4        // of structs in an example
)

// example returns the JSON of a value of a type with all fields of structs.
func example(t reflect.Type, depth int) json.RawMessage {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	p := reflect.New(t)
	_, marshals := p.Interface().(json.Marshaler)
	_, isText := p.Interface().(encoding.TextMarshaler)
	switch {
	case marshals || isText || depth > sampleDepth:
	case t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8:
		return json.RawMessage("[" + string(example(t.Elem(), depth+1)) + "]")
	case t.Kind() == reflect.Map:
		return json.RawMessage("{}")
	case t.Kind() == reflect.Struct:
		var fields []string
		for _, f := range reflect.VisibleFields(t) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if !f.IsExported() || name == "-" || f.Anonymous && name == "" {
				continue
			}
			if name == "" {
				name = f.Name
			}
			key, _ := json.Marshal(name)
			fields = append(fields, string(key)+":"+string(example(f.Type, depth+1)))
		}
		return json.RawMessage("{" + strings.Join(fields, ",") + "}")
	}
	raw, err := json.Marshal(p.Interface())
	if err != nil || bytes.Equal(raw, []byte("null")) {
		return json.RawMessage("null")
	}
	return raw
}
