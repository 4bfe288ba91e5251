package extract

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"muster/sites/definition"
)

// Number reads the first number in a text, written as people of a locale
// write it: "1.234,56 €" in de is 1234.56, "1,234.56" in en is. The locale
// auto tells by the digits; what can be read in two ways, such as 1.234, it
// takes as thousands. A number that its locale cannot have written is read as
// in auto. Words behind it count: "2,3 млн" is 2300000, and so do fractions:
// "1 ½" is 1.5.
func Number(text, locale string) (float64, error) {
	f, rest, err := leadingNumberOf(text, locale)
	if err != nil {
		return 0, err
	}
	if m := short.FindStringSubmatch(rest); m != nil && (m[1] != "K" || f != math.Trunc(f)) {
		return math.Round(f*map[string]float64{"k": 1e3, "K": 1e3, "M": 1e6}[m[1]]*100) / 100, nil
	}
	return scaled(f, rest, magnitudes), nil
}

// short matches 1.2k and 3.4M, but not 5 m.
var short = regexp.MustCompile(`^([kKM])(?:[^\pL\d]|$)`)

// leadingNumberOf reads the first number in a text and returns what stands
// behind it.
func leadingNumberOf(text, locale string) (f float64, rest string, err error) {
	token, negative, behind := numberToken(unfraction(text))
	if token == "" {
		return 0, "", fmt.Errorf("no number in %q", clip(text))
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
	f, err = strconv.ParseFloat(b.String(), 64)
	if err != nil || math.IsInf(f, 0) {
		return 0, "", fmt.Errorf("number out of range in %q", clip(text))
	}
	return f, behind, nil
}

// magnitudes are words that stand for a thousand and more, in lower case.
// Those that begin with = must be the whole word.
var magnitudes = []struct {
	word   string
	factor float64
}{
	{"million", 1e6}, {"millón", 1e6}, {"millones", 1e6}, {"milhões", 1e6}, {"milhão", 1e6}, {"milion", 1e6}, {"=mio", 1e6}, {"=mln", 1e6}, {"=млн", 1e6}, {"милион", 1e6}, {"миллион", 1e6}, {"мільйон", 1e6},
	{"billion", 1e9}, {"milliard", 1e9}, {"=mrd", 1e9}, {"=mld", 1e9}, {"=млрд", 1e9}, {"милиард", 1e9}, {"миллиард", 1e9}, {"мільярд", 1e9},
	{"thousand", 1e3}, {"=tsd", 1e3}, {"=tys", 1e3}, {"=тыс", 1e3}, {"тысяч", 1e3}, {"=тис", 1e3}, {"тисяч", 1e3}, {"=хил", 1e3}, {"хиляд", 1e3}, {"=tis", 1e3},
	{"=lakh", 1e5}, {"=lakhs", 1e5}, {"=crore", 1e7}, {"=crores", 1e7},
}

// priceMagnitudes are those that only behind an amount of money mean that.
var priceMagnitudes = append([]struct {
	word   string
	factor float64
}{{"=k", 1e3}, {"=m", 1e6}, {"=mil", 1e3}, {"=bn", 1e9}, {"=cr", 1e7}, {"=l", 1e5}}, magnitudes...)

// scaled multiplies a number with what the word behind it stands for.
func scaled(f float64, rest string, words []struct {
	word   string
	factor float64
}) float64 {
	rest = strings.TrimLeft(rest, " ")
	for i, big := range []rune("万億亿萬") {
		after, ok := strings.CutPrefix(rest, string(big))
		if !ok {
			continue
		}
		f *= []float64{1e4, 1e8, 1e8, 1e4}[i]
		if more, tail, err := leadingNumberOf(after, "en"); err == nil && after != "" && plainRune([]rune(after)[0]) >= '0' && plainRune([]rune(after)[0]) <= '9' {
			return f + scaled(more, tail, nil) // 3万5000
		}
		return f
	}
	end := strings.IndexFunc(rest, func(r rune) bool { return !unicode.IsLetter(r) })
	if end < 0 {
		end = len(rest)
	}
	word := strings.ToLower(rest[:end])
	for _, m := range words {
		if whole, ok := strings.CutPrefix(m.word, "="); ok && word == whole || !ok && strings.HasPrefix(word, m.word) {
			return math.Round(f*m.factor*100) / 100
		}
	}
	return f
}

// fractions are the characters for them.
var fractions = map[rune]string{'½': "5", '¼': "25", '¾': "75", '⅓': "333333", '⅔': "666667", '⅕': "2", '⅛': "125", '⅜': "375", '⅝': "625", '⅞': "875"}

// unfraction writes 1 ½ as 1.5.
func unfraction(s string) string {
	at := strings.IndexFunc(s, func(r rune) bool { return fractions[r] != "" })
	if at < 0 {
		return s
	}
	r, size := utf8.DecodeRuneInString(s[at:])
	whole := strings.TrimRight(s[:at], " \u00a0\u202f\u2009")
	if n := len(whole); n == 0 || whole[n-1] < '0' || whole[n-1] > '9' {
		return s[:at] + "0." + fractions[r] + s[at+size:]
	}
	return whole + "." + fractions[r] + s[at+size:]
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
		token, negative, _ := numberToken(text)
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
// separators as dot, comma, apostrophe and space. The rest is the text behind.
func numberToken(text string) (token string, negative bool, rest string) {
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
		return "", false, ""
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
	return string(rs[start:end]), negative, string(rs[end:])
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
	case unicode.Is(unicode.Nd, r):
		return '0' + digitOf(r)
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

// digitOf is the value of a digit of any script: they stand in tens.
func digitOf(r rune) rune {
	for _, t := range unicode.Nd.R16 {
		if r >= rune(t.Lo) && r <= rune(t.Hi) {
			return (r - rune(t.Lo)) % 10
		}
	}
	for _, t := range unicode.Nd.R32 {
		if r >= rune(t.Lo) && r <= rune(t.Hi) {
			return (r - rune(t.Lo)) % 10
		}
	}
	return 0
}

// decimalPoint is the index of the decimal point in a token, or -1, and where
// the number ends.
func decimalPoint(token, locale string) (point, end int) {
	style, _ := definition.StyleOf(locale)
	group, sign := style.Group, style.Point
	if sign != "" {
		i := strings.Index(token, sign)
		whole := token
		if i >= 0 {
			whole = token[:i]
		}
		if strings.Count(token, sign) <= 1 && (i < 0 || !strings.ContainsAny(token[i+1:], group)) && grouped(whole, group, style.India) {
			return i, len(token)
		}
	}
	return guessPoint(token)
}

// grouped tells whether the separators of whole part it into groups of three,
// or as in India into groups of two and a last one of three.
func grouped(whole, group string, india bool) bool {
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
		case india && !last && len(p) == 2:
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
		if grouped(token, sign+" '", true) {
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

// ParsePrice reads the first price in a text: the first number beside a
// currency, or else the first. The decimals may stand behind the currency, as
// in 12€50, and 1.5M or 120k are understood.
//
// A sign that several currencies share, such as kr and $, is that of the
// locale, or where there is none, of the language lang.
func ParsePrice(text, locale, lang string) (Price, error) {
	if locale != "auto" && locale != "" {
		lang = locale
	}
	f, rest, err := leadingNumberOf(fromPrice(text), locale)
	if err != nil {
		return Price{}, err
	}
	if m := centsBehind.FindStringSubmatch(rest); m != nil && f == math.Trunc(f) {
		cents := number2(m[1] + m[2])
		return Price{math.Copysign(math.Abs(f)+float64(cents)/100, f), currencyIn(text, lang)}, nil
	}
	if code := minor(text, rest, lang); code != "" {
		return Price{f / 100, code}, nil
	}
	return Price{scaled(f, rest, priceMagnitudes), currencyIn(text, lang)}, nil
}

// minor is the currency of an amount in cents or pence, told by what stands
// behind the number, or "".
func minor(text, rest, lang string) string {
	switch {
	case strings.HasPrefix(strings.TrimLeft(rest, " "), "¢"):
		return currencyIn("$", lang)
	case penceBehind.MatchString(rest) && currencyIn(text, lang) == "" && strings.EqualFold(strings.ReplaceAll(lang, "_", "-"), "en-GB"):
		return "GBP"
	}
	return ""
}

var penceBehind = regexp.MustCompile(`^p(?:$|[^\pL\d])`)

// fromPrice is the text from the number on that is the price. "3 for £10" has
// it behind another; "10 - 20 €" has it first.
func fromPrice(text string) string {
	plain := strings.Map(plainRune, text)
	for at, tries := plain, 0; tries < 8; tries++ {
		token, _, behind := numberToken(at)
		if token == "" {
			break
		}
		head := at[:len(at)-len(behind)-len(token)]
		if moneyBefore.MatchString(head) || moneyBehind.MatchString(behind) {
			if tries == 0 {
				return text
			}
			return at
		}
		at = behind
	}
	return text
}

var (
	money       = `\p{Sc}|\beuros?\b|евро|євро|ευρώ|грн|円|元|원|лв|руб|дин|zł|Kč|Ft\b|lei\b|kr\b|TL\b|RM\b|Rp\b|Rs\b|đ|ر\.س|د\.إ|\b(?:` + strings.Join(isoCodes, "|") + `)\b`
	moneyBefore = regexp.MustCompile(`(?i)(?:` + money + `)[\s:.-]*$`)
	moneyBehind = regexp.MustCompile(`(?i)^[.,]?-?[\s]*(?:(?:k|m|mio|mln|mrd|bn|million|milliard|тыс|млн|млрд|хил|tys|tis|tsd|[万億亿萬]\d*)\pL{0,4}\.?\s*)?(?:` + money + `)|^\s*(?:-|to |bis |до |à )\s*\pL{0,3}\p{Sc}?\s?\d`)
)

var centsBehind = regexp.MustCompile(`^[€£$₽](\d{2})(?:$|[^\d.,%])|^\s?[€£$₽]\s?(\d{2})\s*$`)

// currencies are looked for in this order: longer signs before those they
// contain.
var currencies = []struct{ sign, code string }{
	{"US$", "USD"}, {"AU$", "AUD"}, {"CA$", "CAD"}, {"NZ$", "NZD"}, {"HK$", "HKD"}, {"NT$", "TWD"}, {"MX$", "MXN"}, {"R$", "BRL"}, {"A$", "AUD"}, {"C$", "CAD"}, {"S$", "SGD"},
	{"€", "EUR"}, {"£", "GBP"}, {"¥", "JPY"}, {"￥", "JPY"}, {"円", "JPY"}, {"元", "CNY"}, {"₹", "INR"}, {"₽", "RUB"}, {"₴", "UAH"}, {"₺", "TRY"}, {"₩", "KRW"}, {"원", "KRW"}, {"₪", "ILS"}, {"₫", "VND"}, {"đ", "VND"}, {"₿", "BTC"},
	{"лв", "BGN"}, {"руб", "RUB"}, {"zł", "PLN"}, {"Kč", "CZK"}, {"Ft", "HUF"}, {"lei", "RON"}, {"฿", "THB"}, {"₱", "PHP"}, {"₸", "KZT"}, {"₾", "GEL"}, {"₦", "NGN"}, {"din", "RSD"}, {"TL", "TRY"}, {"Rp", "IDR"}, {"RM", "MYR"}, {"ر.س", "SAR"}, {"د.إ", "AED"}, {"$", "USD"},
}

var isoCodes = strings.Fields("EUR USD GBP JPY CNY CHF BGN RUB UAH PLN CZK HUF RON SEK NOK DKK ISK TRY INR BRL CAD AUD NZD HKD SGD KRW ILS MXN ZAR RSD AED SAR THB VND IDR MYR PHP TWD KZT GEL MKD BAM ALL MDL COP CLP ARS PEN EGP NGN KES PKR BDT LKR UYU")

// shared are the signs that several currencies have, and which of them is
// meant by it in a language, or in a country, which is written in capitals.
// Words are in lower case.
var shared = map[string]map[string]string{
	"kr":  {"sv": "SEK", "da": "DKK", "nb": "NOK", "no": "NOK", "nn": "NOK", "is": "ISK"},
	"fr":  {"CH": "CHF"},
	"rs":  {"IN": "INR", "hi": "INR", "bn": "INR", "ta": "INR", "te": "INR", "mr": "INR", "gu": "INR", "PK": "PKR", "ur": "PKR", "LK": "LKR"},
	"r":   {"ZA": "ZAR", "af": "ZAR"},
	"р":   {"ru": "RUB"},
	"zl":  {"pl": "PLN"},
	"km":  {"bs": "BAM", "BA": "BAM"},
	"ден": {"mk": "MKD"},
	"¥":   {"zh": "CNY"},
	"￥":   {"zh": "CNY"},
	"元":   {"TW": "TWD", "HK": "HKD"},
	"lei": {"MD": "MDL"},
	"$":   {"CA": "CAD", "AU": "AUD", "NZ": "NZD", "SG": "SGD", "HK": "HKD", "TW": "TWD", "MX": "MXN", "CL": "CLP", "AR": "ARS", "CO": "COP", "UY": "UYU"},
}

// byLocale is what a shared sign means in a locale such as sv, en-CA or ch,
// or "": its country decides, then its language.
func byLocale(sign, locale string) string {
	language, country, _ := strings.Cut(strings.ReplaceAll(strings.ToLower(locale), "_", "-"), "-")
	if language == "ch" || language == "in" {
		country = language // which these two are
	}
	return cmp.Or(shared[sign][strings.ToUpper(country)], shared[sign][language])
}

// names are words for currencies, beside their codes.
var names = map[string]string{"euro": "EUR", "euros": "EUR", "евро": "EUR", "євро": "EUR", "ευρώ": "EUR", "грн": "UAH", "гривень": "UAH", "гривен": "UAH", "sfr": "CHF", "dollars": "USD", "дин": "RSD", "kč": "CZK"}

// currencyIn is the currency that a text names: by its code or a word for it,
// else by a sign, which in locale may mean another than elsewhere.
func currencyIn(text, locale string) string {
	words := strings.FieldsFunc(text, func(r rune) bool { return !unicode.IsLetter(r) })
	for _, w := range words {
		for _, c := range isoCodes {
			if strings.EqualFold(w, c) {
				return c
			}
		}
	}
	for _, c := range currencies {
		for _, part := range strings.SplitAfter(text, c.sign) {
			if before, ok := strings.CutSuffix(part, c.sign); ok && wholeSign(c.sign, before) {
				return cmp.Or(byLocale(c.sign, locale), c.code)
			}
		}
	}
	for _, w := range words {
		lower := strings.ToLower(w)
		if code := names[lower]; code != "" {
			return code
		}
		if code := byLocale(lower, locale); code != "" && w != "km" { // kilometres
			return code
		}
	}
	return ""
}

// wholeSign tells whether a sign that begins with a letter stands for itself,
// not at the end of a word.
func wholeSign(sign, before string) bool {
	first, _ := utf8.DecodeRuneInString(sign)
	last, _ := utf8.DecodeLastRuneInString(before)
	return !(first < utf8.RuneSelf && unicode.IsLetter(first)) || !unicode.IsLetter(last)
}

func clip(s string) string { return clipTo(60, s) }

// clipTo shortens a text to n characters on one line.
func clipTo(n int, s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if rs := []rune(s); len(rs) > n {
		return string(rs[:n]) + "…"
	}
	return s
}
