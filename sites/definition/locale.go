package definition

import (
	"slices"
	"strings"
	"sync"

	"golang.org/x/text/currency"
)

// Style is the notation of numbers and dates in a locale.
type Style struct {
	Group string // possible separators of groups of digits
	Point string // the decimal point; "": inferred from the digits
	Order string // of day, month and year in 3/4/2024: dmy, mdy or ymd; "": inferred from the digits or the page
	India bool   // groups of two digits before the last three
}

// styles maps languages and countries to styles.
var styles = sync.OnceValue(func() map[string]Style {
	all := map[string]Style{"auto": {}}
	for _, s := range []struct {
		languages string
		style     Style
	}{
		{"en us en-us en-ph", Style{Group: ",' ", Point: ".", Order: "mdy"}},
		{"de bg es it nl pt da tr id el ro hr sr sl mk bs vi is ca gl eu az", Style{Group: ".' ", Point: ",", Order: "dmy"}},
		{"fr ru uk be pl cs sk nb no nn fi sv hu lv lt et sq kk ka hy mn af", Style{Group: " .'", Point: ",", Order: "dmy"}},
		{"ch de-ch fr-ch it-ch rm-ch en-ch", Style{Group: "' ", Point: ".", Order: "dmy"}},
		{"in en-in hi bn ta te mr gu ur", Style{Group: ",' ", Point: ".", Order: "dmy", India: true}},
		{"ja zh ko", Style{Group: ",' ", Point: ".", Order: "ymd"}},
		{"ar fa he th ms fil sw mt ga cy", Style{Group: ",' ", Point: ".", Order: "dmy"}},
		{"es-mx es-us es-gt es-hn es-ni es-pa es-pe es-pr es-sv es-do", Style{Group: ",' ", Point: ".", Order: "dmy"}},
	} {
		for l := range strings.FieldsSeq(s.languages) {
			all[l] = s.style
		}
	}
	return all
})

// StyleOf returns the style of a locale such as de, de-CH or en_GB, and false if the locale is unknown.
func StyleOf(locale string) (Style, bool) {
	tag := strings.ReplaceAll(strings.ToLower(locale), "_", "-")
	if style, ok := styles()[tag]; ok {
		return style, true
	}
	language, region, _ := strings.Cut(tag, "-")
	style, ok := styles()[language]
	if language == "en" && region != "" {
		style.Order = "dmy"
	}
	return style, ok
}

func (c *checker) checkLocale(locale string, at Pos, key string) {
	if _, ok := StyleOf(locale); !ok {
		c.problemAt(at, key, "%q is unknown; use auto, a language such as en, de, fr, bg or ru, or one with its country such as de-CH or en-IN", locale)
	}
}

// newCurrencies are ISO 4217 codes that x/text does not have yet.
var newCurrencies = []string{"MRU", "SLE", "UYW", "VED", "VES", "XCG", "ZWG"}

// Currencies returns the ISO 4217 codes of current currencies, sorted.
func Currencies() []string {
	codes := slices.Clone(newCurrencies)
	for q := currency.Query(); q.Next(); {
		codes = append(codes, q.Unit().String())
	}
	slices.Sort(codes)
	return slices.Compact(codes)
}

// IsCurrency reports whether an upper-case string is an ISO 4217 code, current or historical.
func IsCurrency(code string) bool {
	_, err := currency.ParseISO(code)
	return err == nil || slices.Contains(newCurrencies, code)
}
