package draft

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"muster/sites/sample"
)

// outline is an unfinished definition. Its strings are YAML.
type outline struct {
	site, base, start, startAs    string
	format, mustHave, next, links string // of listing
	records                       []*record
	notes                         []string
}

// record is a kind of record of an outline.
type record struct {
	name, from, each, eachJSON, key string
	fields                          []field
}

// field is a field of a record.
type field struct {
	name     string
	sources  []string // the keys of each source as YAML, without braces
	typ      string   // "" for text
	required bool
	example  string
}

func newOutline(u *url.URL) *outline {
	return &outline{site: siteName(u), base: u.Scheme + "://" + u.Host, start: pathOf(u)}
}

func (o *outline) note(format string, args ...any) {
	o.notes = append(o.notes, fmt.Sprintf(format, args...))
}

// settle removes fields without values, adds examples to the others and makes some of them required. It reports whether the
// definition is unchanged except for examples.
func (o *outline) settle(found map[string]sample.Field) bool {
	same := true
	for _, r := range o.records {
		before := len(r.fields)
		r.fields = slices.DeleteFunc(r.fields, func(f field) bool {
			n, _ := found[r.name+"."+f.name].Found()
			return n == 0
		})
		same = same && len(r.fields) == before
		for i := range r.fields {
			r.fields[i].example = string(found[r.name+"."+r.fields[i].name].First)
		}
	}
	o.records = slices.DeleteFunc(o.records, func(r *record) bool { return len(r.fields) == 0 })
	if !same || len(o.records) == 0 {
		return false
	}
	for _, r := range o.records {
		same = !r.require(found) && same
	}
	return same
}

// require makes two fields required that every record has, preferably a title, a price or a date, and reports whether it changed
// a field.
func (r *record) require(found map[string]sample.Field) bool {
	if slices.ContainsFunc(r.fields, func(f field) bool { return f.required }) {
		return false
	}
	required := 0
	for rank := range 3 {
		for i := range r.fields {
			f := &r.fields[i]
			n, of := found[r.name+"."+f.name].Found()
			if required < 2 && n == of && f.evidence() == rank {
				f.required = true
				required++
			}
		}
	}
	return required > 0
}

// evidence ranks how well a field identifies a good page: 0 is best, and 3 is a field that pages of any kind have.
func (f *field) evidence() int {
	switch {
	case f.name == "image" || strings.HasPrefix(f.sources[0], "page:") || strings.HasPrefix(f.sources[0], "take:"):
		return 3
	case f.name == "title" || f.typ == "price" || f.typ == "date":
		return 0
	case f.typ != "url":
		return 1
	}
	return 2
}

// setKeys makes the first field with the name of an identifier the key of its records, if its values differ on the page.
func (o *outline) setKeys(v sample.View) {
	for _, r := range o.records {
		i := slices.IndexFunc(r.fields, func(f field) bool {
			return slices.Contains([]string{"id", "sku", "upc", "ean", "isbn", "gtin13", "mpn", "uuid", "number"}, f.name) || strings.HasSuffix(f.name, "_id") || strings.HasSuffix(f.name, "_no")
		})
		if i < 0 || r.key != "" {
			continue
		}
		seen := map[string]bool{}
		of := 0
		for _, line := range v.Records {
			var rec map[string]json.RawMessage
			if json.Unmarshal(line, &rec) == nil && string(rec["_type"]) == strconv.Quote(r.name) {
				seen[string(rec[r.fields[i].name])] = true
				of++
			}
		}
		if of > 0 && len(seen) == of && !seen[""] {
			r.key = r.fields[i].name
		}
	}
}

// yaml writes the definition.
func (o *outline) yaml() []byte {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("# A first definition, guessed from a page. Review it: rename fields and delete")
	line("# unwanted ones. muster sites check --live FILE shows the extracted records.")
	line("# Records without a required field are dropped: their page may be a block page.")
	line("site: %s", quote(o.site))
	line("base_url: %s", quote(o.base))
	if o.startAs != "" {
		line("\nstart:\n  - {url: %s, as: %s}", quote(o.start), o.startAs)
	} else {
		line("\nstart: [%s]", quote(o.start))
		if o.format+o.mustHave+o.next+o.links != "" {
			line("\nlisting:")
		}
		if o.format != "" {
			line("  format: %s", o.format)
		}
		if o.mustHave != "" {
			line("  must_have: %s", quote(o.mustHave))
		}
		if o.next != "" {
			line("  next: {%s}", o.next)
		} else {
			line("  # next: no link to a next page was found")
		}
		if o.links != "" {
			line("  links: %s", o.links)
		}
	}
	line("\nrecords:")
	for _, r := range o.records {
		line("  %s:", r.name)
		for _, kv := range [][2]string{{"from", r.from}, {"each", r.each}, {"each_json", r.eachJSON}} {
			if kv[1] != "" {
				line("    %s: %s", kv[0], quote(kv[1]))
			}
		}
		if r.key != "" {
			line("    key: [%s]", r.key)
		}
		line("    fields:")
		for _, f := range r.fields {
			line("      %s: %s", f.name, f.yaml())
		}
	}
	line("\npoliteness:\n  delay: 1s")
	return []byte(b.String())
}

func (f *field) yaml() string {
	text := f.sources[0]
	if len(f.sources) > 1 {
		text = "any: [{" + strings.Join(f.sources, "}, {") + "}]"
	}
	if f.typ != "" {
		text += ", type: " + f.typ
	}
	if f.required {
		text += ", required: true"
	}
	if css, ok := strings.CutPrefix(text, "css: "); ok && text == f.sources[0] && !strings.Contains(css, ", ") {
		text = css
	} else {
		text = "{" + text + "}"
	}
	if f.example != "" {
		text += "  # " + shorten(f.example)
	}
	return text
}

// shorten truncates a value to the length of an example.
func shorten(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if rs := []rune(s); len(rs) > 60 {
		s = string(rs[:60]) + "…"
	}
	return s
}

// quote quotes a string for YAML, in flow and block style.
func quote(s string) string {
	if isPlain(s) && !slices.Contains([]string{"true", "false", "null", "yes", "no", "on", "off", "y", "n"}, strings.ToLower(s)) && !strings.HasSuffix(s, " ") {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", "''") + "'"
}

// isPlain reports whether a string that is not a keyword needs no quotes in YAML.
func isPlain(s string) bool {
	return s != "" && strings.Trim(s[:1], letters) == "" && strings.Trim(s, letters+"0123456789_.> -") == ""
}
