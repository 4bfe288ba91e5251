package definition

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/internal/testutil"
)

var update = flag.Bool("update", false, "write docs/reference/site-definition.md")

const keysHead = `# Keys of a site definition

Made by ` + "`go generate ./sites/definition`" + ` from the program and [example.yaml](../../sites/definition/example.yaml), which explains all keys in full.
[Site definitions](../../sites/README.md) is the guide.

In parentheses are the type of a key, unless it is a text, or its valid values, then its default. A list of one member needs no brackets.
Durations are ` + "`1.5s`, `2m`" + ` or a bare number of seconds, sizes ` + "`500kB`" + ` or ` + "`16MiB`" + `, and regexes have Go's syntax (RE2).
`

// section is a part of a definition with the keys of a struct.
type section struct {
	name  string
	at    string // its path in the example
	value any    // with the defaults
}

// sections are all parts, in the order of the page.
func sections(t *testing.T) []section {
	t.Helper()
	def, err := Parse("bare.yaml", []byte(`
site: s
base_url: http://s.example
start: [{template: '/{n}'}]
listing: {next: {template: '/{n}'}, links: [a]}
records: {r: {fields: {f: {any: [h1]}}}}
session: {}
`))
	testutil.Ok(t, err)
	def.Hosts, def.Start[0].Template, def.Listing.Next.Template = nil, "", ""
	record := def.Records[0]
	record.Fields[0].Locale = "" // inherited from the site
	const field = "records.product.fields.price"
	return []section{
		{"general", "", *def},
		{"scope", "scope", def.Scope},
		{"start", "start", def.Start[0]},
		{"listing", "listing", def.Listing},
		{"next", "listing.next", *def.Listing.Next},
		{"links", "listing.links", def.Listing.Links[0]},
		{"detail", "detail", def.Detail},
		{"records", "records.product", record},
		{"field", field, record.Fields[0]},
		{"source", field + ".any", record.Fields[0].Any[0]},
		{"replace", field + ".any.replace", Swap{}},
		{"session", "session", *def.Session},
		{"login", "session.login", Login{}},
		{"politeness", "politeness", def.Politeness},
		{"limits", "limits", def.Limits},
		{"retries", "retries", def.Retries},
		{"blocks", "blocks", def.Blocks},
		{"proxy", "proxy", def.Proxy},
		{"render", "render", def.Render},
		{"extractor", "extractor", def.Extractor},
	}
}

// docs/reference/site-definition.md lists every key with its explanation in example.yaml. go generate writes it.
func TestKeysPage(t *testing.T) {
	t.Parallel()
	remarks, used := testutil.Remarks(t, "example.yaml")
	required := requiredKeys()
	var page bytes.Buffer
	page.WriteString(keysHead)
	all := sections(t)
	known := map[string]bool{} // paths in the example
	for _, s := range all {
		fmt.Fprintf(&page, "\n## %s\n", s.name)
		if at := named(s.at); at != "" && at != s.name {
			fmt.Fprintf(&page, "\nAt `%s`%s.\n", at, also[s.name])
		} else if required[s.name] {
			page.WriteString("\nRequired.\n")
		}
		page.WriteString("\n" + strings.TrimLeft(testutil.Item(remarks[strings.TrimSuffix(s.at, ".product")])+"\n\n", "\n"))
		v := reflect.ValueOf(s.value)
		for _, f := range reflect.VisibleFields(v.Type()) {
			key, v := f.Tag.Get("yaml"), v.FieldByIndex(f.Index)
			if key == "" {
				continue
			}
			path := strings.TrimPrefix(s.at+"."+key, ".")
			known[path] = true
			if s.name == "detail" || slices.ContainsFunc(all, func(other section) bool {
				return reflect.TypeOf(other.value) == memberType(f.Type) && f.Type.Name() != "Fields"
			}) {
				continue // the section listing, or a separate one
			}
			text := remarks[path]
			about := facts(t, f, v, required[named(path)])
			if _, value, ok := strings.Cut(strings.TrimSuffix(about, "`)"), "`"); ok && !strings.Contains(value, "`") { // the facts have it
				text = strings.Replace(text, " Default: "+value+".\n", "\n", 1)
			}
			if strings.TrimSpace(text) == "" {
				t.Errorf("example.yaml does not explain %s", path)
			}
			fmt.Fprintf(&page, "* `%s`%s: %s\n", key, about, testutil.Item(text))
		}
	}
	for path := range remarks {
		if !used[path] && !known[path] {
			t.Errorf("example.yaml explains %s, which is not a key", path)
		}
	}
	testutil.Page(t, "../../docs/reference/site-definition.md", page.Bytes(), *update, "go generate ./sites/definition")
}

// named returns a path of the example with NAME instead of the example's names.
func named(path string) string {
	return strings.NewReplacer("records.product", "records.NAME", "fields.price", "fields.NAME").Replace(path)
}

// also lists other places for a section.
var also = map[string]string{
	"records": ", required",
	"links":   " and `detail.links`",
	"field":   ", and below the `fields` of an object",
	"source":  ", or among the keys of the field itself",
}

// memberType returns the type of the members of a list or of the target of a pointer.
func memberType(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Slice || t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

// facts returns the type, the range and the default of a key, as Markdown.
func facts(t *testing.T, f reflect.StructField, v reflect.Value, required bool) string {
	t.Helper()
	kind := map[reflect.Type]string{
		reflect.TypeFor[string](): "text", reflect.TypeFor[bool](): "bool", reflect.TypeFor[int](): "integer", reflect.TypeFor[float64](): "number",
		reflect.TypeFor[time.Duration](): "duration", reflect.TypeFor[Size](): "size", reflect.TypeFor[Pattern](): "regex", reflect.TypeFor[Selector](): "selector",
		reflect.TypeFor[Path](): "JSON path", reflect.TypeFor[JSONText](): "JSON", reflect.TypeFor[map[string]string](): "texts by name",
		reflect.TypeFor[Field](): "fields by name", reflect.TypeFor[Cookies](): "texts by name, or off", reflect.TypeFor[Refetch](): "`always`, `if-changed` or a duration, which may be in days",
	}[memberType(f.Type)]
	if kind == "" {
		t.Errorf("%s: no name for type %s", f.Name, f.Type)
	}
	if words := strings.Fields(f.Tag.Get("oneof")); len(words) > 0 {
		kind = "`" + strings.Join(words, "`, `") + "`"
	} else if least, most, ok := strings.Cut(f.Tag.Get("range"), " "); ok {
		kind = least + " to " + most
	}
	if f.Type.Kind() == reflect.Slice && f.Type != reflect.TypeFor[Fields]() {
		kind = "list: " + kind
	}
	kind = strings.TrimSuffix(strings.TrimSuffix(kind, "text"), ": ")
	if required {
		return " (" + strings.TrimPrefix(kind+"; required", "; ") + ")"
	}
	for v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	text := ""
	switch v.Kind() {
	case reflect.Bool, reflect.Int, reflect.Int64:
		text = fmt.Sprint(v.Interface())
		if size, ok := v.Interface().(Size); ok && size > 0 {
			text = fmt.Sprintf("%dMiB", size>>20)
		}
		if strings.HasSuffix(text, "m0s") {
			text = strings.TrimSuffix(strings.TrimSuffix(text, "0s"), "h0m")
		}
	case reflect.String:
		text = v.String()
	}
	if text != "" {
		kind = strings.TrimPrefix(kind+"; `"+text+"`", "; ")
	}
	if kind == "" {
		return ""
	}
	return " (" + kind + ")"
}

// requiredKeys are the keys that must be set.
func requiredKeys() map[string]bool {
	required := map[string]bool{}
	for _, text := range []string{
		"description: d",
		"records:\n  NAME: {from: detail}",
		"records: {NAME: {fields: {NAME: {css: a, replace: [\n{with: ''}]}}}}",
		"session: {login:\n {form: form}}",
		"session: {login:\n {url: /, fields: {a: b}}}",
	} {
		_, err := Parse("bare.yaml", []byte(text))
		var problems Problems
		if errors.As(err, &problems) {
			for _, p := range problems {
				if strings.HasPrefix(p.Text, "is missing") {
					required[strings.NewReplacer("[0]", "", "fields.NAME.replace", "fields.NAME.any.replace").Replace(p.Key)] = true
				}
			}
		}
	}
	return required
}
