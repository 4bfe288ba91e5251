package main

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"
)

// shapeOf describes the JSON of a type: the keys of objects with the types of their
// values. A key with a question mark may be missing.
func shapeOf(t reflect.Type) string { return shaper{}.of(t, "") }

// shaper describes types. It tracks the enclosing types.
type shaper []reflect.Type

// of describes a type whose lines begin with indent.
func (s shaper) of(t reflect.Type, indent string) string {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return "time"
	case t == reflect.TypeFor[time.Duration]():
		return "nanoseconds"
	case t == reflect.TypeFor[json.RawMessage]():
		return "any"
	case t.Kind() == reflect.Pointer:
		return s.of(t.Elem(), indent)
	case t.Implements(reflect.TypeFor[json.Marshaler]()) || reflect.PointerTo(t).Implements(reflect.TypeFor[json.Marshaler]()):
		return marshaled(t)
	case t.Implements(reflect.TypeFor[encoding.TextMarshaler]()):
		return "string"
	}
	switch t.Kind() {
	case reflect.Bool:
		return "boolean"
	case reflect.String:
		return "string"
	case reflect.Interface:
		return "any"
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			return "base64"
		}
		return "[" + s.of(t.Elem(), indent) + ", …]"
	case reflect.Map:
		return "{\"…\": " + s.of(t.Elem(), indent) + "}"
	case reflect.Struct:
		for _, outer := range s {
			if outer == t {
				return "{…}" // again
			}
		}
		return "{\n" + append(s, t).fields(t, indent+"  ") + indent + "}"
	default:
		return "number"
	}
}

// fields describes the fields of a struct, a line each.
func (s shaper) fields(t reflect.Type, indent string) string {
	var b strings.Builder
	for i := range t.NumField() {
		f := t.Field(i)
		name, opts, _ := strings.Cut(f.Tag.Get("json"), ",")
		embedded := f.Type
		if embedded.Kind() == reflect.Pointer {
			embedded = embedded.Elem()
		}
		switch {
		case name == "-":
		case f.Anonymous && name == "" && embedded.Kind() == reflect.Struct:
			b.WriteString(s.fields(embedded, indent))
		case f.IsExported():
			if name == "" {
				name = f.Name
			}
			maybe := ""
			if strings.Contains(opts, "omit") {
				maybe = "?"
			}
			fmt.Fprintf(&b, "%s%q%s: %s\n", indent, name, maybe, s.of(f.Type, indent))
		}
	}
	return b.String()
}

// marshaled is the kind of JSON that a type makes of its zero value.
func marshaled(t reflect.Type) string {
	var v any
	if raw, err := json.Marshal(reflect.New(t).Interface()); err == nil {
		_ = json.Unmarshal(raw, &v) // it is JSON
	}
	switch v.(type) {
	case string:
		return "string"
	case float64:
		return "number"
	case bool:
		return "boolean"
	case []any:
		return "[any, …]"
	case map[string]any:
		return "{\"…\": any}"
	}
	return "any"
}
