package layers

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"muster/internal/testutil"
)

//go:generate go test -run TestRedisKeysPage -update .

var update = flag.Bool("update", false, "write docs/reference/redis-keys.md")

const keysHead = `# Redis keys

Made by ` + "`go generate ./scripts/layers`" + ` from the files ` + "`keys.go`" + `, which have the members and the expiry of each key. Braces are hash
tags: keys with the same tag are in one slot of a cluster. Names in angle brackets are placeholders. ` + "`<namespace>`" + ` is *muster* by default.

Only the progress keys are for other programs: ` + "`proxy_refresh:<id>:<name>`" + ` of a refresh, ` + "`scrape_<site>:<id>:<name>`" + ` of a scrape, and
keys of ` + "`tasks.ProgressKeys`" + `. They are strings that expire an hour after their last change; names are ` + "`total_chunks`, `completed_chunks`, `status`,\n`started_at`, `completed_at` (Unix seconds) and `result_count`" + `. All others may change with a release: use the HTTP API or
` + "`tasks.Client`" + `.
`

// docs/reference/redis-keys.md lists the keys of all packages with the comments of their functions. go generate writes it.
func TestRedisKeysPage(t *testing.T) {
	t.Parallel()
	var page bytes.Buffer
	page.WriteString(keysHead)
	keys := 0
	for _, f := range goFiles(t) {
		if path.Base(f.path) != "keys.go" || f.Name.Name == "main" {
			continue
		}
		fmt.Fprintf(&page, "\n## %s\n\n", path.Dir(f.path))
		for _, k := range redisKeys(t, f) {
			keys++
			fmt.Fprintf(&page, "* %s: %s\n", k.names, k.doc)
		}
	}
	if keys < 100 {
		t.Errorf("found only %d keys; is the parser correct?", keys)
	}
	testutil.Page(t, "../../docs/reference/redis-keys.md", page.Bytes(), *update, "go generate ./scripts/layers")
}

// redisKey is a key, or several with a common description.
type redisKey struct{ names, doc string }

// redisKeys returns the keys in a keys.go: results of functions, constants, and fields of a struct of keys.
func redisKeys(t *testing.T, f goFile) (keys []redisKey) {
	t.Helper()
	k := newKeyNames(f)
	add := func(name string, doc *ast.CommentGroup, values []string) {
		if len(values) == 0 || !strings.Contains(values[0], ":") || strings.HasSuffix(values[0], ":") || slices.Contains([]string{"prefix", "queueName", "all", "AsynqQueue"}, name) {
			return
		}
		names := "`" + strings.Join(values, "`, `") + "`"
		switch {
		case doc != nil:
			keys = append(keys, redisKey{names, k.named(keyDoc(name, doc.Text()))})
		case len(keys) > 0 && strings.Contains(keys[len(keys)-1].doc, "below"):
			keys[len(keys)-1].names += ", " + names
		default:
			t.Errorf("%s: %s has no comment: describe type, members and expiry", f.path, name)
		}
	}
	for _, decl := range f.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if text := d.Type.Results; text != nil && d.Name.Name != "newKeys" && (d.Recv != nil || k.funcs[d.Name.Name] == d) {
				add(d.Name.Name, d.Doc, k.call(d, nil))
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.ValueSpec:
					add(s.Names[0].Name, d.Doc, k.values(s.Values[0], nil))
				case *ast.TypeSpec:
					if fields, ok := s.Type.(*ast.StructType); ok {
						for _, field := range fields.Fields.List {
							if value, ok := k.fields[field.Names[0].Name]; ok {
								add(field.Names[0].Name, field.Comment, []string{value})
							}
						}
					}
				}
			}
		}
	}
	return keys
}

// keyDoc returns the first sentence of the comment of a key function as Markdown. The comment has the members and the expiry.
func keyDoc(name, text string) string {
	text = regexp.MustCompile(`^(?:The keys|`+name+`)(?: is,?| are,?| and)? `).ReplaceAllString(strings.TrimSpace(text), "")
	text, _, _ = strings.Cut(text, "\n\n")
	text, _, _ = strings.Cut(strings.ReplaceAll(text, "\n", " "), ". ")
	return strings.NewReplacer("*", `\*`, "<", `\<`, "_", `\_`).Replace(strings.TrimRight(text, ".:"))
}

// named replaces the names of key functions in a text with their keys.
func (k keyNames) named(text string) string {
	return regexp.MustCompile(`\b\w+Key\b`).ReplaceAllStringFunc(text, func(name string) string {
		if d := k.funcs[name]; d != nil {
			return "`" + strings.Join(k.call(d, nil), "`, `") + "`"
		}
		return name
	})
}

// keyNames evaluates the functions of a file, with <name> for a parameter.
type keyNames struct {
	funcs  map[string]*ast.FuncDecl
	consts map[string]ast.Expr
	fields map[string]string // fields of the struct that newKeys returns
}

func newKeyNames(f goFile) keyNames {
	k := keyNames{map[string]*ast.FuncDecl{}, map[string]ast.Expr{}, map[string]string{}}
	for _, decl := range f.Decls {
		if d, ok := decl.(*ast.FuncDecl); ok && d.Type.Results != nil {
			k.funcs[d.Name.Name] = d
		} else if d, ok := decl.(*ast.GenDecl); ok && d.Tok == token.CONST {
			for _, spec := range d.Specs {
				k.consts[spec.(*ast.ValueSpec).Names[0].Name] = spec.(*ast.ValueSpec).Values[0]
			}
		}
	}
	if d := k.funcs["newKeys"]; d != nil {
		env := k.locals(d, nil)
		list := d.Body.List[len(d.Body.List)-1].(*ast.ReturnStmt).Results[0].(*ast.CompositeLit)
		for _, e := range list.Elts {
			name, value := "prefix", e
			if kv, ok := e.(*ast.KeyValueExpr); ok {
				name, value = kv.Key.(*ast.Ident).Name, kv.Value
			}
			k.fields[name], _ = k.value(value, env)
		}
	}
	return k
}

// locals returns the variables of a function and its parameters, with the values args or <name>.
func (k keyNames) locals(d *ast.FuncDecl, args []string) map[string]string {
	env := map[string]string{}
	for _, p := range d.Type.Params.List {
		for _, name := range p.Names {
			env[name.Name] = "<" + name.Name + ">"
			if len(env) <= len(args) {
				env[name.Name] = args[len(env)-1]
			}
		}
	}
	if d.Recv != nil { // keys of a namespace
		env[d.Recv.List[0].Names[0].Name] = "<namespace>"
	}
	for _, s := range d.Body.List {
		if a, ok := s.(*ast.AssignStmt); ok {
			if name, ok := a.Lhs[0].(*ast.Ident); ok {
				env[name.Name], _ = k.value(a.Rhs[0], env)
			}
		}
	}
	return env
}

// call returns the strings that a function returns, or none if they are unknown.
func (k keyNames) call(d *ast.FuncDecl, args []string) []string {
	if last, ok := d.Body.List[len(d.Body.List)-1].(*ast.ReturnStmt); ok {
		return k.values(last.Results[0], k.locals(d, args))
	}
	return nil
}

func (k keyNames) values(e ast.Expr, env map[string]string) (out []string) {
	list := []ast.Expr{e}
	if c, ok := e.(*ast.CompositeLit); ok {
		list = c.Elts
	}
	for _, e := range list {
		value, ok := k.value(e, env)
		if !ok {
			return nil
		}
		out = append(out, value)
	}
	return out
}

// value evaluates an expression to a string. The value of a call of another package is its first argument or its receiver.
func (k keyNames) value(e ast.Expr, env map[string]string) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, err == nil && e.Kind == token.STRING
	case *ast.Ident:
		if value, ok := env[e.Name]; ok {
			return value, true
		}
		if c := k.consts[e.Name]; c != nil {
			return k.value(c, nil)
		}
	case *ast.BinaryExpr:
		left, ok := k.value(e.X, env)
		right, ok2 := k.value(e.Y, env)
		return left + right, ok && ok2
	case *ast.SelectorExpr:
		value, ok := k.fields[e.Sel.Name]
		return value, ok
	case *ast.SliceExpr:
		return k.value(e.X, env)
	case *ast.IndexExpr: // of a table of names
		return k.value(e.Index, env)
	case *ast.CallExpr:
		return k.called(e, env)
	}
	return "", false
}

func (k keyNames) called(e *ast.CallExpr, env map[string]string) (string, bool) {
	var args []string
	for _, a := range e.Args {
		value, _ := k.value(a, env)
		args = append(args, value)
	}
	switch fun := e.Fun.(type) {
	case *ast.Ident:
		if d := k.funcs[fun.Name]; d != nil {
			out := k.call(d, args)
			return strings.Join(out, ""), len(out) == 1
		}
	case *ast.SelectorExpr:
		if x, ok := fun.X.(*ast.Ident); fun.Sel.Name == "Sprintf" && ok && x.Name == "fmt" {
			for _, arg := range args[1:] {
				args[0] = regexp.MustCompile(`%\w+`).ReplaceAllLiteralString(args[0], arg)
			}
			return args[0], true
		}
		if d := k.funcs[fun.Sel.Name]; d != nil && d.Recv != nil {
			out := k.call(d, args)
			return strings.Join(out, ""), len(out) == 1
		}
		if root, ok := calledOn(fun).(*ast.Ident); ok && env[root.Name] != "" {
			return env[root.Name], true
		}
	}
	return strings.Join(args[:min(1, len(args))], ""), slices.ContainsFunc(args[:min(1, len(args))], func(s string) bool { return s != "" })
}

// calledOn returns the receiver of the first call in a chain.
func calledOn(e ast.Expr) ast.Expr {
	switch x := e.(type) {
	case *ast.SelectorExpr:
		return calledOn(x.X)
	case *ast.CallExpr:
		return calledOn(x.Fun)
	}
	return e
}
