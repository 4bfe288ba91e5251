package extract

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/html"

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
	text := fd.text
	if obj, ok := fd.json.(map[string]any); ok && s != nil && (s.JSONLD != "" || s.Microdata != "") && typ != definition.TypePrice {
		text = plainly(obj, typ)
	}
	if s != nil && s.JSONLD != "" && typ == definition.TypeText && strings.ContainsAny(text, "<&") {
		if root, err := html.Parse(strings.NewReader(text)); err == nil {
			text = Text(root)
		}
	}
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
		if locale == "auto" {
			locale = x.lang(locale)
		}
		return noNil(Number(text, locale))
	case definition.TypeInteger:
		return noNil(Integer(text, locale))
	case definition.TypePrice:
		if fd.node != nil && fd.json == nil && fd.text == Text(fd.node) {
			text = priceText(fd.node)
		}
		p, err := ParsePrice(text, locale, x.lang(f.Locale))
		p.Currency = cmp.Or(p.Currency, fd.currency, f.Currency)
		return noNil(p, err)
	case definition.TypeDate:
		return noNil(Date(text, x.dates(f)))
	case definition.TypeURL:
		if s != nil && strings.HasSuffix(s.Attr, "srcset") {
			text = largest(text)
		}
		u, err := x.doc.reference(text)
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
	locale := x.lang(f.Locale)
	style, _ := definition.StyleOf(locale)
	return DateOptions{Layouts: f.Layout, Locale: locale, Order: style.Order, Zone: x.def.Zone(), Now: x.doc.Page.FetchedAt}
}

// lang is the locale of a field, or where that is auto, the language of the
// page.
func (x *run) lang(locale string) string {
	if style, _ := definition.StyleOf(locale); style.Order != "" || x.doc.Root == nil {
		return locale
	}
	if root := htmlSelector.First(x.doc.Root); root != nil {
		lang, _ := attr(root, "lang")
		return lang
	}
	return locale
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
		if err := put(&b, v.Name, v.Value); err != nil {
			return nil, err
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// put encodes a name and its value, with < > & as they are.
func put(b *bytes.Buffer, name string, v any) error {
	for i, part := range []any{name, v} {
		enc := json.NewEncoder(b)
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

func truth(fd found) (any, error) {
	if b, ok := fd.json.(bool); ok {
		return b, nil
	}
	t := strings.TrimRight(strings.ToLower(Fold(fd.text)), ".!")
	t = schemaOrg.ReplaceAllString(t, "")
	if t == "" {
		return nil, nil
	}
	if v, ok := yesOrNo(t); ok {
		return v, nil
	}
	// "in stock (12)", "in stock, ships today", "only 12 in stock".
	if m := stockBefore.FindStringSubmatch(t); m != nil {
		if v, ok := yesOrNo(strings.TrimSpace(m[1])); ok && len([]rune(m[1])) > 3 {
			return v && (m[2] == "" || digits(m[2]) > 0), nil
		}
	}
	if m := stockBehind.FindStringSubmatch(t); m != nil {
		if v, ok := yesOrNo(strings.TrimSpace(m[2])); ok && len([]rune(m[2])) > 3 {
			return v && digits(m[1]) > 0, nil
		}
	}
	return nil, fmt.Errorf("%q is neither yes nor no; use regex to say what yes is", clip(t))
}

var (
	schemaOrg   = regexp.MustCompile(`^(?:https?://)?schema\.org/`)
	stockBefore = regexp.MustCompile(`^([^\d,;:()–|-]+)(?:[,;–|]|\s-\s|[:(]\s*(\d{1,6})\b|\()`)
	stockBehind = regexp.MustCompile(`^(?:\pL+\s+)?(\d{1,6})\s+(?:left\s+)?(.+)$`)
)

func yesOrNo(t string) (v, ok bool) {
	return yes[t], yes[t] || no[t]
}

// yes and no are words for them, and for what is in stock and what is not.
var (
	yes = wordSet(`true,yes,y,1,on,ja,oui,si,sí,sì,sim,tak,ano,áno,igen,evet,da,да,так,есть,є,ναι,はい,是,有,네,예,✓,✔,checked,available,in stock,instock,limitedavailability,onlineonly,instoreonly,low stock,
		auf lager,verfügbar,sofort verfügbar,lieferbar,sofort lieferbar,vorrätig,en stock,disponible,disponibile,disponível,em estoque,em stock,op voorraad,leverbaar,dostępny,dostępne,w magazynie,skladem,na sklade,raktáron,stokta,i lager,på lager,varastossa,în stoc,в наличност,в наличии,в наявності,налично,наличен,на склад,διαθέσιμο,在庫あり,有货,有貨,재고 있음`)
	no = wordSet(`false,no,n,0,off,nein,nee,nej,nei,non,não,nie,ne,nem,hayır,nu,не,нет,ні,няма,όχι,いいえ,否,无,無,아니요,✗,✘,×,unavailable,not available,not in stock,out of stock,outofstock,sold out,soldout,discontinued,
		nicht auf lager,nicht verfügbar,nicht lieferbar,ausverkauft,vergriffen,épuisé,en rupture de stock,rupture de stock,indisponible,agotado,sin stock,no disponible,esaurito,non disponibile,esgotado,indisponível,uitverkocht,niet op voorraad,niedostępny,niedostępne,wyprzedane,vyprodáno,není skladem,vypredané,elfogyott,nincs raktáron,tükendi,stokta yok,slutsåld,slut i lager,udsolgt,ikke på lager,utsolgt,loppu,loppuunmyyty,epuizat,stoc epuizat,изчерпан,изчерпано,изчерпана,няма в наличност,не е наличен,нет в наличии,немає в наявності,εξαντλημένο,在庫なし,売り切れ,无货,缺货,無貨,품절`)
)

func wordSet(list string) map[string]bool {
	set := map[string]bool{}
	for w := range strings.SplitSeq(list, ",") {
		set[strings.TrimSpace(w)] = true
	}
	return set
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
