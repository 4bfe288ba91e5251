package definition

import (
	"net/http"
	"slices"
	"strings"
	"unicode"
)

// checkChecks finds what a field's type makes pointless: such a check would hold for every value, or for none.
func (d *decoder) checkChecks(f *Field, key string) {
	typ := f.Type
	if typ == TypeList {
		typ = f.Of
	}
	belongs := func(set bool, name, to string, types ...string) {
		if set && !slices.Contains(types, typ) {
			d.problemAt(f.At, key+"."+name, "belongs to %s, and this is a %s; give a type, or take it out", to, typ)
		}
	}
	belongs(f.Min != nil, "min", "numbers", TypeNumber, TypeInteger, TypePrice)
	belongs(f.Max != nil, "max", "numbers", TypeNumber, TypeInteger, TypePrice)
	belongs(f.Currency != "", "currency", "type: price", TypePrice)
	belongs(len(f.Layout) > 0, "layout", "type: date", TypeDate)
	if numeric := typ == TypeNumber || typ == TypeInteger || typ == TypePrice; f.Default != nil && numeric && !strings.ContainsFunc(*f.Default, unicode.IsDigit) {
		d.problemAt(f.At, key+".default", "%q is no %s", *f.Default, typ)
	}
	for _, s := range f.OneOf {
		if typ == TypeInteger && strings.Trim(s, "-0123456789") != "" {
			d.problemAt(f.At, key+".one_of", "%q is no %s, so no value is it", s, typ)
		}
	}
}

// checkCookies finds what no browser would send.
func (d *decoder) checkCookies(cookies map[string]string, at Pos) {
	for _, name := range sortedKeys(cookies) {
		if err := (&http.Cookie{Name: name, Value: cookies[name]}).Valid(); err != nil {
			d.problemAt(at, "cookies."+name, "is not a valid cookie: the name is one word, and the value is ASCII without quotes, semicolons and backslashes")
		}
	}
}
