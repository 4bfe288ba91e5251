package extract

import (
	"cmp"
	"errors"
	"math"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"muster/sites/definition"
)

// Price is an amount with its currency.
type Price struct {
	Amount   float64 `json:"amount"`
	Currency string  `json:"currency,omitempty"` // ISO 4217; "" if unknown
}

// ParsePrice returns the first price in a text: the first number next to a currency, or else the first number. The decimals may
// follow the currency, as in 12€50. In the locale auto 1.234 is 1234. As for Number, 1.5M is an error.
//
// locale determines the currency of a sign that several currencies share, such as kr and $, and in the locale auto the language
// lang does.
func ParsePrice(text, locale, lang string) (Price, error) {
	if locale != "auto" && locale != "" {
		lang = locale
	}
	n, err := priceNumber(text, locale)
	if err != nil {
		return Price{}, err
	}
	if err := errors.Join(n.isUnit(text, true), n.isExact(text)); err != nil {
		return Price{}, err
	}
	code := currencyIn(text, lang)
	if m := centsBehind.FindStringSubmatch(n.after); m != nil && n.value == math.Trunc(n.value) {
		cents := float64(digits(m[1]+m[2])) / 100
		return Price{math.Copysign(math.Abs(n.value)+cents, n.value), code}, nil
	}
	switch {
	case strings.HasPrefix(strings.TrimLeft(n.after, " "), "¢"):
		return Price{n.value / 100, currencyIn("$", lang)}, nil
	case code == "" && isPence(n.after) && strings.EqualFold(strings.ReplaceAll(lang, "_", "-"), "en-GB"):
		return Price{n.value / 100, "GBP"}, nil
	}
	return Price{n.value, code}, nil
}

// isPence reports whether a text begins with p as a word.
func isPence(text string) bool {
	rest, ok := strings.CutPrefix(text, "p")
	r, _ := utf8.DecodeRuneInString(rest)
	return ok && !unicode.IsLetter(r) && !unicode.IsDigit(r)
}

// maxPriceTries limits the numbers of a text that are considered as the price.
const maxPriceTries = 8

// priceNumber returns the number of the price: in "3 for £10" the second, in "10 - 20 €" the first.
func priceNumber(text, locale string) (numeral, error) {
	first, err := readNumber(text, locale)
	if err != nil {
		return first, err
	}
	n := first
	for range maxPriceTries {
		if moneyBefore.MatchString(n.before) || moneyBehind.MatchString(n.after) && !moneyOfNext.MatchString(n.after) {
			return n, nil
		}
		if n, err = readNumber(n.after, locale); err != nil {
			break
		}
	}
	return first, nil
}

var money = `(?-i:\b(?:` + strings.Join(definition.Currencies(), "|") + `)\b)|\p{Sc}|\beuros?\b|евро|євро|ευρώ|грн|円|元|원|лв|руб|дин|zł|Kč|Ft\b|lei\b|kr\b|TL\b|RM\b|Rp\b|Rs\b|đ|ر\.س|د\.إ|\b(?:` + isoCodes + `)\b`

var (
	// The text around the number of a price.
	moneyBefore = regexp.MustCompile(`(?i)(?:` + money + `)[\s:.-]*$`)
	moneyBehind = regexp.MustCompile(`(?i)^[.,]?-?[\s]*(?:(?:k|m|mio|mln|mrd|bn|million|milliard|тыс|млн|млрд|хил|tys|tis|tsd|[万億亿萬]\d*)\pL{0,4}\.?\s*)?(?:` + money + `)|^\s*(?:-|to |bis |до |à )\s*\pL{0,3}\p{Sc}?\s?\d`)
	centsBehind = regexp.MustCompile(`^[€£$₽](\d{2})(?:$|[^\d.,%])|^\s?[€£$₽]\s(\d{2})\s*$`)
	// moneyOfNext matches a currency before another number. A single digit is a footnote.
	moneyOfNext = regexp.MustCompile(`(?i)^\s+(?:` + money + `)\d\d`)
	// codeBeside matches a code next to a number that is not in isoCodes.
	codeBeside = regexp.MustCompile(`\b([A-Z]{3})\s?-?\d|\d\s?([A-Z]{3})\b`)
)

// currencies are searched in this order, so longer signs precede their substrings.
var currencies = []struct{ sign, code string }{
	{"US$", "USD"}, {"AU$", "AUD"}, {"CA$", "CAD"}, {"NZ$", "NZD"}, {"HK$", "HKD"}, {"NT$", "TWD"}, {"MX$", "MXN"}, {"R$", "BRL"}, {"A$", "AUD"}, {"C$", "CAD"}, {"S$", "SGD"},
	{"€", "EUR"}, {"£", "GBP"}, {"¥", "JPY"}, {"￥", "JPY"}, {"円", "JPY"}, {"元", "CNY"}, {"₹", "INR"}, {"₽", "RUB"}, {"₴", "UAH"}, {"₺", "TRY"}, {"₩", "KRW"}, {"원", "KRW"}, {"₪", "ILS"}, {"₫", "VND"}, {"đ", "VND"}, {"₿", "BTC"},
	{"лв", "BGN"}, {"руб", "RUB"}, {"zł", "PLN"}, {"Kč", "CZK"}, {"Ft", "HUF"}, {"lei", "RON"}, {"฿", "THB"}, {"₱", "PHP"}, {"₸", "KZT"}, {"₾", "GEL"}, {"₦", "NGN"}, {"din", "RSD"}, {"TL", "TRY"}, {"Rp", "IDR"}, {"RM", "MYR"}, {"ر.س", "SAR"}, {"د.إ", "AED"}, {"$", "USD"},
	{"Euro", "EUR"}, {"euro", "EUR"}, {"евро", "EUR"}, {"євро", "EUR"}, {"ευρώ", "EUR"}, {"грн", "UAH"}, {"гривен", "UAH"}, {"SFr", "CHF"}, {"dollars", "USD"}, {"дин", "RSD"}, {"kč", "CZK"},
}

// isoCodes are recognized anywhere in a text, in upper or lower case. All other ISO 4217 codes must be in upper case next to the
// number, since TOP, ALL and TRY are also words.
const isoCodes = "EUR|USD|GBP|JPY|CNY|CHF|BGN|RUB|UAH|PLN|CZK|HUF|RON|SEK|NOK|DKK|ISK|TRY|INR|BRL|CAD|AUD|NZD|HKD|SGD|KRW|ILS|MXN|ZAR|RSD|AED|SAR|THB|VND|IDR|MYR|PHP|TWD|KZT|GEL|MKD|BAM|ALL|MDL|COP|CLP|ARS|PEN|EGP|NGN|KES|PKR|BDT|LKR|UYU|VES|SLE|MRU"

// shared maps signs of several currencies to the currency by language (lower case) or country (upper case).
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

// byLocale returns the currency of a shared sign in a locale such as sv, en-CA or ch, or "". The country has precedence over the
// language.
func byLocale(sign, locale string) string {
	language, country, _ := strings.Cut(strings.ReplaceAll(strings.ToLower(locale), "_", "-"), "-")
	if language == "ch" || language == "in" {
		country = language // locales that are countries
	}
	return cmp.Or(shared[sign][strings.ToUpper(country)], shared[sign][language])
}

// currencyIn returns the currency in a text: by its code, a sign or a word. locale determines the meaning of a shared sign.
func currencyIn(text, locale string) string {
	words := strings.FieldsFunc(text, func(r rune) bool { return !unicode.IsLetter(r) })
	for _, w := range words {
		if code := strings.ToUpper(w); strings.Contains("|"+isoCodes+"|", "|"+code+"|") {
			return code
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
		if code := byLocale(strings.ToLower(w), locale); code != "" && w != "km" { // kilometres
			return code
		}
	}
	if len(words) == 0 {
		return ""
	}
	if m := codeBeside.FindStringSubmatch(strings.Map(plainRune, text)); m != nil {
		if code := m[1] + m[2]; definition.IsCurrency(code) {
			return code
		}
	}
	return ""
}

// currencyCode returns the currency of a text that should be a bare code, as in schema.org data.
func currencyCode(text string) string {
	if code := strings.ToUpper(strings.TrimSpace(text)); definition.IsCurrency(code) {
		return code
	}
	return currencyIn(text, "")
}

// wholeSign reports whether a sign that begins with a letter is a whole word.
func wholeSign(sign, before string) bool {
	first, _ := utf8.DecodeRuneInString(sign)
	last, _ := utf8.DecodeLastRuneInString(before)
	return !(first < utf8.RuneSelf && unicode.IsLetter(first)) || !unicode.IsLetter(last)
}
