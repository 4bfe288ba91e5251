package extract

import (
	"regexp"
	"strconv"
	"strings"
)

// eras are the years before the first of an era, by its name as it stands
// before the year in Japanese and in Chinese as Taiwan writes it.
var eras = map[string]int{
	"令和": 2018, "平成": 1988, "昭和": 1925, "大正": 1911, "明治": 1867, "民國": 1911, "民国": 1911, "㋿": 2018, "㍻": 1988, "㍼": 1925, "㍽": 1911, "㍾": 1867,
	"R": 2018, "H": 1988, "S": 1925, "T": 1911, "M": 1867,
}

var (
	kanjiForm  = regexp.MustCompile(`([〇○零一二三四五六七八九十廿]{1,4}|元)(\s?[年月日時分])`)
	eraForm    = regexp.MustCompile(`(令和|平成|昭和|大正|明治|民國|民国|[㋿㍻㍼㍽㍾]|\b[RHSTM])\s?(\d{1,3})\s?年`)
	eraNumbers = regexp.MustCompile(`^(令和|平成|昭和|大正|明治|民國|民国|[㋿㍻㍼㍽㍾]|[RHSTM])\s?(\d{1,3})([./-])(\d{1,2})([./-])(\d{1,2})\b`)
)

// westernYears writes numbers in kanji with digits, and years of an era as
// those of the western calendar: 令和八年五月三日 is 2026年5月3日.
func westernYears(text string, o DateOptions) string {
	if strings.ContainsAny(text, "年月日") {
		text = kanjiForm.ReplaceAllStringFunc(text, func(s string) string {
			m := kanjiForm.FindStringSubmatch(s)
			return strconv.Itoa(kanjiNumber(m[1])) + m[2]
		})
		text = eraForm.ReplaceAllStringFunc(text, func(s string) string {
			m := eraForm.FindStringSubmatch(s)
			return strconv.Itoa(eras[m[1]]+number2(m[2])) + "年"
		})
		return text
	}
	// R8.5.3 is a date only where people write so, and is a version elsewhere.
	if m := eraNumbers.FindStringSubmatch(text); m != nil && m[3] == m[5] && (o.Order == "ymd" || len(m[1]) > 1) {
		return strconv.Itoa(eras[m[1]]+number2(m[2])) + "-" + m[4] + "-" + m[6] + text[len(m[0]):]
	}
	return text
}

// kanjiNumber reads 二〇二六, 二十六 and 元, the first year of an era.
func kanjiNumber(s string) int {
	n, tens := 0, 0
	for _, r := range s {
		switch i := strings.IndexRune("零一二三四五六七八九", r) / len("零"); {
		case r == '元':
			return 1
		case r == '〇' || r == '○':
			n *= 10
		case r == '十':
			tens, n = max(n, 1)*10, 0
		case r == '廿':
			tens, n = 20, 0
		default:
			n = n*10 + i
		}
	}
	return tens + n
}
