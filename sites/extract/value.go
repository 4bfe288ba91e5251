package extract

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"muster/sites/definition"
)

// convert makes a value of a type. A nil value is none.
func (x *run) convert(f *definition.Field, typ string, fd found, s *definition.Source, path string) (any, error) {
	if fd.err != nil {
		return nil, fd.err
	}
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
	if fd.whole && typ == definition.TypeText {
		if text == "" {
			return nil, nil
		}
		return text, nil
	}
	text = Fold(text)
	if text == "" {
		return nil, nil
	}
	locale := f.Locale
	if _, isNumber := fd.json.(json.Number); isNumber || (s != nil && (s.JSONLD != "" || s.Microdata != "") && plainNumber(text)) {
		locale = "en" // as JSON and schema.org write it
	}
	switch typ {
	case definition.TypeNumber:
		return noNil(Number(text, locale))
	case definition.TypeInteger:
		return noNil(Integer(text, locale))
	case definition.TypePrice:
		p, err := ParsePrice(text, locale)
		p.Currency = cmp.Or(p.Currency, f.Currency)
		return noNil(p, err)
	case definition.TypeDate:
		return noNil(Date(text, x.dates(f)))
	case definition.TypeFloor:
		return noNil(ParseFloor(text))
	case definition.TypeURL:
		if s != nil && strings.HasSuffix(s.Attr, "srcset") {
			text = largest(text)
		}
		u, err := x.doc.base.Parse(strings.ReplaceAll(text, " ", "%20"))
		if err != nil {
			return nil, fmt.Errorf("%q is not a URL", clip(text))
		}
		return u.String(), nil
	}
	return text, nil
}

// dates says how dates are written on the page. Where the locale does not
// tell, the language of the page does.
func (x *run) dates(f *definition.Field) DateOptions {
	style, _ := definition.StyleOf(f.Locale)
	if style.Order == "" && x.doc.Root != nil {
		if root := htmlSelector.First(x.doc.Root); root != nil {
			lang, _ := attr(root, "lang")
			style, _ = definition.StyleOf(lang)
		}
	}
	return DateOptions{Layouts: f.Layout, Order: style.Order, Zone: x.def.Zone(), Now: x.doc.Page.FetchedAt}
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
