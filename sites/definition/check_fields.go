package definition

import (
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	"muster/internal/nearest"
)

func (c *checker) checkRecords(def *Definition) {
	if len(def.Records) == 0 && !c.failedKey("records") {
		c.problemAt(def.At, "records", "is missing; define at least one kind of record with its fields")
	}
	for i := range def.Records {
		r := &def.Records[i]
		key := "records." + r.Name
		if !siteName.MatchString(r.Name) {
			c.problemAt(r.At, key, "invalid name %q; use letters, digits, dots, dashes and underscores", r.Name)
		}
		r.From = c.oneOf(r.From, KindDetail, words[Record]("from"), r.At, key+".from")
		r.OnInvalid = c.oneOf(r.OnInvalid, OnInvalidDrop, words[Record]("on_invalid"), r.At, key+".on_invalid")
		format := def.recordFormat(r.From)
		switch {
		case !r.Each.IsZero() && !r.EachJSON.IsZero():
			format = FormatJSON // in the elements of each
		case !r.EachJSON.IsZero() && format != FormatJSON:
			c.problemAt(r.EachJSON.At, key+".each_json", "needs format: json on the %s page; for JSON in an element, such as a script, give each too", r.From)
		}
		if len(r.Fields) == 0 && !c.failedKey(key+".fields") {
			c.problemAt(r.At, key+".fields", "is missing; define at least one field")
		}
		c.checkFields(def, r.Fields, format, key+".fields")
		names := make([]string, len(r.Fields))
		for i, f := range r.Fields {
			names[i] = f.Name
		}
		c.checkNames(r.Key, append(names, "_url"), r.At, key+".key")
		c.checkNames(r.Watch, names, r.At, key+".watch")
	}
}

// checkNames reports names of unknown fields.
func (c *checker) checkNames(given, names []string, at Pos, key string) {
	for _, k := range given {
		if slices.Contains(names, k) {
			continue
		}
		if n := nearest.Word(k, names); n != "" {
			c.problemAt(at, key, "no field %q; did you mean %q?", k, n)
		} else {
			c.problemAt(at, key, "no field %q; use one of %s", k, strings.Join(names, ", "))
		}
	}
}

// checkFields checks fields of a record or an object, on a page of a format.
func (c *checker) checkFields(def *Definition, fields Fields, format, key string) {
	for i := range fields {
		f := &fields[i]
		key := key + "." + f.Name
		if strings.HasPrefix(f.Name, "_") {
			c.problemAt(f.At, key, "names that begin with _ are reserved; choose another name")
		}
		c.checkType(f, key)
		if f.Locale == "" {
			f.Locale = def.Locale
		} else {
			c.checkLocale(f.Locale, f.At, key+".locale")
		}
		c.checkObject(def, f, format, key)
		if len(f.Any) == 0 && f.Type != TypeObject && !c.failedAt(f.At) && !c.failedKey(key) {
			c.problemAt(f.At, key, noPlace)
		}
		c.checkOptions(f, key)
		for j := range f.Any {
			c.checkSource(&f.Any[j], f, format, key)
			c.checkCarried(def, &f.Any[j], key)
		}
	}
}

// checkCarried checks that the carry of some link has the field of a source.
func (c *checker) checkCarried(def *Definition, s *Source, key string) {
	if s.Carry == "" {
		return
	}
	var names []string
	for _, l := range slices.Concat(def.Listing.Links, def.Detail.Links) {
		for _, f := range l.Carry {
			names = append(names, f.Name)
		}
	}
	switch n := nearest.Word(s.Carry, names); {
	case slices.Contains(names, s.Carry):
	case n != "":
		c.problemAt(s.At, key+".carry", "no carry of a link has %q; did you mean %q?", s.Carry, n)
	default:
		c.problemAt(s.At, key+".carry", "no carry of a link has %q; add it there", s.Carry)
	}
}

// checkType checks the types of a field and its members, and sets their defaults.
func (c *checker) checkType(f *Field, key string) {
	missing := TypeText
	if len(f.Fields) > 0 {
		missing = TypeObject
	}
	f.Type = c.fieldType(f.Type, missing, f.At, key+".type")
	f.Of = c.fieldType(f.Of, missing, f.At, key+".of")
	if f.Of != missing && f.Type != TypeList {
		c.problemAt(f.At, key+".of", "requires type: list")
	}
	if f.Of == TypeList {
		c.problemAt(f.At, key+".of", "a list of lists is not supported; use a list of objects")
	}
}

// checkObject checks the fields of an object.
func (c *checker) checkObject(def *Definition, f *Field, format, key string) {
	object := f.Type == TypeObject || (f.Type == TypeList && f.Of == TypeObject)
	switch {
	case object && len(f.Fields) == 0 && format != FormatJSON:
		c.problemAt(f.At, key, "an object requires fields")
	case !object && len(f.Fields) > 0:
		c.problemAt(f.At, key, "only objects have fields; set type: object, or type: list with of: object")
	}
	if len(f.Fields) == 0 {
		return
	}
	if slices.ContainsFunc(f.Any, func(s Source) bool { return s.JSONLD != "" || s.Microdata != "" || !s.JSON.IsZero() }) {
		format = FormatJSON // its fields are paths in the JSON of the source
	}
	c.checkFields(def, f.Fields, format, key+".fields")
}

// checkOptions checks that the type of the field supports its options.
func (c *checker) checkOptions(f *Field, key string) {
	typ := f.Type
	if typ == TypeList {
		typ = f.Of
	}
	belongs := func(set bool, name, to string, types ...string) {
		if set && !slices.Contains(types, typ) {
			c.problemAt(f.At, key+"."+name, "requires %s, but the field is a %s; set its type or remove the key", to, typ)
		}
	}
	belongs(f.Min != nil, "min", "numbers", TypeNumber, TypeInteger, TypePrice)
	belongs(f.Max != nil, "max", "numbers", TypeNumber, TypeInteger, TypePrice)
	belongs(f.Currency != "", "currency", "type: price", TypePrice)
	belongs(len(f.Layout) > 0, "layout", "type: date", TypeDate)
	if f.Min != nil && f.Max != nil && *f.Min > *f.Max {
		c.problemAt(f.At, key, "min is greater than max")
	}
	if f.Currency = strings.ToUpper(f.Currency); f.Currency != "" && !IsCurrency(f.Currency) {
		c.problemAt(f.At, key+".currency", "%q is not an ISO 4217 code such as EUR", f.Currency)
	}
	for _, l := range f.Layout {
		if time.Date(2033, 11, 22, 0, 0, 0, 0, time.UTC).Format(l) == l {
			c.problemAt(f.At, key+".layout", "%q has no day, month or year; write the layout as it would write 2 January 2006, such as 2006-01-02", l)
		}
	}
	if numeric := typ == TypeNumber || typ == TypeInteger || typ == TypePrice; f.Default != nil && numeric && !strings.ContainsFunc(*f.Default, unicode.IsDigit) {
		c.problemAt(f.At, key+".default", "%q is not of type %s", *f.Default, typ)
	}
	for _, s := range f.OneOf {
		if typ == TypeInteger && strings.Trim(s, "-0123456789") != "" {
			c.problemAt(f.At, key+".one_of", "%q is not of type %s and never matches", s, typ)
		}
	}
}

// fieldType checks the name of a type.
func (c *checker) fieldType(got, missing string, at Pos, key string) string {
	return c.oneOf(got, missing, words[Field]("type"), at, key)
}

// noPlace is the problem of a source that selects nothing.
const noPlace = "has no selector; set one of css, json, jsonld, microdata, meta, label, column, page, carry, value, exists and regex"

func (c *checker) checkSource(s *Source, f *Field, format, key string) {
	given := s.selectorKeys()
	switch {
	case len(given) == 0 && s.Regex.IsZero() && s.Attr == "" && s.Take == "":
		if !c.failedAt(s.At) {
			c.problemAt(s.At, key, noPlace)
		}
	case len(given) > 1:
		c.problemAt(s.At, key, "has %s in one source; keep one, or list them under any", strings.Join(given, " and "))
	}
	if s.CSS.Attr != "" && s.Attr == "" {
		s.Attr = s.CSS.Attr
	}
	c.checkTake(s, f, key)
	if s.Page != "" {
		c.oneOf(s.Page, "", words[Source]("page"), s.At, key+".page")
	}
	s.Scope = c.oneOf(s.Scope, "", words[Source]("scope"), s.At, key+".scope")
	if !s.JSON.IsZero() && format != FormatJSON && s.CSS.IsZero() && len(given) == 1 {
		c.problemAt(s.JSON.At, key+".json", "needs format: json on the page; for JSON in a script element or an attribute, also set css")
	}
	if s.Split != "" && s.Join != nil {
		c.problemAt(s.At, key, "split and join exclude each other")
	}
	c.checkSchemaOrg(s, key)
	for _, w := range s.Replace {
		if w.Pattern.IsZero() && !c.failedAt(w.At) {
			c.problemAt(w.At, key+".replace.pattern", "is missing; set the regex to replace")
		}
	}
}

// selectorKeys returns the selector keys of a source that are set.
func (s *Source) selectorKeys() []string {
	return keysIn(map[string]bool{
		"css": !s.CSS.IsZero(), "json": !s.JSON.IsZero() && s.CSS.IsZero(), "jsonld": s.JSONLD != "", "microdata": s.Microdata != "", "meta": s.Meta != "",
		"label": s.Label != "", "column": s.Column != "", "page": s.Page != "", "carry": s.Carry != "", "value": s.Value != nil, "exists": !s.Exists.IsZero(),
	})
}

// keysIn returns the members of a set, sorted.
func keysIn(set map[string]bool) []string {
	maps.DeleteFunc(set, func(_ string, in bool) bool { return !in })
	return sortedKeys(set)
}

func (c *checker) checkTake(s *Source, f *Field, key string) {
	if s.Attr != "" && s.Take != "" && s.Take != "attr" {
		c.problemAt(s.At, key+".take", "%q and attr exclude each other", s.Take)
	}
	s.Take = c.oneOf(s.Take, "", words[Source]("take"), s.At, key+".take")
	if s.Take == "" && (f.Type == TypeHTML || f.Of == TypeHTML && f.Type == TypeList) {
		s.Take = TakeInnerHTML
	}
}

// checkSchemaOrg checks the keys that consist of a schema.org type and a path.
func (c *checker) checkSchemaOrg(s *Source, key string) {
	for name, text := range map[string]string{"jsonld": s.JSONLD, "microdata": s.Microdata} {
		if text == "" {
			continue
		}
		typ, rest, found := strings.Cut(text, ".")
		path, err := ParsePath(rest)
		switch {
		case !found || typ == "" || rest == "" || rest[0] == '.':
			c.problemAt(s.At, key+"."+name, "%q is not a type and a path; write it like Product.offers.price or *.name", text)
		case err != nil:
			c.problemAt(s.At, key+"."+name, "%s", err)
		}
		s.typ, s.path = typ, path
	}
}
