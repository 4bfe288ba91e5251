package yamlstrict

import (
	"cmp"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"muster/internal/nearest"
)

// Place is the position of a value.
type Place struct {
	At    Pos
	Short bool // a scalar, not a mapping or a list
	File  string
}

// Decoder decodes a parsed file into Go values. It works like yaml.Unmarshal in strict mode, but continues after an error to find all
// problems, and records the position of every value.
type Decoder struct {
	// Custom, if set, decodes values with several syntaxes. It receives a pointer to the value and reports whether it decodes
	// values of its type.
	Custom func(v any, n ast.Node, key string) bool
	// Removed has the ways out for unknown keys that earlier versions had, by path or, as *.key, at any place.
	Removed map[string]string
	// Elsewhere has the paths to suggest for unknown keys that exist at another place.
	Elsewhere map[string]string
	// Optional keeps the previous value where a file, or a key of a struct, has none. Without it, that is a problem.
	Optional bool
	Hide     bool   // values do not appear in problems; Custom may change it
	File     string // of the next document, for Problems and Places

	Problems Problems
	Places   map[string]Place // last positions of all keys

	anchors map[string]ast.Node
	depth   int
}

var (
	posType      = reflect.TypeFor[Pos]()
	durationType = reflect.TypeFor[time.Duration]()
)

// Decode decodes the only document in data into v, a pointer to a struct with yaml tags. It sets a field At of a type like Pos to the
// position of its mapping. It adds all errors to d.Problems and reports whether the document is a mapping. A further document
// overrides values of v.
func (d *Decoder) Decode(data []byte, v any) bool {
	root := d.Document(data)
	if root == nil {
		return false
	}
	d.Into(root, v, "")
	return d.IsMapping(root)
}

// Document returns the only document in data. It stops at the first syntax error.
func (d *Decoder) Document(data []byte) ast.Node {
	f, p := parse(data)
	if p != nil {
		d.FailAt(p.At, "", "not valid YAML: %s", p.Text)
		return nil
	}
	var docs []ast.Node
	for _, doc := range f.Docs {
		if d.Plain(doc.Body) != nil {
			docs = append(docs, doc.Body)
		}
	}
	switch len(docs) {
	case 0:
		if !d.Optional {
			d.FailAt(Pos{1, 1}, "", "the file is empty")
		}
		return nil
	case 1:
		return docs[0]
	}
	d.Fail(docs[1], "", "a second document in the file; write one per file")
	return nil
}

// Fail adds a problem with a node.
func (d *Decoder) Fail(n ast.Node, key, format string, args ...any) {
	d.FailAt(At(n), key, format, args...)
}

// FailAt adds a problem at a position.
func (d *Decoder) FailAt(at Pos, key, format string, args ...any) {
	d.Problems = append(d.Problems, &Problem{File: d.File, At: at, Key: key, Text: fmt.Sprintf(format, args...)})
}

// At returns the start of a node. For a block mapping, whose token in goccy is the first colon, it is the position of the first key.
func At(n ast.Node) Pos {
	for {
		switch m := n.(type) {
		case *ast.MappingNode:
			if len(m.Values) > 0 && !m.IsFlowStyle {
				n = m.Values[0]
				continue
			}
		case *ast.MappingValueNode:
			n = m.Key
			continue
		}
		break
	}
	if n == nil || n.GetToken() == nil || n.GetToken().Position == nil {
		return Pos{}
	}
	p := n.GetToken().Position
	return Pos{p.Line, p.Column}
}

// Plain returns the node to which an anchor, alias or tag refers, or nil for null.
func (d *Decoder) Plain(n ast.Node) ast.Node {
	for range MaxDepth {
		switch m := n.(type) {
		case *ast.AnchorNode:
			if d.anchors == nil {
				d.anchors = map[string]ast.Node{}
			}
			d.anchors[m.Name.GetToken().Value] = m.Value
			n = m.Value
		case *ast.AliasNode:
			to, ok := d.anchors[m.Value.GetToken().Value]
			if !ok { // the name can be a secret without quotes
				d.Fail(n, "", "no anchor before this alias; quote a text that begins with *")
				return nil
			}
			n = to
		case *ast.TagNode:
			n = m.Value
		case *ast.NullNode, nil:
			return nil
		default:
			return n
		}
	}
	d.Fail(n, "", "aliases nested too deeply")
	return nil
}

// Pair is one entry of a mapping, in the order of the file.
type Pair struct {
	Key  string
	At   Pos
	Node ast.Node
}

// Mapping returns the entries of n. If n is not a mapping, it adds a problem with the expected kind and returns false.
func (d *Decoder) Mapping(n ast.Node, key, want string) ([]Pair, bool) {
	var values []*ast.MappingValueNode
	switch m := d.Plain(n).(type) {
	case *ast.MappingNode:
		values = m.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{m}
	default:
		d.Fail(n, key, "want %s, got %s", want, kindOf(m))
		return nil, false
	}
	pairs := make([]Pair, 0, len(values))
	for _, v := range values {
		if _, merge := v.Key.(*ast.MergeKeyNode); merge {
			d.Fail(v.Key, key, "the merge key << is not supported; use an alias for a whole value instead")
			continue
		}
		pairs = append(pairs, Pair{v.Key.GetToken().Value, At(v.Key), v.Value})
	}
	return pairs, true
}

// list returns the elements of n; a scalar is a list of one element.
func (d *Decoder) list(n ast.Node) []ast.Node {
	switch m := d.Plain(n).(type) {
	case nil:
		return nil
	case *ast.SequenceNode:
		return m.Values
	}
	return []ast.Node{n}
}

// Scalar returns the string of a scalar. If n is not a scalar, it adds a problem with the expected kind and returns false.
func (d *Decoder) Scalar(n ast.Node, key, want string) (string, bool) {
	switch m := d.Plain(n).(type) {
	case *ast.StringNode:
		return m.Value, true
	case *ast.LiteralNode:
		return m.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return m.GetToken().Value, true
	default:
		d.Fail(n, key, "want %s, got %s", want, kindOf(m))
		return "", false
	}
}

// IsMapping reports whether n is a mapping.
func (d *Decoder) IsMapping(n ast.Node) bool {
	switch d.Plain(n).(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return true
	}
	return false
}

// IsScalar reports whether n is a string, number or boolean.
func (d *Decoder) IsScalar(n ast.Node) bool {
	switch d.Plain(n).(type) {
	case *ast.StringNode, *ast.LiteralNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return true
	}
	return false
}

func kindOf(n ast.Node) string {
	switch n.(type) {
	case nil, *ast.NullNode:
		return "nothing"
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.StringNode, *ast.LiteralNode:
		return "a text"
	case *ast.IntegerNode, *ast.FloatNode:
		return "a number"
	case *ast.BoolNode:
		return "true or false"
	}
	return "something else"
}

// Join returns the dotted path of a name below a key.
func Join(key, name string) string {
	if key == "" {
		return name
	}
	return key + "." + name
}

// Into decodes n into v, a pointer.
func (d *Decoder) Into(n ast.Node, v any, key string) { d.into(n, reflect.ValueOf(v).Elem(), key) }

func (d *Decoder) into(n ast.Node, v reflect.Value, key string) {
	if d.depth++; d.depth > MaxDepth {
		d.depth--
		d.Fail(n, key, "nested too deeply")
		return
	}
	defer func() { d.depth-- }()
	if d.Places == nil {
		d.Places = map[string]Place{}
	}
	d.Places[key] = Place{At(n), d.IsScalar(n), d.File}

	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		v = v.Elem()
	}
	if d.Custom != nil && d.Custom(v.Addr().Interface(), n, key) {
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		d.Full(n, v.Addr().Interface(), key)
	case reflect.Slice:
		v.SetZero() // a list replaces a previous value
		for i, m := range d.list(n) {
			e := reflect.New(v.Type().Elem()).Elem()
			d.into(m, e, fmt.Sprintf("%s[%d]", key, i))
			v.Set(reflect.Append(v, e))
		}
	case reflect.Map:
		d.mapOf(n, v, key)
	default:
		d.single(n, v, key)
	}
}

func (d *Decoder) mapOf(n ast.Node, v reflect.Value, key string) {
	pairs, ok := d.Mapping(n, key, "a mapping of names to texts")
	if !ok {
		return
	}
	v.SetZero() // as for an empty list
	for _, p := range pairs {
		if v.IsNil() {
			v.Set(reflect.MakeMap(v.Type()))
		}
		e := reflect.New(v.Type().Elem()).Elem()
		d.into(p.Node, e, Join(key, p.Key))
		v.SetMapIndex(reflect.ValueOf(p.Key), e)
	}
}

// single decodes a string, a number, a boolean or a duration.
func (d *Decoder) single(n ast.Node, v reflect.Value, key string) {
	want := map[reflect.Kind]string{reflect.String: "a text", reflect.Bool: "true or false", reflect.Int: "a whole number", reflect.Int64: "a whole number", reflect.Float64: "a number"}[v.Kind()]
	if v.Type() == durationType {
		want = "a duration such as 1.5s"
	}
	if want == "" {
		panic("yamlstrict: no way to decode a " + v.Type().String())
	}
	s, ok := d.Scalar(n, key, want)
	if !ok {
		return
	}
	var value any = s
	var err error
	switch {
	case v.Type() == durationType:
		value, err = Duration(s)
		want += ", 200ms or 2m"
	case v.Kind() == reflect.Bool:
		value = s == "true"
		if s != "true" && s != "false" {
			err = strconv.ErrSyntax
		}
	case v.Kind() == reflect.Float64:
		value, err = strconv.ParseFloat(s, 64)
	case v.Kind() != reflect.String:
		value, err = strconv.ParseInt(strings.ReplaceAll(s, "_", ""), 10, 64)
	}
	if err != nil {
		got := strconv.Quote(s)
		if d.Hide {
			got = kindOf(d.Plain(n))
		}
		d.Fail(n, key, "want %s, got %s", want, got)
		return
	}
	v.Set(reflect.ValueOf(value).Convert(v.Type()))
}

// Duration parses a number of seconds or a Go duration. It rejects negative ones.
func Duration(s string) (time.Duration, error) {
	if secs, err := strconv.ParseFloat(s, 64); err == nil && secs >= 0 && secs < 1e9 {
		return time.Duration(secs * float64(time.Second)), nil
	}
	t, err := time.ParseDuration(s)
	if err == nil && t < 0 {
		err = strconv.ErrRange
	}
	return t, err
}

// Full decodes a mapping into the struct that v points to.
func (d *Decoder) Full(n ast.Node, v any, key string) {
	if pairs, ok := d.Mapping(n, key, "a mapping with the keys "+strings.Join(KeysOf(reflect.TypeOf(v).Elem()), ", ")); ok {
		d.Struct(pairs, At(n), v, key)
	}
}

// Struct sets the fields of the struct that to points to from the entries of a mapping at a position, by their yaml tags.
func (d *Decoder) Struct(pairs []Pair, at Pos, to any, key string) {
	v := reflect.ValueOf(to).Elem()
	byName := map[string][]int{}
	for _, f := range reflect.VisibleFields(v.Type()) { // also of embedded structs
		if name := nameOf(f); name != "" {
			byName[name] = f.Index
		}
		if f.Name == "At" && posType.ConvertibleTo(f.Type) {
			v.FieldByIndex(f.Index).Set(reflect.ValueOf(at).Convert(f.Type))
		}
	}
	for _, p := range pairs {
		at, ok := byName[p.Key]
		if !ok {
			d.Unknown(p, key, KeysOf(v.Type()))
			continue
		}
		if d.Plain(p.Node) == nil {
			if !d.Optional {
				d.FailAt(p.At, Join(key, p.Key), "has no value; give one or take the key out")
			}
			continue
		}
		d.into(p.Node, v.FieldByIndex(at), Join(key, p.Key))
	}
}

// Unknown adds a problem for an unknown key, with the most similar known key.
func (d *Decoder) Unknown(p Pair, key string, known []string) {
	if instead := cmp.Or(d.Removed[Join(key, p.Key)], d.Removed["*."+p.Key]); instead != "" {
		d.FailAt(p.At, key, "the key %s was removed: %s", p.Key, instead)
		return
	}
	if n := cmp.Or(nearest.Word(p.Key, known), d.Elsewhere[p.Key]); n != "" {
		d.FailAt(p.At, key, "unknown key %q; did you mean %q?", p.Key, n)
		return
	}
	d.FailAt(p.At, key, "unknown key %q; known here: %s", p.Key, strings.Join(known, ", "))
}

// KeysOf lists the yaml keys of a struct type.
func KeysOf(t reflect.Type) []string {
	var names []string
	for _, f := range reflect.VisibleFields(t) {
		if name := nameOf(f); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// nameOf returns the key of a field; "" for none.
func nameOf(f reflect.StructField) string {
	if name := f.Tag.Get("yaml"); name != "-" && !f.Anonymous {
		return name
	}
	return ""
}
