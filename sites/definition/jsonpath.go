package definition

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"muster/internal/yamlstrict"
)

// Path is a path in a JSON document: names and indexes joined by dots, with [*] or [] for every member of a list and -1 for the
// last one. A leading $ is optional. Examples: "data.items[*].price", "$.quotes[0].text".
type Path struct {
	Text  string
	At    Pos
	steps []step
}

type step struct {
	name  string
	index int
	kind  stepKind
}

type stepKind int

const (
	byName stepKind = iota
	byIndex
	every
)

// IsZero reports whether the path is unset.
func (p Path) IsZero() bool { return p.Text == "" }

// quotedName matches a quoted name in brackets, which may contain any character.
var (
	quotedName = regexp.MustCompile(`^\[\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)')\s*\]`)
	unescape   = strings.NewReplacer(`\\`, `\`, `\"`, `"`, `\'`, `'`)
)

// ParsePath compiles a path.
func ParsePath(text string) (Path, error) {
	p := Path{Text: text}
	rest := strings.TrimPrefix(strings.TrimSpace(text), "$")
	bad := func(why string) (Path, error) {
		return Path{}, fmt.Errorf("bad JSON path %q: %s; write it like data.items[*].price", text, why)
	}
	for first := true; rest != ""; first = false {
		if rest[0] == '[' {
			if m := quotedName.FindStringSubmatch(rest); m != nil {
				rest = rest[len(m[0]):]
				p.steps = append(p.steps, step{name: unescape.Replace(m[1] + m[2])})
				continue
			}
			end := strings.IndexByte(rest, ']')
			if end < 0 {
				return bad("[ without ]")
			}
			in := strings.TrimSpace(rest[1:end])
			rest = rest[end+1:]
			if in == "" || in == "*" {
				p.steps = append(p.steps, step{kind: every})
				continue
			}
			i, err := strconv.Atoi(in)
			if err != nil {
				return bad("[" + in + "] is neither an index nor *")
			}
			p.steps = append(p.steps, step{kind: byIndex, index: i})
			continue
		}
		if rest[0] == '.' {
			rest = rest[1:]
		} else if !first {
			return bad("a dot is missing before " + strconv.Quote(rest))
		}
		end := strings.IndexAny(rest, ".[")
		if end < 0 {
			end = len(rest)
		}
		name := rest[:end]
		if rest = rest[end:]; name == "" {
			return bad("an empty name")
		}
		if name == "*" {
			p.steps = append(p.steps, step{kind: every})
			continue
		}
		p.steps = append(p.steps, step{name: name})
	}
	return p, nil
}

// Eval returns the values at the path in v, a document decoded by encoding/json, or nil if the path does not exist. A name
// applied to a list is looked up in each member.
func (p Path) Eval(v any) []any {
	now := []any{v}
	for _, s := range p.steps {
		var next []any
		for _, v := range now {
			next = s.from(next, v)
		}
		now = next
	}
	return now
}

// Up returns the parent path and the last name, or "" if the path does not end in a name.
func (p Path) Up() (Path, string) {
	n := len(p.steps) - 1
	if n < 0 || p.steps[n].kind != byName {
		return Path{}, ""
	}
	return Path{Text: p.Text, At: p.At, steps: p.steps[:n]}, p.steps[n].name
}

// Members evaluates the path to the members of a list, whether or not the path ends in [*].
func (p Path) Members(v any) []any {
	found := p.Eval(v)
	if n := len(p.steps); n > 0 && p.steps[n-1].kind == every {
		return found
	}
	return Spread(found)
}

// Spread replaces lists in vs by their members.
func Spread(vs []any) []any {
	var out []any
	for _, v := range vs {
		if list, ok := v.([]any); ok {
			out = append(out, list...)
		} else {
			out = append(out, v)
		}
	}
	return out
}

func (s step) from(out []any, v any) []any {
	switch v := v.(type) {
	case map[string]any:
		switch s.kind {
		case byName:
			if m, ok := v[s.name]; ok {
				out = append(out, m)
			}
		case every:
			for _, k := range sortedKeys(v) {
				out = append(out, v[k])
			}
		}
	case []any:
		switch s.kind {
		case byIndex:
			i := s.index
			if i < 0 {
				i += len(v)
			}
			if i >= 0 && i < len(v) {
				out = append(out, v[i])
			}
		case every:
			out = append(out, v...)
		case byName:
			for _, m := range v {
				if _, isList := m.([]any); !isList {
					out = s.from(out, m)
				}
			}
		}
	}
	return out
}

func (p *Path) decodeNode(d *yamlstrict.Decoder, n ast.Node, key string) {
	if path, ok := parsed(d, n, key, "a JSON path", ParsePath); ok {
		*p = path
		p.At = yamlstrict.At(n)
	}
}
