package definition

import (
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// The types below can be written in more than one way: shortly as one text,
// or in full as a mapping.

// isMapping tells whether n is written in full.
func (d *decoder) isMapping(n ast.Node) bool {
	switch d.plain(n).(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return true
	}
	return false
}

// full decodes the mapping n into the struct that v points to.
func (d *decoder) full(n ast.Node, v any, key string) {
	rv := reflect.ValueOf(v).Elem()
	if pairs, ok := d.mapping(n, key, "a mapping with the keys "+strings.Join(keysOf(rv.Type()), ", ")); ok {
		d.structOf(pairs, place(n), rv, key)
	}
}

// decodeNode reads a URL or the full form.
func (s *Start) decodeNode(d *decoder, n ast.Node, key string) {
	if d.isMapping(n) {
		d.full(n, s, key)
		return
	}
	s.At = place(n)
	s.URL, _ = d.scalar(n, key, "a URL, or a mapping with url or template")
}

// decodeNode reads a selector or the full form.
func (l *Link) decodeNode(d *decoder, n ast.Node, key string) {
	if d.isMapping(n) {
		d.full(n, l, key)
		return
	}
	l.At = place(n)
	l.CSS.decodeNode(d, n, key)
}

// decodeNode reads a selector or the full form.
func (x *Next) decodeNode(d *decoder, n ast.Node, key string) {
	if d.isMapping(n) {
		d.full(n, x, key)
		return
	}
	x.At = place(n)
	x.CSS.decodeNode(d, n, key)
}

// decodeNode reads a mapping of names to records and keeps its order.
func (rs *Records) decodeNode(d *decoder, n ast.Node, key string) {
	pairs, ok := d.mapping(n, key, "a mapping of record names to records")
	if !ok {
		return
	}
	for _, p := range pairs {
		r := Record{Name: p.key, At: p.at}
		d.full(p.node, &r, join(key, p.key))
		r.At = p.at
		*rs = append(*rs, r)
	}
}

// decodeNode reads a mapping of names to fields and keeps its order.
func (fs *Fields) decodeNode(d *decoder, n ast.Node, key string) {
	pairs, ok := d.mapping(n, key, "a mapping of field names to selectors")
	if !ok {
		return
	}
	for _, p := range pairs {
		f := Field{Name: p.key}
		d.into(p.node, reflect.ValueOf(&f).Elem(), join(key, p.key))
		f.At = p.at
		*fs = append(*fs, f)
	}
}

// decodeNode reads a selector, a list of sources to try in turn, or a
// mapping that holds the keys of a field and those of its only source.
func (f *Field) decodeNode(d *decoder, n ast.Node, key string) {
	if _, isList := d.plain(n).(*ast.SequenceNode); isList {
		d.into(n, reflect.ValueOf(&f.Any).Elem(), join(key, "any"))
		return
	}
	if !d.isMapping(n) {
		var s Source
		s.decodeNode(d, n, key)
		f.Any = []Source{s}
		return
	}
	pairs, ok := d.mapping(n, key, "a mapping")
	if !ok {
		return
	}
	fieldKeys, sourceKeys := keysOf(reflect.TypeFor[Field]()), keysOf(reflect.TypeFor[Source]())
	var own, source []pair
	for _, p := range pairs {
		switch {
		case slices.Contains(fieldKeys, p.key):
			own = append(own, p)
		case slices.Contains(sourceKeys, p.key):
			source = append(source, p)
		default:
			d.unknown(p, key, append(slices.Clone(sourceKeys), fieldKeys...))
		}
	}
	d.structOf(own, place(n), reflect.ValueOf(f).Elem(), key)
	if len(source) == 0 {
		return
	}
	if len(f.Any) > 0 {
		d.problemAt(source[0].at, join(key, source[0].key), "stands beside any; move it into the list under any")
		return
	}
	var s Source
	d.structOf(source, place(n), reflect.ValueOf(&s).Elem(), key)
	f.Any = []Source{s}
}

// decodeNode reads a selector or the full form.
func (s *Source) decodeNode(d *decoder, n ast.Node, key string) {
	if d.isMapping(n) {
		d.full(n, s, key)
		return
	}
	s.At = place(n)
	s.CSS.decodeNode(d, n, key)
}

// fill puts a number into a URL template.
func fill(template string, n int) string {
	return strings.ReplaceAll(template, "{n}", strconv.Itoa(n))
}

// PageURL is the URL of page n by the template, or "" without a template.
func (x *Next) PageURL(n int) string {
	if x.Template == "" {
		return ""
	}
	return fill(x.Template, n)
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
