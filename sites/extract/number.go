package extract

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"muster/sites/definition"
)

// Number parses the first number in a text in the notation of a locale: "1.234,56 €" in de and "1,234.56" in en are 1234.56. In
// the locale auto the notation is inferred, and an ambiguous number, such as 1.234, is an error, as is 5M, which may be five
// million or a length. A number that does not match the notation of its locale is parsed as in auto. Magnitudes in words or letters
// and fractions, as in "2,3 млн" and "1 ½", are errors, and so is a whole number that float64 cannot represent exactly.
func Number(text, locale string) (float64, error) {
	n, err := readNumber(text, locale)
	if err != nil {
		return 0, err
	}
	if n.ambiguous {
		return 0, fmt.Errorf("%q is ambiguous: thousands or decimals; set locale, such as en or de", short(text))
	}
	if err := n.isUnit(text, false); err != nil {
		return 0, err
	}
	return n.value, n.isExact(text)
}

// Integer is like Number, but a fraction is an error, and 1.234 in the locale auto is 1234.
func Integer(text, locale string) (int64, error) {
	n, err := readNumber(text, locale)
	if err != nil {
		return 0, err
	}
	if err := n.isUnit(text, false); err != nil {
		return 0, err
	}
	if math.Abs(n.value) < 1<<53 {
		if n.value != math.Trunc(n.value) {
			return 0, fmt.Errorf("%v in %q is not a whole number", n.value, short(text))
		}
		return int64(n.value), nil
	}
	// A number beyond the precision of float64, such as an ID or a barcode, must consist of digits only.
	i, err := strconv.ParseInt(n.digits, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("number out of range in %q", short(text))
	}
	return i, nil
}

// numeral is a number in a text.
type numeral struct {
	value         float64
	digits        string // the whole part with a minus, without separators
	ambiguous     bool   // such as 1.234, parsed as thousands
	before, after string // the text around it, mapped by plainRune
}

// numeralForm matches digits with separators: spaces and apostrophes only between groups of three, with the character after the
// last group.
var (
	numeralForm = regexp.MustCompile(`\d{1,3}(?:[ ']\d{3})+(?:(?:[.,]\d+)+|\D|$)|[.,]?\d+(?:[.,]\d+)*`)
	// minusBefore matches a minus sign of the number: after nothing or a currency, but not in "10-20" or "A-5".
	minusBefore = regexp.MustCompile(`(?:^|[^\pL\d])-$|^-[ \p{Sc}]*$`)
	// magnitude matches words that multiply the number before them, and fractions.
	magnitude = regexp.MustCompile(`(?i)^[ .]*(?:(?:thousand|million|billion|milli?ard|тысяч|хиляд|милл?ион|миллиард|милиард|мільйон|мільярд)|(?:tsd|tys|тыс|тис|хил|tis|mil|lakhs?|mill[oó]n(?:es)?|milh(?:ões|ão)|mio|mln|млн|crores?|mrd|mld|млрд|bn)(?:\PL|$)|[万萬億亿½¼¾⅓⅔⅛])`)
)

// readNumber parses the first number in a text.
func readNumber(text, locale string) (numeral, error) {
	text = strings.Map(plainRune, text)
	at := numeralForm.FindStringIndex(text)
	if at == nil {
		return numeral{}, fmt.Errorf("no number in %q", short(text))
	}
	from, to := at[0], at[0]+len(strings.TrimRightFunc(text[at[0]:at[1]], func(r rune) bool { return r < '0' || r > '9' }))
	if from > 0 && text[from] < '0' && endsInLetter(text[:from]) {
		from++ // the dot of an abbreviation: No.5
	}
	token := text[from:to]
	point, end, ambiguous := decimalPoint(token, locale)
	n := numeral{before: text[:from], after: text[to:], ambiguous: ambiguous}
	whole, fraction := token[:end], ""
	if point >= 0 {
		whole, fraction = token[:point], "."+token[point+1:end]
	}
	if minusBefore.MatchString(n.before) {
		whole = "-" + whole
	}
	n.digits = strings.NewReplacer(".", "", ",", "", " ", "", "'", "").Replace(whole)
	var err error
	if n.value, err = strconv.ParseFloat(n.digits+fraction, 64); err != nil || math.IsInf(n.value, 0) {
		return numeral{}, fmt.Errorf("number out of range in %q", short(text))
	}
	return n, nil
}

func endsInLetter(s string) bool {
	rs := []rune(s[max(0, len(s)-4):])
	return len(rs) > 0 && unicode.IsLetter(rs[len(rs)-1])
}

// decimalPoint returns the index of the decimal point in a token, or -1, and the end of the number.
func decimalPoint(token, locale string) (point, end int, ambiguous bool) {
	style, _ := definition.StyleOf(locale)
	if style.Point == "" {
		return guessPoint(token)
	}
	whole, fraction, found := strings.Cut(token, style.Point)
	if strings.ContainsAny(fraction, style.Point+style.Group) || !isGrouped(whole, style.Group, style.India) {
		return guessPoint(token)
	}
	if found {
		return len(whole), len(token), false
	}
	return -1, len(token), false
}

// isGrouped reports whether the separators divide whole into groups of three, or as in India into groups of two and a
// last one of three.
func isGrouped(whole, group string, india bool) bool {
	parts := strings.FieldsFunc(whole, func(r rune) bool { return strings.ContainsRune(group, r) })
	for i, p := range parts {
		size := len(p) == 3 || i == 0 && len(p) < 3 || india && i < len(parts)-1 && len(p) == 2
		if strings.Trim(p, "0123456789") != "" || !size && len(parts) > 1 {
			return false
		}
	}
	return true
}

// guessPoint is decimalPoint without a locale.
func guessPoint(token string) (point, end int, ambiguous bool) {
	end = len(token)
	last := strings.LastIndexAny(token, ".,")
	if last < 0 {
		return -1, end, false
	}
	sign := token[last : last+1]
	first := strings.IndexAny(token, ".,")
	switch {
	case first == last:
		before, after := token[:last], token[last+1:]
		spaced := strings.ContainsAny(before, " '") // groups have a distinct separator
		if len(after) != 3 || strings.TrimLeft(before, "0") == "" || len(before) > 3 || spaced {
			return last, end, false
		}
		return -1, end, true
	case strings.Contains(token, ".") && strings.Contains(token, ","):
		if strings.Count(token, sign) > 1 {
			return -1, end, false
		}
		return last, end, false
	case isGrouped(token, sign+" '", true):
		return -1, end, false
	}
	// A date or a version: the number ends at the second sign.
	return first, first + 1 + strings.Index(token[first+1:], sign), false
}

// isUnit returns an error if a magnitude or a fraction follows the number, or a letter that may be a magnitude, as in 1.2k and 3.4M, but not in 4K and 5 m.
// In a price there may be a space before it.
func (n numeral) isUnit(text string, price bool) error {
	after := n.after
	if m := magnitude.FindString(after); m != "" {
		return fmt.Errorf("%q: %s changes the number; extract the number with regex, or use type: text", short(text), strings.Trim(m, " ."))
	}
	if price {
		after = strings.TrimPrefix(after, " ")
	}
	if after == "" {
		return nil
	}
	next, _ := utf8.DecodeRuneInString(after[1:])
	letter := after[0]
	if letter != 'k' && letter != 'M' && (letter != 'K' || n.value == math.Trunc(n.value) && !price) || unicode.IsLetter(next) || next >= '0' && next <= '9' {
		return nil
	}
	return fmt.Errorf("%q: %c may be a magnitude or a unit; extract the number with regex, or use type: text", short(text), letter)
}

// isExact returns an error if the number is whole and beyond the precision of float64.
func (n numeral) isExact(text string) error {
	if math.Abs(n.value) < 1<<53 || n.value != math.Trunc(n.value) {
		return nil
	}
	if digits := strings.TrimLeft(strings.TrimPrefix(n.digits, "-"), "0"); strconv.FormatFloat(math.Abs(n.value), 'f', -1, 64) == digits {
		return nil
	}
	return fmt.Errorf("%q has too many digits for type: number; use type: integer (up to 19 digits) or text", short(text))
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
	case strings.ContainsRune("’‘´ʼ′٬", r):
		return '\''
	case strings.ContainsRune("−–﹣－", r):
		return '-'
	case r == '，':
		return ','
	case r == '٫' || r == '．':
		return '.'
	case unicode.Is(unicode.Zs, r):
		return ' '
	}
	return r
}

// digitOf returns the value of a digit in any script. Each script has ten consecutive digits.
func digitOf(r rune) (value rune) {
	for unicode.Is(unicode.Nd, r-1-value) {
		value++
	}
	return value % 10
}

// truths are words for booleans: of JSON and HTML, and the availabilities of schema.org.
var truths = map[string]bool{
	"true": true, "yes": true, "1": true, "instock": true, "limitedavailability": true, "onlineonly": true, "instoreonly": true,
	"false": false, "no": false, "0": false, "outofstock": false, "soldout": false, "discontinued": false,
}

func truth(fd found) (any, error) {
	if b, ok := fd.json.(bool); ok {
		return b, nil
	}
	t := strings.ToLower(Fold(fd.text))
	t = strings.TrimPrefix(strings.TrimPrefix(t, "https://"), "http://")
	t = strings.TrimPrefix(t, "schema.org/")
	if t == "" {
		return nil, nil
	}
	if v, ok := truths[t]; ok {
		return v, nil
	}
	return nil, fmt.Errorf("%q is not a boolean; use regex to match the text that means true", short(t))
}
