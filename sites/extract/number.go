package extract

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
)

// Number reads the first number in a text, written as people of a locale
// write it: "1.234,56 €" in de is 1234.56, "1,234.56" in en is. The locale
// auto tells by the digits; what can be read in two ways, such as 1.234, it
// takes as thousands. A number that its locale cannot have written is read as
// in auto.
func Number(text, locale string) (float64, error) {
	token, negative := numberToken(text)
	if token == "" {
		return 0, fmt.Errorf("no number in %q", clip(text))
	}
	point, end := decimalPoint(token, locale)
	token = token[:end]
	var b strings.Builder
	if negative {
		b.WriteByte('-')
	}
	for i, r := range token {
		switch {
		case r >= '0' && r <= '9':
			b.WriteRune(r)
		case i == point:
			b.WriteByte('.')
		}
	}
	f, err := strconv.ParseFloat(b.String(), 64)
	if err != nil || math.IsInf(f, 0) {
		return 0, fmt.Errorf("number out of range in %q", clip(text))
	}
	return f, nil
}

// Integer reads the first number in a text like Number, and refuses one with
// a fraction.
func Integer(text, locale string) (int64, error) {
	f, err := Number(text, locale)
	if err != nil {
		return 0, err
	}
	if f != math.Trunc(f) {
		return 0, fmt.Errorf("%v in %q is not a whole number", f, clip(text))
	}
	if math.Abs(f) >= 1<<53 {
		// Beyond what a float holds, an id or a barcode: digits only.
		token, negative := numberToken(text)
		digits := strings.Map(func(r rune) rune {
			if r < '0' || r > '9' {
				return -1
			}
			return r
		}, token)
		if negative {
			digits = "-" + digits
		}
		i, err := strconv.ParseInt(digits, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("number out of range in %q", clip(text))
		}
		return i, nil
	}
	return int64(f), nil
}

// numberToken cuts the first number out of a text, with ASCII digits and its
// separators as dot, comma, apostrophe and space.
func numberToken(text string) (token string, negative bool) {
	rs := []rune(text)
	for i, r := range rs {
		rs[i] = plainRune(r)
	}
	digit := func(i int) bool { return i >= 0 && i < len(rs) && rs[i] >= '0' && rs[i] <= '9' }
	start := 0
	for start < len(rs) && !digit(start) {
		start++
	}
	if start == len(rs) {
		return "", false
	}
	if start > 0 && (rs[start-1] == '.' || rs[start-1] == ',') && (start == 1 || !unicode.IsLetter(rs[start-2])) {
		start-- // .5
	}
	// A minus belongs to the number when nothing or a space or a currency
	// stands before it, not in "10-20" or "A-5".
	sign := start - 1
	for sign >= 0 && (unicode.Is(unicode.Sc, rs[sign]) || rs[sign] == ' ') {
		sign--
	}
	if sign >= 0 && rs[sign] == '-' && (sign == 0 || !(unicode.IsLetter(rs[sign-1]) || digit(sign-1))) && (start-sign == 1 || sign == 0) {
		negative = true
	}
	end := start
	for end < len(rs) {
		switch {
		case digit(end):
			end++
			continue
		case (rs[end] == '.' || rs[end] == ',') && digit(end+1):
			end++
			continue
		case (rs[end] == ' ' || rs[end] == '\'') && digit(end+1) && digit(end+2) && digit(end+3) && !digit(end+4) && groupBefore(rs[start:end]):
			end++
			continue
		}
		break
	}
	return string(rs[start:end]), negative
}

// groupBefore tells whether what was read so far can be followed by a group
// of three: one to three digits since the last separator, and no decimals.
func groupBefore(rs []rune) bool {
	n := 0
	for i := len(rs) - 1; i >= 0; i-- {
		switch r := rs[i]; {
		case r >= '0' && r <= '9':
			n++
		case r == '.' || r == ',':
			return false
		default:
			return n == 3
		}
	}
	return n >= 1 && n <= 3
}

// plainRune maps digits, spaces, quotes and dashes of other scripts to ASCII.
func plainRune(r rune) rune {
	switch {
	case r < 0x80:
		if r == '\t' || r == '\n' || r == '\r' {
			return ' '
		}
		return r
	case r >= '０' && r <= '９':
		return '0' + r - '０'
	case r >= '٠' && r <= '٩':
		return '0' + r - '٠'
	case r >= '۰' && r <= '۹':
		return '0' + r - '۰'
	case r >= '०' && r <= '९':
		return '0' + r - '०'
	case r == '’' || r == '‘' || r == '´' || r == 'ʼ' || r == '′':
		return '\''
	case r == '−' || r == '–' || r == '﹣' || r == '－':
		return '-'
	case r == '٬' || r == '，':
		return ','
	case r == '٫' || r == '．':
		return '.'
	case unicode.Is(unicode.Zs, r):
		return ' '
	}
	return r
}

// decimalPoint is the index of the decimal point in a token, or -1, and where
// the number ends.
func decimalPoint(token, locale string) (point, end int) {
	var group, sign string
	switch locale {
	case "en", "in":
		group, sign = ",' ", "."
	case "de", "es", "it", "bg":
		group, sign = ".' ", ","
	case "fr":
		group, sign = " .'", ","
	case "ch":
		group, sign = "' ", "."
	}
	if sign != "" {
		i := strings.Index(token, sign)
		whole := token
		if i >= 0 {
			whole = token[:i]
		}
		if strings.Count(token, sign) <= 1 && (i < 0 || !strings.ContainsAny(token[i+1:], group)) && grouped(whole, group, locale) {
			return i, len(token)
		}
	}
	return guessPoint(token)
}

// grouped tells whether the separators of whole part it into groups of three,
// or as in India into groups of two and a last one of three.
func grouped(whole, group, locale string) bool {
	parts := strings.FieldsFunc(whole, func(r rune) bool { return strings.ContainsRune(group, r) })
	if strings.ContainsFunc(strings.Join(parts, ""), func(r rune) bool { return r < '0' || r > '9' }) {
		return false
	}
	for i, p := range parts {
		last := i == len(parts)-1
		switch {
		case len(parts) == 1:
		case i == 0 && len(p) <= 3:
		case len(p) == 3:
		case locale == "in" && !last && len(p) == 2:
		default:
			return false
		}
	}
	return true
}

// guessPoint tells the decimal point by the digits alone.
func guessPoint(token string) (point, end int) {
	end = len(token)
	dots, commas := strings.Count(token, "."), strings.Count(token, ",")
	lastDot, lastComma := strings.LastIndex(token, "."), strings.LastIndex(token, ",")
	switch {
	case dots == 0 && commas == 0:
		return -1, end
	case dots > 0 && commas > 0:
		last := max(lastDot, lastComma)
		if strings.Count(token, token[last:last+1]) > 1 {
			return -1, end
		}
		return last, end
	case dots+commas > 1:
		sign := token[max(lastDot, lastComma):][:1]
		if grouped(token, sign+" '", "in") {
			return -1, end
		}
		// A date or a version: the number ends at the second sign.
		first := strings.Index(token, sign)
		return first, first + 1 + strings.Index(token[first+1:], sign)
	}
	i := max(lastDot, lastComma)
	before, after := token[:i], token[i+1:]
	switch {
	case len(after) != 3, strings.TrimLeft(before, "0") == "", len(before) > 3 && !strings.ContainsAny(before, " '"):
		return i, end
	case strings.ContainsAny(before, " '"):
		return i, end // the groups have a separator of their own
	}
	return -1, end
}

// Price is an amount with its currency.
type Price struct {
	Amount   float64 `json:"amount"`
	Currency string  `json:"currency,omitempty"` // ISO 4217, as far as the text tells
}

// ParsePrice reads the first price in a text.
func ParsePrice(text, locale string) (Price, error) {
	f, err := Number(text, locale)
	return Price{f, currencyIn(text)}, err
}

// currencies are looked for in this order: longer signs before those they
// contain.
var currencies = []struct{ sign, code string }{
	{"US$", "USD"}, {"A$", "AUD"}, {"C$", "CAD"}, {"NZ$", "NZD"}, {"HK$", "HKD"}, {"R$", "BRL"}, {"S$", "SGD"},
	{"€", "EUR"}, {"£", "GBP"}, {"¥", "JPY"}, {"円", "JPY"}, {"元", "CNY"}, {"₹", "INR"}, {"₽", "RUB"}, {"₴", "UAH"}, {"₺", "TRY"}, {"₩", "KRW"}, {"₪", "ILS"}, {"₫", "VND"}, {"₿", "BTC"},
	{"лв", "BGN"}, {"руб", "RUB"}, {"zł", "PLN"}, {"Kč", "CZK"}, {"Ft", "HUF"}, {"lei", "RON"}, {"$", "USD"},
}

var isoCodes = strings.Fields("EUR USD GBP JPY CNY CHF BGN RUB UAH PLN CZK HUF RON SEK NOK DKK ISK TRY INR BRL CAD AUD NZD HKD SGD KRW ILS MXN ZAR RSD")

func currencyIn(text string) string {
	words := strings.FieldsFunc(text, func(r rune) bool { return !unicode.IsLetter(r) })
	for _, w := range words {
		for _, c := range isoCodes {
			if strings.EqualFold(w, c) {
				return c
			}
		}
	}
	for _, c := range currencies {
		if strings.Contains(text, c.sign) {
			return c.code
		}
	}
	return ""
}

func clip(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if rs := []rune(s); len(rs) > 60 {
		return string(rs[:60]) + "…"
	}
	return s
}
