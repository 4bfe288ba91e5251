package extract

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/html"

	"muster/internal/clip"
	"muster/sites/definition"
)

// Record is one record of a page.
type Record struct {
	Type     string
	Key      string // unique among the records of its type
	URL      string
	Fields   []Value // in the order of the definition, without missing ones
	Problems []string
}

// Value is a field with its value, which must be encodable by encoding/json.
type Value struct {
	Name  string
	Value any
}

// Link is a link to another page.
type Link struct {
	URL   string            `json:"url"`
	Kind  string            `json:"kind,omitempty"`
	N     int               `json:"n,omitempty"`     // see Page
	Start int               `json:"start,omitempty"` // see Page
	Post  definition.Post   `json:"post,omitzero"`   // body of the request
	Carry map[string]string `json:"carry,omitempty"` // see Page
	// Modified is the latest time that the lastmod of a sitemap may mean. Zero: unknown.
	Modified time.Time `json:"modified,omitzero"`
}

// Result is the result of extracting a page.
type Result struct {
	Records []Record
	Invalid []Record // failed their checks, with Problems
	Links   []Link   // without the next listing page
	Next    *Link
	// Counted reports whether Next is derived from a number instead of a link. Then the numbering ends at a page without new
	// content.
	Counted bool
	// Hits counts by type.field the alternatives that produced the value: "0" is the first, "none" means no value.
	Hits map[string]map[string]int
	// Faults counts the faults by type.field.
	Faults Faults
	// Broken is the reason why the rest of a sitemap could not be read, or "". Outside counts its distinct URLs outside the site.
	Broken  string
	Outside int
}

// Fault counts the faults of a field.
type Fault struct {
	Invalid  int    `json:"invalid,omitempty"`  // invalid records: the field is required and missing, or fails a check
	Unparsed int    `json:"unparsed,omitempty"` // records without an optional field because its text could not be parsed
	Example  string `json:"example,omitempty"`  // the first fault
}

// Faults has a Fault for each type.field with faults.
type Faults map[string]Fault

// Add adds to the faults of a field.
func (fs *Faults) Add(name string, f Fault) {
	if *fs == nil {
		*fs = Faults{}
	}
	sum := (*fs)[name]
	(*fs)[name] = Fault{sum.Invalid + f.Invalid, sum.Unparsed + f.Unparsed, cmp.Or(sum.Example, f.Example)}
}

// Run extracts records and links from a page with the site's registered Func, or according to its definition. An invalid record
// with on_invalid: fail is an error; the result then has everything extracted before it.
func Run(def *definition.Definition, d *Doc) (Result, error) {
	if fn, ok := code.Load(def.Site); ok {
		return fn.(Func)(def, d)
	}
	return Declared(def, d)
}

// Declared extracts records and links from a page according to the definition.
func Declared(def *definition.Definition, d *Doc) (Result, error) {
	x := &run{def: def, doc: d, res: Result{Hits: map[string]map[string]int{}}}
	for _, r := range def.RecordsFrom(d.Page.Kind) {
		if err := x.records(r); err != nil {
			return x.res, err
		}
	}
	x.links(def.Page(d.Page.Kind).Links)
	if d.Page.Kind == definition.KindListing && def.Listing.Next != nil {
		x.next(def.Listing.Next)
	}
	return x.res, nil
}

// MustHave reports whether a page has one of the elements of must_have.
func MustHave(def *definition.Definition, d *Doc) bool {
	must := def.Page(d.Page.Kind).MustHave
	if len(must) == 0 || d.Root == nil {
		return true
	}
	return slices.ContainsFunc(must, func(s definition.Selector) bool { return s.First(d.Root) != nil })
}

// JSON encodes a record as one line: its type, key and URL, then its fields.
func (r *Record) JSON() ([]byte, error) {
	return append(object{{"_type", r.Type}, {"_key", r.Key}, {"_url", r.URL}}, r.Fields...).MarshalJSON()
}

type run struct {
	def *definition.Definition
	doc *Doc
	res Result
}

// at is the place to search for a field: an element or a JSON value.
type at struct {
	node  *html.Node
	json  any
	org   bool // schema.org data
	coded bool // strings may be markup, as in JSON-LD
}

func (x *run) root() at { return at{node: x.doc.Root, json: x.doc.JSON} }

func (x *run) records(r *definition.Record) error {
	places, err := x.places(r.Each, r.EachJSON)
	if err != nil {
		return fmt.Errorf("record %s: %w", r.Name, err)
	}
	for _, p := range places {
		rec := Record{Type: r.Name, URL: x.doc.Page.URL.String()}
		var problems []problem
		rec.Fields, problems = x.fields(r.Fields, p, r.Name)
		for _, pr := range problems {
			x.invalid(&rec, pr)
		}
		if err := x.keep(r, rec); err != nil {
			return err
		}
	}
	return nil
}

// places returns the elements that each matches, the values of eachJSON, the values of eachJSON in the JSON of the elements, or
// the whole page if neither is set.
func (x *run) places(each definition.Selector, eachJSON definition.Path) (places []at, err error) {
	switch {
	case each.IsZero() && eachJSON.IsZero():
		return []at{x.root()}, nil
	case each.IsZero():
		for _, v := range eachJSON.Members(x.doc.JSON) {
			places = append(places, at{json: v})
		}
		return places, nil
	case x.doc.Root == nil:
		return nil, nil
	}
	read := 0
	for _, n := range each.All(x.doc.Root) {
		if eachJSON.IsZero() {
			places = append(places, at{node: n})
			continue
		}
		v, jerr := looseJSON(jsonIn(n, each.Attr))
		if jerr != nil {
			err = fmt.Errorf("the content of %s is not JSON: %w", each.Text, jerr)
			continue
		}
		read++
		for _, m := range eachJSON.Members(v) {
			places = append(places, at{json: m})
		}
	}
	if read > 0 { // other matching elements may lack JSON
		err = nil
	}
	return places, err
}

// keep sets the key of a record and adds it to the valid or invalid records.
func (x *run) keep(r *definition.Record, rec Record) error {
	rec.Key = x.key(r, &rec)
	if len(rec.Problems) == 0 {
		x.res.Records = append(x.res.Records, rec)
		return nil
	}
	x.res.Invalid = append(x.res.Invalid, rec)
	if r.OnInvalid == definition.OnInvalidFail {
		return fmt.Errorf("record %s: %s", r.Name, strings.Join(rec.Problems, "; "))
	}
	return nil
}

// check counts the alternative that produced the value of a field, and returns the reason why the value is invalid, or "".
func (x *run) check(f *definition.Field, v any, hit, name string) string {
	if v == nil {
		hit = "none"
	}
	if x.res.Hits[name] == nil {
		x.res.Hits[name] = map[string]int{}
	}
	x.res.Hits[name][hit]++
	switch {
	case v != nil:
		return wrong(f, v)
	case f.Required:
		return "is missing"
	}
	return ""
}

// key returns the hash of a record's key fields, or of all fields if all key fields are missing, so that different records have
// different keys.
func (x *run) key(r *definition.Record, rec *Record) string {
	h := sha256.New()
	h.Write([]byte(r.Name))
	add := func(v any) {
		b, _ := json.Marshal(v) // values of fields always encode
		h.Write([]byte{0})
		h.Write(b)
	}
	found := 0
	for _, name := range r.Key {
		i := slices.IndexFunc(rec.Fields, func(v Value) bool { return v.Name == name })
		switch {
		case name == "_url":
			add(x.identity())
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
			add(x.identity())
		} else {
			add(rec.Fields)
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// identity returns the identity of the page: its URL or its canonical URL, and the body of a POST request.
func (x *run) identity() string {
	id := x.def.Canonical(cmp.Or(x.doc.Original, x.doc.Page.URL))
	if post := x.doc.Page.Post; !post.IsZero() {
		id += "\n" + post.Type + "\n" + post.Text
	}
	return id
}

// fields extracts the values of fields at a place. path names the record or object of the fields. An optional field with an
// unparsable text is dropped and counted.
func (x *run) fields(fields definition.Fields, p at, path string) (values []Value, problems []problem) {
	for i := range fields {
		f := &fields[i]
		name := path + "." + f.Name
		v, hit, err := x.field(f, p, name)
		if err == nil && v == nil && f.Default != nil {
			v, err = x.convert(f, f.Type, found{text: *f.Default}, nil, name)
			hit = "default"
		}
		if err != nil {
			v = nil
		}
		why := x.check(f, v, hit, name)
		switch {
		case err != nil && f.Required:
			why = err.Error()
		case err != nil:
			x.res.Faults.Add(name, Fault{Unparsed: 1, Example: clip.Line(err.Error(), maxExample)})
		case v != nil:
			values = append(values, Value{f.Name, v})
		}
		if why != "" {
			problems = append(problems, problem{f.Name, why})
		}
	}
	return values, problems
}

// problem is the reason why a record or an object in it is invalid.
type problem struct{ field, why string }

func (p problem) String() string { return p.field + ": " + p.why }

// maxExample is the maximum length of a Fault's Example, in characters.
const maxExample = 200

// invalid adds a problem to a record.
func (x *run) invalid(rec *Record, p problem) {
	rec.Problems = append(rec.Problems, p.String())
	x.res.Faults.Add(rec.Type+"."+p.field, Fault{Invalid: 1, Example: clip.Line(p.why, maxExample)})
}

// maxCandidates limits the matches of a source that are converted until one has the field's type.
const maxCandidates = 200

// field tries the sources of a field in order. Its error is the error of the last match that could not be parsed.
func (x *run) field(f *definition.Field, p at, path string) (v any, hit string, err error) {
	if f.Type == definition.TypeObject && len(f.Any) == 0 {
		v, err := x.convert(f, f.Type, found{at: p}, nil, path)
		return v, "0", err
	}
	isList, typ := f.Type == definition.TypeList, f.Type
	if isList {
		typ = f.Of
	}
	for i := range f.Any {
		var list []any
		for n, fd := range x.find(&f.Any[i], f, p) {
			if n >= maxCandidates && !isList {
				break
			}
			m, cerr := x.convert(f, typ, fd, &f.Any[i], path)
			switch {
			case cerr != nil:
				err = cerr
			case m != nil && !isList:
				return m, strconv.Itoa(i), nil
			case m != nil:
				list = append(list, m)
			}
		}
		if len(list) > 0 {
			return list, strconv.Itoa(i), nil
		}
	}
	return nil, "none", err
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
