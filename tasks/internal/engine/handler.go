package engine

import (
	"bytes"
	"context"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"

	"muster/tasks/internal/graph"
	"muster/tasks/internal/store"
	"muster/tasks/tasktype"
)

// The errors of the engine.
var (
	ErrUnknown   = store.ErrUnknown
	ErrDuplicate = errors.New("a workflow with this id or unique key exists")
	ErrShutdown  = errors.New("worker stops")
	ErrEnded     = errors.New("the workflow has ended")
	errRevoked   = errors.New("workflow was revoked")

	errUnreadable = errors.New("cannot be read")
	errNoValue    = errors.New("has no value")
)

// Handler runs the tasks of one name.
type Handler struct {
	Name string
	Opts *graph.Opts
	In   reflect.Type // of the inputs, or nil
	Run  func(ctx context.Context, input []byte) (HandlerResult, error)
	Wrap []func(ctx context.Context, info tasktype.Info, next func(context.Context) error) error // the outermost first

	Batch *Batch // how nodes are collected for one call; nil if each has its own. Run then calls [Run.Join]

	Stepped func(ctx context.Context, name string) error // called when a step was stored; nil in programs

	Builtin bool // every worker has it: it is not listed
}

// limits returns the limits of the tasks. h may be nil.
func (h *Handler) limits() []*graph.Limit {
	if h == nil || h.Opts == nil {
		return nil
	}
	return h.Opts.Limits
}

// taskNames returns the sorted names of the tasks that handlers are for, without the built-in ones.
func taskNames(handlers map[string]*Handler) []string {
	var names []string
	for name, h := range handlers {
		if !h.Builtin {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Use adds middleware inside the existing middleware of h.
func (h *Handler) Use(mw func(ctx context.Context, info tasktype.Info, next func(context.Context) error) error) {
	h.Wrap = append(h.Wrap[:len(h.Wrap):len(h.Wrap)], mw)
}

// HandlerResult is the result of a handler: a value as JSON, or the plan that replaces the node.
type HandlerResult struct {
	Value   json.RawMessage
	Plan    *graph.Sig
	Planned bool
}

var names atomic.Int64

// WorkerName returns a name no other worker has.
func WorkerName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "host"
	}
	host = strings.Map(func(r rune) rune {
		if validName.MatchString(string(r)) {
			return r
		}
		return '_'
	}, host)
	return fmt.Sprintf("%s-%d-%d", host, os.Getpid(), names.Add(1))
}

var validName = regexp.MustCompile(`^[A-Za-z0-9_.:-]{1,128}$`)

// ValidName returns an error for an invalid name of a worker.
func ValidName(name string) error {
	if !validName.MatchString(name) {
		return fmt.Errorf("%q: use letters, digits and _ . : -", name)
	}
	return nil
}

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
