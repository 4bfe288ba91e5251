package definition

import (
	"slices"
	"strings"
)

// Style is how numbers and dates are written.
type Style struct {
	Group string // the characters that may stand between groups of digits
	Point string // the decimal point; "": the digits tell
	Order string // of day, month and year in 3/4/2024: dmy, mdy or ymd; "": the digits or the page tell
	India bool   // groups of two digits before the last three
}

// styles are the ways of writing, by the language or country that has them.
var styles = map[string]Style{
	"auto": {},
	"en":   {Group: ",' ", Point: ".", Order: "mdy"},
	"de":   {Group: ".' ", Point: ",", Order: "dmy"},
	"fr":   {Group: " .'", Point: ",", Order: "dmy"},
	"ch":   {Group: "' ", Point: ".", Order: "dmy"},
	"in":   {Group: ",' ", Point: ".", Order: "dmy", India: true},
	"ja":   {Group: ",' ", Point: ".", Order: "ymd"},
	"ar":   {Group: ",' ", Point: ".", Order: "dmy"},
}

// alike are languages and countries that write like another.
var alike = map[string]string{
	"bg": "de", "es": "de", "it": "de", "nl": "de", "pt": "de", "da": "de", "tr": "de", "id": "de", "el": "de", "ro": "de", "hr": "de", "sr": "de", "sl": "de", "mk": "de", "bs": "de", "vi": "de", "is": "de", "ca": "de", "gl": "de", "eu": "de", "az": "de",
	"ru": "fr", "uk": "fr", "be": "fr", "pl": "fr", "cs": "fr", "sk": "fr", "nb": "fr", "no": "fr", "nn": "fr", "fi": "fr", "sv": "fr", "hu": "fr", "lv": "fr", "lt": "fr", "et": "fr", "sq": "fr", "kk": "fr", "ka": "fr", "hy": "fr", "mn": "fr", "af": "fr",
	"hi": "in", "bn": "in", "ta": "in", "te": "in", "mr": "in", "gu": "in", "ur": "in", "fa": "ar", "he": "ar", "th": "ar", "ms": "ar", "fil": "ar", "sw": "ar", "mt": "ar", "ga": "ar", "cy": "ar", "zh": "ja", "ko": "ja", "us": "en",
}

// regions are the countries that write otherwise than their language.
var regions = map[string]string{
	"de-ch": "ch", "fr-ch": "ch", "it-ch": "ch", "rm-ch": "ch", "en-in": "in", "en-ch": "ch",
}

// StyleOf is how numbers and dates are written in a locale such as de, de-CH
// or en_GB.
func StyleOf(locale string) (Style, bool) {
	tag := strings.ReplaceAll(strings.ToLower(locale), "_", "-")
	if to, ok := regions[tag]; ok {
		tag = to
	}
	language, region, _ := strings.Cut(tag, "-")
	if to, ok := alike[language]; ok {
		language = to
	}
	style, ok := styles[language]
	switch {
	case language == "en" && region != "" && region != "us" && region != "ph":
		style.Order = "dmy"
	case strings.HasPrefix(tag, "es-") && slices.Contains([]string{"mx", "us", "gt", "hn", "ni", "pa", "pe", "pr", "sv", "do"}, region):
		style.Group, style.Point = ",' ", "."
	}
	return style, ok
}

func (d *decoder) checkLocale(locale string, at Pos, key string) {
	if _, ok := StyleOf(locale); !ok {
		d.problemAt(at, key, "%q is unknown; use auto, a language such as en, de, fr, bg or ru, or one with its country such as de-CH or en-IN", locale)
	}
}
