package extract

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/html"

	"muster/sites/definition"
)

// Record is one record of a page.
type Record struct {
	Type     string
	Key      string // tells it apart from all other records of its type
	URL      string
	Fields   []Value // in the order of the definition; missing ones left out
	Problems []string
}

// Value is a field with its value, as encoding/json encodes it.
type Value struct {
	Name  string
	Value any
}

// Link is a page that another leads to.
type Link struct {
	URL  string
	Kind string
	N    int // see Page
}

// Result is what a page yields.
type Result struct {
	Records []Record
	Invalid []Record // those that did not pass their checks, with Problems
	Links   []Link   // without the next listing page
	Next    *Link
	// Counted tells that Next is a number further, not a link of the page, so
	// that it ends where a page brings nothing new.
	Counted bool
	// Hits counts for type.field which alternative the value came from:
	// "0" the first, "none" when there was no value.
	Hits map[string]map[string]int
}

// Run takes records and links from a page.
func Run(def *definition.Definition, d *Doc) (Result, error) {
	x := &run{def: def, doc: d, res: Result{Hits: map[string]map[string]int{}}}
	for _, r := range def.RecordsFrom(d.Page.Kind) {
		if err := x.records(r); err != nil {
			return Result{}, err
		}
	}
	x.links(def.Page(d.Page.Kind).Links)
	if d.Page.Kind == definition.KindListing && def.Listing.Next != nil {
		x.next(def.Listing.Next)
	}
	return x.res, nil
}

// MustHave tells whether a page has one of the elements that it must have.
func MustHave(def *definition.Definition, d *Doc) bool {
	must := def.Page(d.Page.Kind).MustHave
	if len(must) == 0 || d.Root == nil {
		return true
	}
	return slices.ContainsFunc(must, func(s definition.Selector) bool { return s.First(d.Root) != nil })
}

// JSON encodes a record as one line: its type, key and URL, then its fields.
func (r *Record) JSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	put := func(name string, v any) error {
		if b.Len() > 1 {
			b.WriteByte(',')
		}
		for i, part := range []any{name, v} {
			enc := json.NewEncoder(&b)
			enc.SetEscapeHTML(false)
			if err := enc.Encode(part); err != nil {
				return fmt.Errorf("encode field %s: %w", name, err)
			}
			b.Truncate(b.Len() - 1) // the line's end
			if i == 0 {
				b.WriteByte(':')
			}
		}
		return nil
	}
	head := []Value{{"_type", r.Type}, {"_key", r.Key}, {"_url", r.URL}}
	if len(r.Problems) > 0 {
		head = append(head, Value{"_problems", r.Problems})
	}
	for _, v := range append(head, r.Fields...) {
		if err := put(v.Name, v.Value); err != nil {
			return nil, err
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

type run struct {
	def *definition.Definition
	doc *Doc
	res Result
}

// at is where a field is looked for: in an element, or in a JSON value.
type at struct {
	node *html.Node
	json any
}

func (x *run) root() at { return at{x.doc.Root, x.doc.JSON} }

func (x *run) records(r *definition.Record) error {
	places := []at{x.root()}
	switch {
	case !r.Each.IsZero():
		places = nil
		for _, n := range r.Each.All(x.doc.Root) {
			places = append(places, at{node: n})
		}
	case !r.EachJSON.IsZero():
		places = nil
		for _, v := range r.EachJSON.Eval(x.doc.JSON) {
			places = append(places, at{json: v})
		}
	}
	for _, p := range places {
		if !r.If.IsZero() && (p.node == nil || (r.If.First(p.node) == nil && !r.If.Match(p.node))) {
			continue
		}
		rec := Record{Type: r.Name, URL: x.doc.Page.URL.String()}
		rec.Fields, rec.Problems = x.fields(r.Fields, p, r.Name)
		rec.Key = x.key(r, &rec)
		if len(rec.Problems) == 0 {
			x.res.Records = append(x.res.Records, rec)
			continue
		}
		switch r.OnInvalid {
		case definition.OnInvalidFail:
			return fmt.Errorf("record %s: %s", r.Name, strings.Join(rec.Problems, "; "))
		case definition.OnInvalidKeep:
			x.res.Records = append(x.res.Records, rec)
		default:
			x.res.Invalid = append(x.res.Invalid, rec)
		}
	}
	return nil
}

// key hashes what tells the record apart. A key whose fields are all missing
// would make one record of many; then all fields count.
func (x *run) key(r *definition.Record, rec *Record) string {
	h := sha256.New()
	h.Write([]byte(r.Name))
	add := func(v any) {
		b, _ := json.Marshal(v) // what a field holds can be encoded
		h.Write([]byte{0})
		h.Write(b)
	}
	found := 0
	for _, name := range r.Key {
		i := slices.IndexFunc(rec.Fields, func(v Value) bool { return v.Name == name })
		switch {
		case name == "_url":
			add(x.def.Canonical(x.doc.Page.URL))
			found++
		case i >= 0:
			add(rec.Fields[i].Value)
			found++
		default:
			add(nil)
		}
	}
	if found == 0 {
		if r.Each.IsZero() && r.EachJSON.IsZero() {
			add(x.def.Canonical(x.doc.Page.URL))
		} else {
			add(rec.Fields)
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// fields takes the values of fields at a place. path names the record or the
// object they belong to.
func (x *run) fields(fields definition.Fields, p at, path string) (values []Value, problems []string) {
	for i := range fields {
		f := &fields[i]
		name := path + "." + f.Name
		v, hit, err := x.field(f, p, name)
		if err == nil && v == nil && f.Default != nil {
			v, err = x.convert(f, f.Type, found{text: *f.Default}, nil, name)
			hit = "default"
		}
		if x.res.Hits[name] == nil {
			x.res.Hits[name] = map[string]int{}
		}
		x.res.Hits[name][hit]++
		switch {
		case err != nil:
			problems = append(problems, f.Name+": "+err.Error())
		case v == nil && f.Required:
			problems = append(problems, f.Name+": is missing")
		case v != nil:
			if why := wrong(f, v); why != "" {
				problems = append(problems, f.Name+": "+why)
			}
			values = append(values, Value{f.Name, v})
		}
	}
	return values, problems
}

// field tries the sources of a field in turn. Its error is that of the last
// one that was there but could not be read.
func (x *run) field(f *definition.Field, p at, path string) (v any, hit string, err error) {
	if f.Type == definition.TypeObject && len(f.Any) == 0 {
		v, err := x.convert(f, f.Type, found{at: p}, nil, path)
		return v, "0", err
	}
	for i := range f.Any {
		s := &f.Any[i]
		finds := x.find(s, f, p)
		if f.Type == definition.TypeList {
			list := []any{}
			for _, fd := range finds {
				m, cerr := x.convert(f, f.Of, fd, s, path)
				if cerr != nil {
					err = cerr
					continue
				}
				if m != nil {
					list = append(list, m)
				}
			}
			if len(list) > 0 {
				return list, strconv.Itoa(i), nil
			}
			continue
		}
		for _, fd := range finds {
			m, cerr := x.convert(f, f.Type, fd, s, path)
			if cerr != nil {
				err = cerr
				continue
			}
			if m != nil {
				return m, strconv.Itoa(i), nil
			}
		}
	}
	return nil, "none", err
}

// found is something that a source yields: a text, and where it came from.
type found struct {
	at
	text  string
	given bool // there was something, be it an empty text
}

// find evaluates a source, with its regex, replacements and split.
func (x *run) find(s *definition.Source, f *definition.Field, p at) []found {
	if s.Scope == "page" {
		p = x.root()
	}
	finds := x.raw(s, p)
	boolean := f.Type == definition.TypeBool
	var out []found
	for _, fd := range finds {
		if boolean && !s.Regex.IsZero() {
			out = append(out, found{text: strconv.FormatBool(s.Regex.MatchString(fd.text)), given: true})
			continue
		}
		if !s.Regex.IsZero() {
			if f.Type == definition.TypeList && s.Split == "" {
				for _, m := range s.Regex.FindAllStringSubmatch(fd.text, -1) {
					if t, ok := s.Regex.Find(m[0]); ok {
						out = append(out, swapped(s, found{at: fd.at, text: t, given: true}))
					}
				}
				continue
			}
			t, ok := s.Regex.Find(fd.text)
			if !ok {
				continue
			}
			fd.text = t
			fd.json = nil // it is the text that counts now
		}
		fd = swapped(s, fd)
		if s.Split != "" {
			for part := range strings.SplitSeq(fd.text, s.Split) {
				if part = strings.TrimSpace(part); part != "" {
					out = append(out, found{at: at{node: fd.node}, text: part, given: true})
				}
			}
			continue
		}
		out = append(out, fd)
	}
	return out
}

func swapped(s *definition.Source, fd found) found {
	for _, w := range s.Replace {
		fd.text = w.Pattern.ReplaceAllString(fd.text, w.With)
		fd.json = nil
	}
	return fd
}

// raw is what stands at a source, before it is cut to size.
func (x *run) raw(s *definition.Source, p at) []found {
	text := func(t string) []found { return []found{{text: t, given: true}} }
	switch {
	case !s.CSS.IsZero():
		if p.node == nil {
			return nil
		}
		return taken(s, s.CSS.All(p.node))
	case !s.JSON.IsZero():
		return values(s.JSON.Eval(p.json))
	case s.JSONLD != "":
		typ, path := s.JSONLDPath()
		var out []found
		for _, v := range x.doc.linked() {
			if obj, ok := v.(map[string]any); ok && hasType(obj, typ) {
				out = append(out, values(path.Eval(obj))...)
			}
		}
		return out
	case s.Meta != "":
		return x.meta(s.Meta)
	case s.Label != "":
		if p.node == nil {
			return nil
		}
		return labelled(p.node, s.Label)
	case s.Page != "":
		return text(x.fact(s.Page))
	case s.Value != nil:
		return text(*s.Value)
	case !s.Exists.IsZero():
		return text(strconv.FormatBool(p.node != nil && s.Exists.First(p.node) != nil))
	case s.Attr != "" || s.Take != "":
		if p.node == nil {
			return nil
		}
		return taken(s, []*html.Node{p.node})
	}
	if p.node != nil && p.node != x.doc.Root {
		return text(render(p.node, false))
	}
	return text(string(x.doc.text))
}

// taken takes the wanted side of each element.
func taken(s *definition.Source, nodes []*html.Node) []found {
	var out []found
	for _, n := range nodes {
		fd := found{at: at{node: n}, given: true}
		switch {
		case s.Attr != "":
			v, ok := attr(n, strings.ToLower(s.Attr))
			if !ok {
				continue
			}
			fd.text = strings.TrimSpace(v)
		case s.Take == "html":
			fd.text = render(n, false)
		case s.Take == "inner_html":
			fd.text = render(n, true)
		case s.Take == "own_text":
			fd.text = ownText(n)
		default:
			fd.text = Text(n)
		}
		out = append(out, fd)
	}
	return out
}

// values makes finds of JSON values; a list counts as its members.
func values(vs []any) []found {
	var out []found
	for _, v := range vs {
		if list, ok := v.([]any); ok {
			out = append(out, values(list)...)
			continue
		}
		if v == nil {
			continue
		}
		out = append(out, found{at: at{json: v}, text: jsonText(v), given: true})
	}
	return out
}

func jsonText(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case json.Number:
		return v.String()
	case bool:
		return strconv.FormatBool(v)
	}
	b, _ := json.Marshal(v) // it was decoded from JSON
	return string(b)
}

func (x *run) fact(name string) string {
	p := &x.doc.Page
	switch name {
	case "url":
		return p.URL.String()
	case "requested_url":
		return p.Requested
	case "title":
		return x.doc.Title()
	case "status":
		return strconv.Itoa(p.Status)
	case "fetched_at":
		return p.FetchedAt.UTC().Format(time.RFC3339)
	case "html":
		return string(x.doc.text)
	case "site":
		return x.def.Site
	}
	return ""
}

// convert makes a value of a type. A nil value is none.
func (x *run) convert(f *definition.Field, typ string, fd found, s *definition.Source, path string) (any, error) {
	if typ == definition.TypeObject {
		if len(f.Fields) == 0 {
			return fd.json, nil
		}
		values, problems := x.fields(f.Fields, fd.at, path)
		if len(problems) > 0 {
			return nil, errors.New(strings.Join(problems, "; "))
		}
		if len(values) == 0 {
			return nil, nil
		}
		return object(values), nil
	}
	text := fd.text
	if typ == definition.TypeHTML {
		if text == "" {
			return nil, nil
		}
		return text, nil
	}
	if typ == definition.TypeBool {
		return truth(fd)
	}
	text = Fold(text)
	if text == "" {
		return nil, nil
	}
	locale := f.Locale
	if _, isNumber := fd.json.(json.Number); isNumber || (s != nil && s.JSONLD != "" && plainNumber(text)) {
		locale = "en" // as JSON and schema.org write it
	}
	switch typ {
	case definition.TypeNumber:
		return noNil(Number(text, locale))
	case definition.TypeInteger:
		return noNil(Integer(text, locale))
	case definition.TypePrice:
		return noNil(ParsePrice(text, locale))
	case definition.TypeDate:
		return noNil(Date(text, f.Layout))
	case definition.TypeURL:
		u, err := x.doc.base.Parse(text)
		if err != nil {
			return nil, fmt.Errorf("%q is not a URL", clip(text))
		}
		return u.String(), nil
	}
	return text, nil
}

func noNil[T any](v T, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return v, nil
}

func plainNumber(s string) bool {
	_, err := strconv.ParseFloat(s, 64)
	return err == nil
}

// object is a nested record, encoded in the order of its fields.
type object []Value

// MarshalJSON encodes the fields in order.
func (o object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, v := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		name, err := json.Marshal(v.Name)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(v.Value)
		if err != nil {
			return nil, err
		}
		b.Write(name)
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

func truth(fd found) (any, error) {
	if b, ok := fd.json.(bool); ok {
		return b, nil
	}
	switch t := strings.ToLower(Fold(fd.text)); t {
	case "true", "yes", "y", "1", "on", "ja", "oui", "si", "sí", "да", "есть", "✓", "✔", "checked", "available", "in stock", "instock", "https://schema.org/instock", "http://schema.org/instock":
		return true, nil
	case "false", "no", "n", "0", "off", "nein", "non", "не", "нет", "✗", "✘", "unavailable", "out of stock", "outofstock", "sold out", "https://schema.org/outofstock", "http://schema.org/outofstock":
		return false, nil
	case "":
		return nil, nil
	default:
		return nil, fmt.Errorf("%q is neither yes nor no; use regex to say what yes is", clip(t))
	}
}

// dateLayouts are tried in turn when a field names none.
var dateLayouts = []string{
	time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02", "2006/01/02",
	"02.01.2006 15:04", "2.1.2006", "02.01.06", "January 2, 2006", "Jan 2, 2006", "Jan. 2, 2006", "2 January 2006", "2 Jan 2006", "2-Jan-2006",
	"Monday, January 2, 2006", "Monday, 2 January 2006", time.RFC1123, time.RFC1123Z, time.RFC850, time.ANSIC, "January 2006", "Jan 2006",
}

// Date reads a date and writes it as 2006-01-02, or with a time of day as
// RFC 3339.
func Date(text string, layouts []string) (string, error) {
	if len(layouts) == 0 {
		layouts = dateLayouts
	}
	for _, l := range layouts {
		t, err := time.Parse(l, text)
		if err != nil {
			continue
		}
		if strings.ContainsAny(l, ":") || strings.Contains(l, "15") || strings.Contains(l, "03") {
			return t.Format(time.RFC3339), nil
		}
		return t.Format(time.DateOnly), nil
	}
	return "", fmt.Errorf("%q is no date in a known form; give its layout, such as 02.01.2006", clip(text))
}

// wrong tells why a value does not pass its field's checks, or "".
func wrong(f *definition.Field, v any) string {
	if list, ok := v.([]any); ok {
		for _, m := range list {
			if why := wrong(f, m); why != "" {
				return why
			}
		}
		return ""
	}
	if n, ok := number(v); ok {
		if f.Min != nil && n < *f.Min {
			return fmt.Sprintf("%v is below %v", n, *f.Min)
		}
		if f.Max != nil && n > *f.Max {
			return fmt.Sprintf("%v is above %v", n, *f.Max)
		}
	}
	text := fmt.Sprint(v)
	if !f.Match.IsZero() && !f.Match.MatchString(text) {
		return fmt.Sprintf("%q does not match %s", clip(text), f.Match)
	}
	if len(f.OneOf) > 0 && !slices.Contains(f.OneOf, text) {
		return fmt.Sprintf("%q is none of %s", clip(text), strings.Join(f.OneOf, ", "))
	}
	return ""
}

func number(v any) (float64, bool) {
	switch v := v.(type) {
	case float64:
		return v, true
	case int64:
		return float64(v), true
	case Price:
		return v.Amount, true
	}
	return 0, false
}

// meta looks a name up in meta elements, then in microdata.
func (x *run) meta(name string) []found {
	if x.doc.Root == nil {
		return nil
	}
	var metas, items []found
	var walk func(n *html.Node)
	walk = func(n *html.Node) {
		if n.Type == html.ElementNode {
			for _, a := range n.Attr {
				isMeta := n.Data == "meta" && (a.Key == "name" || a.Key == "property" || a.Key == "itemprop" || a.Key == "http-equiv")
				if !isMeta && a.Key != "itemprop" || !slices.ContainsFunc(strings.Fields(a.Val), func(w string) bool { return strings.EqualFold(w, name) }) {
					continue
				}
				v, ok := attr(n, "content")
				for _, k := range []string{"datetime", "href", "src"} {
					if !ok && (k != "href" || n.Data == "a" || n.Data == "link") {
						v, ok = attr(n, k)
					}
				}
				if !ok {
					v = Text(n)
				}
				fd := found{at: at{node: n}, text: v, given: true}
				if isMeta {
					metas = append(metas, fd)
				} else {
					items = append(items, fd)
				}
				break
			}
		}
		for c := n.FirstChild; c != nil; c = c.NextSibling {
			walk(c)
		}
	}
	walk(x.doc.Root)
	return append(metas, items...)
}

// labelled finds the value that stands beside a label: in the next cell of
// the row, in the dd of a dt, in the element after it, or after its colon.
func labelled(root *html.Node, label string) []found {
	want := labelText(label)
	var exact, inside []found
	var walk func(n *html.Node)
	walk = func(n *html.Node) {
		for c := n.FirstChild; c != nil; c = c.NextSibling {
			walk(c)
		}
		if n.Type != html.ElementNode {
			return
		}
		text := Text(n)
		if len(text) > len(label)+2000 {
			return
		}
		if labelText(text) == want {
			if v := beside(n); v != nil {
				exact = append(exact, found{at: at{node: v}, text: Text(v), given: true})
			} else if n.Parent != nil {
				if rest, ok := afterColon(Text(n.Parent), want); ok {
					inside = append(inside, found{at: at{node: n.Parent}, text: rest, given: true})
				}
			}
			return
		}
		if rest, ok := afterColon(text, want); ok && !hasBlocks(n) {
			inside = append(inside, found{at: at{node: n}, text: rest, given: true})
		}
	}
	walk(root)
	return append(exact, inside...)
}

func labelText(s string) string {
	return strings.ToLower(strings.TrimRight(Fold(s), " :\uff1a\u00a0"))
}

func afterColon(text, label string) (string, bool) {
	i := strings.IndexAny(text, ":\uff1a")
	if i < 0 || labelText(text[:i]) != label {
		return "", false
	}
	rest := strings.TrimSpace(strings.TrimLeft(text[i:], ":\uff1a"))
	return rest, rest != ""
}

func hasBlocks(n *html.Node) bool {
	for c := n.FirstChild; c != nil; c = c.NextSibling {
		if c.Type == html.ElementNode && !inline[c.DataAtom] {
			return true
		}
	}
	return false
}

// beside is the element that holds the value of the label n, or nil.
func beside(n *html.Node) *html.Node {
	for up := 0; n != nil && up < 3; up++ {
		for s := n.NextSibling; s != nil; s = s.NextSibling {
			if s.Type == html.TextNode && strings.Trim(s.Data, " \t\r\n:\uff1a\u00a0") != "" {
				return nil // the value is the text after the label
			}
			if s.Type == html.ElementNode && s.Data != "br" {
				return s
			}
		}
		// <th><b>Label</b></th><td>…: the label is all of the cell.
		p := n.Parent
		if p == nil || (p.Data != "th" && p.Data != "td" && p.Data != "dt" && p.Data != "label") {
			return nil
		}
		n = p
	}
	return nil
}

// links collects the links that belong to the site, in order, each once.
func (x *run) links(links []definition.Link) {
	seen := map[string]bool{}
	for i := range links {
		l := &links[i]
		for _, ref := range x.refs(l.CSS, l.Attr, l.JSON) {
			if l.Template != "" {
				ref = strings.ReplaceAll(l.Template, "{value}", url.PathEscape(ref))
			}
			u := x.resolve(ref)
			if u == nil {
				continue
			}
			text := u.String()
			if seen[text] || (!l.Allow.IsZero() && !l.Allow.MatchString(text)) || (!l.Deny.IsZero() && l.Deny.MatchString(text)) {
				continue
			}
			seen[text] = true
			x.res.Links = append(x.res.Links, Link{URL: text, Kind: l.As})
		}
	}
}

// refs are the raw addresses that a selector or a path finds.
func (x *run) refs(css definition.Selector, name string, path definition.Path) []string {
	var refs []string
	if !path.IsZero() {
		for _, fd := range values(path.Eval(x.doc.JSON)) {
			refs = append(refs, fd.text)
		}
		return refs
	}
	if x.doc.Root == nil {
		return nil
	}
	if name == "" {
		name = "href"
	}
	for _, n := range css.All(x.doc.Root) {
		if v, ok := attr(n, strings.ToLower(name)); ok && strings.TrimSpace(v) != "" {
			refs = append(refs, v)
		}
	}
	return refs
}

// resolve makes an address of the site of a reference, or nil.
func (x *run) resolve(ref string) *url.URL {
	ref = strings.Map(func(r rune) rune {
		if r == '\n' || r == '\r' || r == '\t' {
			return -1
		}
		return r
	}, strings.TrimSpace(ref))
	u, err := x.doc.base.Parse(strings.ReplaceAll(ref, " ", "%20"))
	if err != nil {
		return nil
	}
	u = x.def.Move(u)
	u.Fragment, u.RawFragment = "", ""
	if !x.def.InScope(u) {
		return nil
	}
	return u
}

func (x *run) next(n *definition.Next) {
	to := func(ref string) {
		if u := x.resolve(ref); u != nil {
			x.res.Next = &Link{URL: u.String(), Kind: definition.KindListing}
		}
	}
	if !n.While.IsZero() && !anyTrue(n.While.Eval(x.doc.JSON)) {
		return
	}
	page := x.doc.Page
	switch {
	case n.Rel != "":
		if ref := headerNext(page.Header.Values("Link")); ref != "" {
			to(ref)
			return
		}
		if x.doc.Root == nil {
			return
		}
		for _, l := range relSelector.All(x.doc.Root) {
			if href, ok := attr(l, "href"); ok {
				to(href)
				return
			}
		}
	case !n.Cursor.IsZero():
		if vs := values(n.Cursor.Eval(x.doc.JSON)); len(vs) > 0 && vs[0].text != "" && vs[0].text != "false" {
			to(withParam(page.URL, n.Param, vs[0].text))
		}
	case n.Template != "" || n.Param != "":
		count := counted(n, page.N)
		if n.To > 0 && count > n.To {
			return
		}
		if n.Template != "" {
			to(n.PageURL(count))
		} else {
			to(withParam(page.URL, n.Param, strconv.Itoa(count)))
		}
		x.res.Counted = true
		if x.res.Next != nil {
			x.res.Next.N = page.N + 1
		}
	default:
		if refs := x.refs(n.CSS, n.Attr, n.JSON); len(refs) > 0 {
			to(refs[0])
		}
	}
}

// counted is the number of the page after the one that is n pages away from
// its start.
func counted(x *definition.Next, n int) int {
	from := 2
	if x.From != nil {
		from = *x.From
	}
	return from + n*x.Step
}

func withParam(u *url.URL, name, value string) string {
	c := *u
	q := c.Query()
	q.Set(name, value)
	c.RawQuery = q.Encode()
	return c.String()
}

func anyTrue(vs []any) bool {
	return slices.ContainsFunc(vs, func(v any) bool {
		switch v := v.(type) {
		case nil:
			return false
		case bool:
			return v
		case string:
			return v != "" && v != "false"
		case json.Number:
			return v.String() != "0"
		}
		return true
	})
}

// headerNext is the target of rel=next in Link headers (RFC 8288), or "".
func headerNext(headers []string) string {
	for _, h := range headers {
		for part := range strings.SplitSeq(h, ",") {
			target, params, ok := strings.Cut(part, ">")
			target = strings.TrimSpace(target)
			if !ok || !strings.HasPrefix(target, "<") {
				continue
			}
			for p := range strings.SplitSeq(params, ";") {
				name, value, _ := strings.Cut(strings.TrimSpace(p), "=")
				if strings.EqualFold(name, "rel") && slices.Contains(strings.Fields(strings.ToLower(strings.Trim(value, `"' `))), "next") {
					return target[1:]
				}
			}
		}
	}
	return ""
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
