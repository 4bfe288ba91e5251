package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"muster/internal/yamlstrict"
)

// maxFile is the maximum size of a settings file.
const maxFile = yamlstrict.MaxSize

// reader applies a parsed file to settings.
type reader struct {
	file    string
	byPath  map[string]setting
	origins map[string]Origin
	secrets *secrets
	errs    []error
}

// readYAML applies the content of the file and records the position of each value.
func (r *reader) readYAML(content []byte) {
	doc, err := yamlstrict.Parse(content)
	if err != nil {
		where := r.file
		if e, ok := errors.AsType[*yamlstrict.Error](err); ok && e.Line > 0 {
			where += ":" // line and column follow
		} else {
			where += ": "
		}
		r.errs = append(r.errs, fmt.Errorf("%s%w", where, err))
		return
	}
	if len(doc.Docs) > 1 {
		r.fail(doc.Docs[1].GetToken(), "multiple YAML documents; use one")
		return
	}
	if len(doc.Docs) == 1 && doc.Docs[0].Body != nil {
		r.section("", doc.Docs[0].Body)
	}
}

func (r *reader) fail(at *token.Token, format string, args ...any) {
	r.errs = append(r.errs, fmt.Errorf("%s: "+format, append([]any{r.at(at)}, args...)...))
}

func (r *reader) at(tok *token.Token) string {
	if tok == nil || tok.Position == nil {
		return r.file
	}
	return fmt.Sprintf("%s:%d:%d", r.file, tok.Position.Line, tok.Position.Column)
}

// section reads the mapping of the settings below prefix.
func (r *reader) section(prefix string, node ast.Node) {
	if _, empty := node.(*ast.NullNode); empty {
		return // a section without settings
	}
	entries, ok := r.entries(node)
	if !ok {
		r.fail(node.GetToken(), "%s: must be a mapping of settings, name: value", name(prefix))
		return
	}
	for _, e := range entries {
		path := prefix + e.key
		if s, ok := r.byPath[path]; ok {
			r.value(s, e)
			continue
		}
		if r.isSection(path) {
			r.section(path+".", e.value)
			continue
		}
		r.fail(e.at, "unknown setting %s%s", path, r.meant(prefix, e.key))
	}
}

func name(prefix string) string {
	if prefix == "" {
		return "the file"
	}
	return strings.TrimSuffix(prefix, ".")
}

func (r *reader) isSection(path string) bool {
	for p := range r.byPath {
		if strings.HasPrefix(p, path+".") {
			return true
		}
	}
	return false
}

// meant returns a suggestion for an unknown setting: a similar name in the same section, or the same name in another one.
func (r *reader) meant(prefix, key string) string {
	if prefix == "" && key == "dashboard" {
		return renamed
	}
	if prefix == "sites." && key == "alerts" {
		return alertsMoved
	}
	var siblings, matches []string
	for p := range r.byPath {
		if rest, ok := strings.CutPrefix(p, prefix); ok {
			first, _, _ := strings.Cut(rest, ".")
			siblings = append(siblings, first)
		}
		if p == key || strings.HasSuffix(p, "."+key) {
			matches = append(matches, p)
		}
	}
	if len(matches) == 1 {
		return ", did you mean " + matches[0] + "?"
	}
	if hint := meant(key, siblings); hint != "" {
		return hint
	}
	slices.Sort(siblings)
	return "; use one of " + strings.Join(slices.Compact(siblings), ", ")
}

type entry struct {
	key   string
	at    *token.Token
	value ast.Node
}

// entries returns the pairs of a mapping in the order of the file.
func (r *reader) entries(node ast.Node) ([]entry, bool) {
	var values []*ast.MappingValueNode
	switch n := node.(type) {
	case *ast.MappingNode:
		values = n.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{n}
	default:
		return nil, false
	}
	var out []entry
	for _, v := range values {
		if v.Key.IsMergeKey() {
			r.fail(v.Key.GetToken(), "merge keys are not supported")
			continue
		}
		out = append(out, entry{key: v.Key.GetToken().Value, at: v.Key.GetToken(), value: v.Value})
	}
	return out, true
}

// value sets one setting. A null value keeps the default.
func (r *reader) value(s setting, e entry) {
	if _, empty := e.value.(*ast.NullNode); empty {
		return
	}
	if s.secret() && !s.keepsReferences() {
		if n := len(r.errs); r.expand(s, e.value) && len(r.errs) > n {
			return
		}
	}
	err := r.set(s, e.value)
	if err != nil {
		r.fail(e.value.GetToken(), "%w", err)
		return
	}
	r.origins[s.path] = Origin{Kind: File, Where: r.at(e.at)}
}

func (r *reader) set(s setting, node ast.Node) error {
	switch {
	case s.isList():
		seq, ok := node.(*ast.SequenceNode)
		if !ok {
			return fmt.Errorf("%s: must be a list: [one, two], or one line \"- value\" per element", s.path)
		}
		if s.isObjects() {
			return s.setObjects(seq)
		}
		var values []string
		for _, item := range seq.Values {
			text, ok := scalar(item)
			if !ok || text == "" {
				return fmt.Errorf("%s: each element must be a nonempty string", s.path)
			}
			values = append(values, text)
		}
		return s.setList(values)
	case s.isMap():
		entries, ok := r.entries(node)
		if !ok {
			return fmt.Errorf("%s: must be a mapping, name: value", s.path)
		}
		pairs := map[string]string{}
		for _, e := range entries {
			text, ok := scalar(e.value)
			if !ok {
				return fmt.Errorf("%s.%s: must be a single value", s.path, e.key)
			}
			pairs[e.key] = text
		}
		return s.setPairs(pairs)
	}
	text, ok := scalar(node)
	if !ok {
		return fmt.Errorf("%s: must be a single value", s.path)
	}
	return s.set(text)
}

// scalar returns the string of a single value without quotes.
func scalar(node ast.Node) (string, bool) {
	switch n := node.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return n.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return n.GetToken().Value, true
	}
	return "", false
}
