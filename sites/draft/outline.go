package draft

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"muster/internal/clip"
)

// outline is a definition in the making.
type outline struct {
	site, base, start, startAs string
	list                       *list
	json                       *jsonList
	next                       string // as YAML
	detail                     []field
	notes                      []string
}

// field is a field in the making.
type field struct {
	name    string
	sources []string // each as YAML of a source's keys, without braces
	typ     string   // "" for text
	extra   string   // further keys as YAML
	example string
}

func (o *outline) note(format string, args ...any) {
	o.notes = append(o.notes, fmt.Sprintf(format, args...))
}

// records are the kinds of record by their names.
func (o *outline) fieldsOf(record string) *[]field {
	switch {
	case record == "item" && o.list != nil:
		return &o.list.fields
	case record == "item" && o.json != nil:
		return &o.json.fields
	}
	return &o.detail
}

// comment keeps the first value of a field, to stand beside it.
func (o *outline) comment(name, value string) {
	record, name, _ := strings.Cut(name, ".")
	fields := *o.fieldsOf(record)
	for i := range fields {
		if fields[i].name == name && fields[i].example == "" {
			fields[i].example = value
		}
	}
}

// drop takes fields out, by record.field, and tells whether any is left.
func (o *outline) drop(names map[string]bool) bool {
	left := 0
	for _, record := range []string{"item", "page"} {
		if record == "item" && o.list == nil && o.json == nil {
			continue
		}
		fields := o.fieldsOf(record)
		*fields = slices.DeleteFunc(*fields, func(f field) bool { return names[record+"."+f.name] })
		left += len(*fields)
	}
	return left > 0
}

// yaml writes the definition.
func (o *outline) yaml() []byte {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("# A first definition, guessed from a page: look it over, name the fields, take")
	line("# out what is not wanted. muster sites check --live FILE shows what it yields.")
	line("site: %s", quote(o.site))
	line("base_url: %s", quote(o.base))
	line("")
	if o.startAs != "" {
		line("start:\n  - {url: %s, as: %s}", quote(o.start), o.startAs)
	} else {
		line("start: [%s]", quote(o.start))
	}
	if o.list != nil || o.json != nil {
		line("\nlisting:")
		switch {
		case o.json != nil:
			line("  format: json")
		default:
			line("  must_have: %s", quote(o.list.each))
		}
		if o.next != "" {
			line("  next: {%s}", o.next)
		} else {
			line("  # next: no way to the next page was found on this one")
		}
		if o.list != nil && o.list.link != "" && len(o.detail) > 0 {
			if o.list.under != "" {
				line("  links: {css: %s, allow: %s}", quote(o.list.each+" "+o.list.link), quote(regexp.QuoteMeta(o.list.under)))
			} else {
				line("  links: %s", quote(o.list.each+" "+o.list.link))
			}
		}
	}
	line("\nrecords:")
	switch {
	case o.list != nil:
		line("  item:\n    from: listing\n    each: %s", quote(o.list.each))
		writeFields(line, o.list.fields)
	case o.json != nil:
		line("  item:\n    from: listing\n    each_json: %s", quote(o.json.path))
		writeFields(line, o.json.fields)
	}
	if len(o.detail) > 0 {
		line("  page:")
		writeFields(line, o.detail)
	}
	if o.list == nil && o.json == nil && len(o.detail) == 0 {
		line("  page:\n    fields:\n      title: {page: title}")
	}
	line("\npoliteness:\n  delay: 1s")
	return []byte(b.String())
}

func writeFields(line func(string, ...any), fields []field) {
	line("    fields:")
	for _, f := range fields {
		text := "{" + f.sources[0]
		if len(f.sources) > 1 {
			text = "{any: [{" + strings.Join(f.sources, "}, {") + "}]"
		}
		if f.typ != "" {
			text += ", type: " + f.typ
		}
		if f.extra != "" {
			text += ", " + f.extra
		}
		text += "}"
		if css, ok := strings.CutPrefix(text, "{css: "); ok && len(f.sources) == 1 && f.typ == "" && f.extra == "" && !strings.Contains(f.sources[0], ", ") {
			text = strings.TrimSuffix(css, "}")
		}
		if f.example != "" {
			text += "  # " + clip.Line(f.example, 60)
		}
		line("      %s: %s", f.name, text)
	}
}

var plain = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.> -]*$`)

// quote writes a text as YAML, for flow and block style.
func quote(s string) string {
	if plain.MatchString(s) && !slices.Contains([]string{"true", "false", "null", "yes", "no", "on", "off", "y", "n"}, strings.ToLower(s)) && !strings.HasSuffix(s, " ") {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", "''") + "'"
}

// fieldName makes a name of a class, a label or a key.
func fieldName(s string) string {
	var b strings.Builder
	for i, r := range s {
		switch {
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			b.WriteRune(r)
		case r >= 'A' && r <= 'Z':
			if i > 0 && s[i-1] >= 'a' && s[i-1] <= 'z' {
				b.WriteByte('_')
			}
			b.WriteRune(r - 'A' + 'a')
		default:
			b.WriteByte('_')
		}
	}
	name := strings.Trim(squeeze.ReplaceAllString(b.String(), "_"), "_")
	if len(name) > 40 {
		name = strings.Trim(name[:40], "_")
	}
	if name == "" || name[0] >= '0' && name[0] <= '9' {
		name = strings.TrimSuffix("field_"+name, "_")
	}
	return name
}

var squeeze = regexp.MustCompile(`_+`)

// add appends a field, under another name if its own is taken.
func add(fields []field, f field) []field {
	taken := func(name string) bool {
		return slices.ContainsFunc(fields, func(o field) bool { return o.name == name })
	}
	name := f.name
	for i := 2; taken(f.name); i++ {
		f.name = fmt.Sprintf("%s_%d", name, i)
	}
	return append(fields, f)
}
