package definition

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"muster/internal/nearest"
	"muster/internal/yamlstrict"
)

// decoder walks a parsed YAML file into Go values. It does what
// yaml.Unmarshal in strict mode does, but goes on after an error, so that
// one run names everything that is wrong, and keeps the place of every value
// for the checks that come later.
type decoder struct {
	file     string
	problems Problems
	anchors  map[string]ast.Node
	places   map[string]written // of every key that the file has
	depth    int
}

// maxNesting bounds aliases that contain themselves and files made to
// exhaust the stack.
const maxNesting = 64

// nodeDecoder is a value that reads itself, because it can be written in
// more than one way.
type nodeDecoder interface {
	decodeNode(d *decoder, n ast.Node, key string)
}

var (
	posType      = reflect.TypeFor[Pos]()
	durationType = reflect.TypeFor[time.Duration]()
)

// parse reads the one document of data. A syntax error ends it at once.
func (d *decoder) parse(data []byte) ast.Node {
	f, err := yamlstrict.Parse(data)
	if err != nil {
		p := &Problem{File: d.file, At: Pos{1, 1}, Text: "not valid YAML: " + err.Error()}
		if e, ok := errors.AsType[*yamlstrict.Error](err); ok && e.Line > 0 {
			p.At, p.Text = Pos{e.Line, e.Column}, "not valid YAML: "+e.Message
		}
		d.problems = append(d.problems, p)
		return nil
	}
	var docs []ast.Node
	for _, doc := range f.Docs {
		if doc.Body != nil {
			docs = append(docs, doc.Body)
		}
	}
	switch len(docs) {
	case 0:
		d.problems = append(d.problems, &Problem{File: d.file, At: Pos{1, 1}, Text: "the file is empty; see sites/definition/example.yaml for what belongs in it"})
		return nil
	case 1:
		return docs[0]
	}
	d.fail(docs[1], "", "a second document in the file; write one definition per file")
	return nil
}

func (d *decoder) fail(n ast.Node, key, format string, args ...any) {
	d.problems = append(d.problems, &Problem{File: d.file, At: place(n), Key: key, Text: fmt.Sprintf(format, args...)})
}

// problemAt notes what is wrong with a key: where its value stands in the
// file, or at the place given when that is nearer or the key is not there.
func (d *decoder) problemAt(at Pos, key, format string, args ...any) {
	if w, ok := d.places[key]; ok && (w.at.Line > at.Line || w.at.Line == at.Line && w.at.Col > at.Col) {
		at = w.at
	}
	d.problems = append(d.problems, &Problem{File: d.file, At: at, Key: key, Text: fmt.Sprintf(format, args...)})
}

// place is where a node begins. goccy's token of a block mapping is its
// first colon, so the key is asked instead.
func place(n ast.Node) Pos {
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

// plain follows anchors, aliases and tags to the node they stand for, and
// returns nil for null.
func (d *decoder) plain(n ast.Node) ast.Node {
	for range maxNesting {
		switch m := n.(type) {
		case *ast.AnchorNode:
			if d.anchors == nil {
				d.anchors = map[string]ast.Node{}
			}
			d.anchors[m.Name.GetToken().Value] = m.Value
			n = m.Value
		case *ast.AliasNode:
			name := m.Value.GetToken().Value
			to, ok := d.anchors[name]
			if !ok {
				d.fail(n, "", "no anchor &%s before this alias", name)
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
	d.fail(n, "", "aliases nested too deeply")
	return nil
}

// pair is one entry of a mapping, in the order of the file.
type pair struct {
	key  string
	at   Pos
	node ast.Node
}

// mapping returns the entries of n, or says what was expected and false.
func (d *decoder) mapping(n ast.Node, key, want string) ([]pair, bool) {
	var values []*ast.MappingValueNode
	switch m := d.plain(n).(type) {
	case *ast.MappingNode:
		values = m.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{m}
	default:
		d.fail(n, key, "want %s, got %s", want, kindOf(m))
		return nil, false
	}
	pairs := make([]pair, 0, len(values))
	for _, v := range values {
		if _, merge := v.Key.(*ast.MergeKeyNode); merge {
			d.fail(v.Key, key, "the merge key << is not supported; use an alias for a whole value instead")
			continue
		}
		pairs = append(pairs, pair{v.Key.GetToken().Value, place(v.Key), v.Value})
	}
	return pairs, true
}

// list returns the members of n; a single value counts as a list of one.
func (d *decoder) list(n ast.Node) []ast.Node {
	switch m := d.plain(n).(type) {
	case nil:
		return nil
	case *ast.SequenceNode:
		return m.Values
	}
	return []ast.Node{n}
}

// scalar is the text of a single value, or says what was expected and false.
func (d *decoder) scalar(n ast.Node, key, want string) (string, bool) {
	switch m := d.plain(n).(type) {
	case *ast.StringNode:
		return m.Value, true
	case *ast.LiteralNode:
		return m.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return m.GetToken().Value, true
	default:
		d.fail(n, key, "want %s, got %s", want, kindOf(m))
		return "", false
	}
}

// isScalar tells whether n is a single text, number or truth.
func (d *decoder) isScalar(n ast.Node) bool {
	switch d.plain(n).(type) {
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

func join(key, name string) string {
	if key == "" {
		return name
	}
	return key + "." + name
}

// into decodes n into v, which must be settable.
func (d *decoder) into(n ast.Node, v reflect.Value, key string) {
	if d.depth++; d.depth > maxNesting {
		d.depth--
		d.fail(n, key, "nested too deeply")
		return
	}
	defer func() { d.depth-- }()
	d.places[key] = written{place(n), d.isScalar(n)}

	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	if nd, ok := v.Addr().Interface().(nodeDecoder); ok {
		nd.decodeNode(d, n, key)
		return
	}
	if v.Type() == durationType {
		d.duration(n, v, key)
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		if pairs, ok := d.mapping(n, key, "a mapping with the keys "+strings.Join(keysOf(v.Type()), ", ")); ok {
			d.structOf(pairs, place(n), v, key)
		}
	case reflect.Slice:
		for i, m := range d.list(n) {
			e := reflect.New(v.Type().Elem()).Elem()
			d.into(m, e, fmt.Sprintf("%s[%d]", key, i))
			v.Set(reflect.Append(v, e))
		}
	case reflect.Map:
		pairs, ok := d.mapping(n, key, "a mapping of names to texts")
		if !ok {
			return
		}
		v.Set(reflect.MakeMap(v.Type()))
		for _, p := range pairs {
			e := reflect.New(v.Type().Elem()).Elem()
			d.into(p.node, e, join(key, p.key))
			v.SetMapIndex(reflect.ValueOf(p.key), e)
		}
	case reflect.String:
		if s, ok := d.scalar(n, key, "a text"); ok {
			v.SetString(s)
		}
	case reflect.Bool:
		if s, ok := d.scalar(n, key, "true or false"); ok {
			b, err := strconv.ParseBool(s)
			if err != nil || (s != "true" && s != "false") {
				d.fail(n, key, "want true or false, got %q", s)
			}
			v.SetBool(b)
		}
	case reflect.Int, reflect.Int64:
		if s, ok := d.scalar(n, key, "a whole number"); ok {
			i, err := strconv.ParseInt(strings.ReplaceAll(s, "_", ""), 10, 64)
			if err != nil {
				d.fail(n, key, "want a whole number, got %q", s)
			}
			v.SetInt(i)
		}
	case reflect.Float64:
		if s, ok := d.scalar(n, key, "a number"); ok {
			f, err := strconv.ParseFloat(s, 64)
			if err != nil {
				d.fail(n, key, "want a number, got %q", s)
			}
			v.SetFloat(f)
		}
	default:
		panic("definition: no way to decode a " + v.Type().String())
	}
}

// structOf fills the fields of v by their yaml tags. A field of type Pos
// gets the place of the mapping.
func (d *decoder) structOf(pairs []pair, at Pos, v reflect.Value, key string) {
	byName := map[string]int{}
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if name := f.Tag.Get("yaml"); name != "" {
			byName[name] = i
		}
		if f.Type == posType {
			v.Field(i).Set(reflect.ValueOf(at))
		}
	}
	for _, p := range pairs {
		i, ok := byName[p.key]
		if !ok {
			d.unknown(p, key, keysOf(v.Type()))
			continue
		}
		if d.plain(p.node) == nil {
			d.problemAt(p.at, join(key, p.key), "has no value; give one or take the key out")
			continue
		}
		d.into(p.node, v.Field(i), join(key, p.key))
	}
}

func (d *decoder) unknown(p pair, key string, known []string) {
	if n := nearest.Word(p.key, known); n != "" {
		d.problemAt(p.at, key, "unknown key %q; did you mean %q?", p.key, n)
		return
	}
	d.problemAt(p.at, key, "unknown key %q; known here: %s", p.key, strings.Join(known, ", "))
}

// keysOf lists the yaml keys of a struct type.
func keysOf(t reflect.Type) []string {
	var names []string
	for i := range t.NumField() {
		if name := t.Field(i).Tag.Get("yaml"); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// duration reads 1.5s, 200ms, 2m, or a bare number of seconds.
func (d *decoder) duration(n ast.Node, v reflect.Value, key string) {
	s, ok := d.scalar(n, key, "a duration such as 1.5s")
	if !ok {
		return
	}
	if secs, err := strconv.ParseFloat(s, 64); err == nil && secs >= 0 && secs < 1e9 {
		v.SetInt(int64(secs * float64(time.Second)))
		return
	}
	dur, err := time.ParseDuration(s)
	if err != nil || dur < 0 {
		d.fail(n, key, "want a duration such as 1.5s, 200ms or 2m, got %q", s)
		return
	}
	v.SetInt(int64(dur))
}
