package definition

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"muster/internal/yamlstrict"
)

// The types below have a short form, a string, and a full form, a mapping.

// nodeDecoder decodes itself from one of several forms.
type nodeDecoder interface {
	decodeNode(d *yamlstrict.Decoder, n ast.Node, key string)
}

// decodeNode reads a URL or the full form.
func (s *Start) decodeNode(d *yamlstrict.Decoder, n ast.Node, key string) {
	if d.IsMapping(n) {
		d.Full(n, s, key)
		return
	}
	s.At = yamlstrict.At(n)
	s.URL, _ = d.Scalar(n, key, "a URL, or a mapping with url or template")
}

// decodeNode reads a selector or the full form.
func (l *Link) decodeNode(d *yamlstrict.Decoder, n ast.Node, key string) {
	selectorOr(d, n, key, l, &l.At, &l.CSS, &l.Attr)
}

// decodeNode reads a selector or the full form.
func (x *Next) decodeNode(d *yamlstrict.Decoder, n ast.Node, key string) {
	selectorOr(d, n, key, x, &x.At, &x.CSS, &x.Attr)
}

// decodeNode reads a mapping of names to records and keeps their order.
func (rs *Records) decodeNode(d *yamlstrict.Decoder, n ast.Node, key string) {
	pairs, ok := d.Mapping(n, key, "a mapping of record names to records")
	if !ok {
		return
	}
	for _, p := range pairs {
		r := Record{Name: p.Key, At: p.At}
		d.Full(p.Node, &r, yamlstrict.Join(key, p.Key))
		r.At = p.At
		*rs = append(*rs, r)
	}
}

// decodeNode reads a mapping of names to fields and keeps their order.
func (fs *Fields) decodeNode(d *yamlstrict.Decoder, n ast.Node, key string) {
	pairs, ok := d.Mapping(n, key, "a mapping of field names to selectors")
	if !ok {
		return
	}
	for _, p := range pairs {
		f := Field{Name: p.Key}
		d.Into(p.Node, &f, yamlstrict.Join(key, p.Key))
		f.At = p.At
		*fs = append(*fs, f)
	}
}

// decodeNode reads a selector, a list of alternative sources, or a mapping with the keys of a field and of its only source.
func (f *Field) decodeNode(d *yamlstrict.Decoder, n ast.Node, key string) {
	if _, isList := d.Plain(n).(*ast.SequenceNode); isList {
		d.Into(n, &f.Any, yamlstrict.Join(key, "any"))
		return
	}
	if !d.IsMapping(n) {
		var s Source
		s.decodeNode(d, n, key)
		f.Any = []Source{s}
		return
	}
	pairs, ok := d.Mapping(n, key, "a mapping")
	if !ok {
		return
	}
	fieldKeys, sourceKeys := yamlstrict.KeysOf(reflect.TypeFor[Field]()), yamlstrict.KeysOf(reflect.TypeFor[Source]())
	var own, source []yamlstrict.Pair
	for _, p := range pairs {
		switch {
		case slices.Contains(fieldKeys, p.Key):
			own = append(own, p)
		case slices.Contains(sourceKeys, p.Key):
			source = append(source, p)
		default:
			d.Unknown(p, key, append(slices.Clone(sourceKeys), fieldKeys...))
		}
	}
	d.Struct(own, yamlstrict.At(n), f, key)
	if len(source) == 0 {
		return
	}
	if len(f.Any) > 0 {
		d.FailAt(source[0].At, yamlstrict.Join(key, source[0].Key), "is not allowed next to any; move it into the list under any")
		return
	}
	var s Source
	d.Struct(source, yamlstrict.At(n), &s, key)
	f.Any = []Source{s}
}

// decodeNode reads a selector or the full form.
func (s *Source) decodeNode(d *yamlstrict.Decoder, n ast.Node, key string) {
	selectorOr(d, n, key, s, &s.At, &s.CSS, &s.Attr)
}

// selectorOr reads the short form of a value, a selector, or its full form. The selector may name the attribute.
func selectorOr(d *yamlstrict.Decoder, n ast.Node, key string, full any, at *Pos, css *Selector, attr *string) {
	if d.IsMapping(n) {
		d.Full(n, full, key)
	} else {
		*at = yamlstrict.At(n)
		css.decodeNode(d, n, key)
	}
	*attr = cmp.Or(*attr, css.Attr)
}

// fill replaces {n} in a URL template.
func fill(template string, n int) string {
	return strings.ReplaceAll(template, "{n}", strconv.Itoa(n))
}

// PageURL returns the URL of page n by the template, or "" without a template.
func (x *Next) PageURL(n int) string {
	if x.Template == "" {
		return ""
	}
	return fill(x.Template, n)
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
