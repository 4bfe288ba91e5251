package extract

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/html"

	"muster/sites/definition"
	"muster/sites/internal/lines"
)

// convert converts a match to a value of a type. A nil value means no value.
func (x *run) convert(f *definition.Field, typ string, fd found, s *definition.Source, path string) (any, error) {
	switch {
	case fd.err != nil:
		return nil, fd.err
	case typ == definition.TypeObject:
		return x.object(f, fd, path)
	case typ == definition.TypeBool:
		return truth(fd)
	}
	text := textFor(typ, fd)
	if typ != definition.TypeHTML && !(typ == definition.TypeText && fd.whole) {
		text = Fold(text)
	}
	if text == "" {
		return nil, nil
	}
	v, err := x.parse(f, typ, text, fd, s)
	if err != nil {
		return nil, err
	}
	return v, nil
}

// object extracts the fields of an object from a match, or returns its JSON if there are no fields.
func (x *run) object(f *definition.Field, fd found, path string) (any, error) {
	if len(f.Fields) == 0 {
		return fd.json, nil
	}
	values, problems := x.fields(f.Fields, fd.at, path)
	if len(problems) > 0 {
		var all []string
		for _, p := range problems {
			all = append(all, p.String())
		}
		return nil, errors.New(strings.Join(all, "; "))
	}
	if len(values) == 0 {
		return nil, nil
	}
	return object(values), nil
}

// textFor returns the text of a match. For a schema.org object that is its name or URL, without markup.
func textFor(typ string, fd found) string {
	text := fd.text
	if typ == definition.TypeFile {
		typ = definition.TypeURL
	}
	if obj, ok := fd.json.(map[string]any); ok && fd.org && typ != definition.TypePrice {
		text = textOf(obj, typ)
	}
	switch {
	case !fd.coded || typ == definition.TypeHTML:
	case typ == definition.TypeURL:
		text = strings.ReplaceAll(text, "&amp;", "&")
	default:
		text = stripMarkup(text)
	}
	return text
}

// stripMarkup strips markup.
func stripMarkup(text string) string {
	if !strings.ContainsAny(text, "<&") {
		return text
	}
	root, err := html.Parse(strings.NewReader(text))
	if err != nil {
		return text
	}
	return Text(root)
}

// parse parses a text as a value of a type.
func (x *run) parse(f *definition.Field, typ, text string, fd found, s *definition.Source) (any, error) {
	locale := f.Locale
	if n, isNumber := fd.json.(json.Number); isNumber || fd.org && plainNumber(text) {
		locale = "en" // notation of JSON and schema.org
		if isNumber && strings.ContainsAny(text, "eE") && (typ == definition.TypeNumber || typ == definition.TypeInteger || typ == definition.TypePrice) {
			f, err := n.Float64()
			if err != nil {
				return nil, fmt.Errorf("number out of range in %q", short(text))
			}
			text = strconv.FormatFloat(f, 'f', -1, 64)
		}
	}
	switch typ {
	case definition.TypeNumber:
		if locale == "auto" {
			locale = x.lang(locale)
		}
		return Number(text, locale)
	case definition.TypeInteger:
		return Integer(text, locale)
	case definition.TypePrice:
		p, err := ParsePrice(text, locale, x.lang(f.Locale))
		p.Currency = cmp.Or(p.Currency, fd.currency, f.Currency)
		return p, err
	case definition.TypeDate:
		return Date(text, x.dates(f))
	case definition.TypeURL, definition.TypeFile:
		if s != nil && strings.HasSuffix(s.Attr, "srcset") {
			text = largest(text)
		}
		u, err := x.doc.reference(text)
		if err != nil {
			return nil, fmt.Errorf("%q is not a URL", short(text))
		}
		if typ == definition.TypeFile {
			return x.download(u)
		}
		return u.String(), nil
	}
	return text, nil
}

// download adds a link to a file and returns the name of the file.
func (x *run) download(u *url.URL) (string, error) {
	u = x.def.Move(u)
	u.Fragment, u.RawFragment = "", ""
	if !x.def.OwnsHost(u) {
		return "", fmt.Errorf("the file is on another host, %s; add it to hosts", u.Host)
	}
	to := Link{URL: u.String(), Kind: definition.KindFile}
	if !slices.ContainsFunc(x.res.Links, func(l Link) bool { return l.URL == to.URL && l.Kind == to.Kind }) {
		x.res.Links = append(x.res.Links, to)
	}
	return "files/" + FileName(to.URL), nil
}

// FileName returns the name of a downloaded file: the hash of its URL and the extension.
func FileName(rawURL string) string {
	sum := sha256.Sum256([]byte(rawURL))
	at, _, _ := strings.Cut(rawURL, "?")
	return hex.EncodeToString(sum[:16]) + extension.FindString(strings.ToLower(at))
}

var extension = regexp.MustCompile(`\.[a-z0-9]{1,5}$`)

// dates returns the notation of dates on the page, by the locale or the language of the page.
func (x *run) dates(f *definition.Field) DateOptions {
	locale := x.lang(f.Locale)
	style, _ := definition.StyleOf(locale)
	return DateOptions{Layouts: f.Layout, Locale: locale, Order: style.Order, Zone: x.def.Zone(), Now: x.doc.Page.FetchedAt}
}

// lang returns the locale of a field, or the language of the page if the locale is auto.
func (x *run) lang(locale string) string {
	if style, _ := definition.StyleOf(locale); style.Order != "" || x.doc.Root == nil {
		return locale
	}
	return cmp.Or(x.doc.Language(), locale)
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
		_ = lines.WriteJSON(&b, v.Name)
		b.WriteByte(':')
		if err := lines.WriteJSON(&b, v.Value); err != nil {
			return nil, fmt.Errorf("encode field %s: %w", v.Name, err)
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// wrong returns the reason why a value fails its field's checks, or "".
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
			return fmt.Sprintf("%v is less than %v", n, *f.Min)
		}
		if f.Max != nil && n > *f.Max {
			return fmt.Sprintf("%v is greater than %v", n, *f.Max)
		}
	}
	text := fmt.Sprint(v)
	if !f.Match.IsZero() && !f.Match.MatchString(text) {
		return fmt.Sprintf("%q does not match %s", short(text), f.Match)
	}
	if len(f.OneOf) > 0 && !slices.Contains(f.OneOf, text) {
		return fmt.Sprintf("%q is not one of %s", short(text), strings.Join(f.OneOf, ", "))
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
