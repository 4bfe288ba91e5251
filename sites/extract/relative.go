package extract

import (
	"fmt"
	"regexp"
	"strings"
	"time"
)

// relativeUnits are words for spans of time, by their beginning, in the
// languages that are understood; longer beginnings before those they contain.
var relativeUnits = []struct {
	unit  string
	begin []string
}{
	{"month", []string{"month", "monat", "mois", "mes", "mesec", "месец", "месяц", "місяц", "miesiac", "miesiec", "mesic", "maand", "manad", "maned", "ay ", "か月", "ヶ月", "个月", "개월", "lun"}},
	{"minute", []string{"minute", "minut", "min", "мин", "хвилин", "dakika", "分", "분"}},
	{"second", []string{"second", "sekund", "seconde", "segundo", "second", "sec", "sek", "сек", "saniye", "秒", "초"}},
	{"hour", []string{"hour", "hr", "stunde", "std", "heure", "hora", "ora", "ore", "uur", "uren", "timm", "time", "час", "годин", "godzin", "hodin", "saat", "小时", "時間", "시간", "h "}},
	{"week", []string{"week", "woche", "semaine", "seman", "settiman", "седмиц", "недел", "тижд", "tydzien", "tygod", "tyden", "tydn", "veck", "uke", "hafta", "週間", "周", "주"}},
	{"year", []string{"year", "jahr", "année", "annee", "ans", "an ", "año", "ano", "anni", "anno", "годин", "год", "лет", "рок", "rok", "lat", "let ", "jaar", "ar ", "yil", "年", "년"}},
	{"day", []string{"day", "tag", "jour", "dia", "dias", "giorn", "dag", "ден", "дни", "дня", "дней", "день", "дн", "dni", "dzien", "den", "dnem", "dny", "gun", "zile", "天", "日", "일"}},
}

// yesterdays and todays are words for those days.
var (
	yesterdays = []string{"yesterday", "gestern", "hier", "ayer", "ieri", "ontem", "вчера", "вчора", "wczoraj", "vcera", "gisteren", "igar", "i gar", "dun", "昨日", "昨天", "어제"}
	todays     = []string{"today", "heute", "aujourd'hui", "hoy", "oggi", "hoje", "днес", "сегодня", "сьогодні", "dzisiaj", "dzis", "dnes", "vandaag", "idag", "i dag", "bugun", "azi", "今日", "今天", "오늘"}
	tomorrows  = []string{"tomorrow", "morgen", "demain", "mañana", "domani", "amanhã", "утре", "завтра", "jutro", "zítra", "imorgon", "i morgon", "i morgen", "yarın", "明日", "明天", "내일"}
	justNows   = []string{"just now", "gerade eben", "a l'instant", "ahora", "adesso", "agora", "току-що", "току що", "только что", "щойно", "przed chwila", "prave ted", "zojuist", "たった今", "刚刚", "방금"}
)

var (
	agoWords   = regexp.MustCompile(`\b(?:ago|vor|il y a|hace|fa|atras|temu|geleden|sedan|siden|once|pred|acum|ha)\b|назад|тому|преди|前|전`)
	aheadWords = regexp.MustCompile(`^(?:in|dans|через|след|en|tra|fra|za|over|om|em)\s+(?:\d|an?\s|einem|einer|une?\s|una?\s)|\d\s?\pL{1,2}(?:後|后|후)$`)
)

// relativeDate reads "2 hours ago", "yesterday", "in 3 days" and their like in
// several languages, counted from when the page was fetched. Hours and less give a
// time of day, days and more only the day.
func relativeDate(text string, o DateOptions) (moment, bool, error) {
	t := strings.ReplaceAll(bare(text), "’", "'")
	is := func(words []string) bool {
		for _, w := range words {
			if w = bare(w); t == w || strings.HasPrefix(t, w+" ") || strings.HasPrefix(t, w+",") || strings.HasSuffix(t, " "+w) {
				return true
			}
		}
		return false
	}
	now := o.Now.In(o.Zone)
	day := func(back int) (moment, bool, error) {
		if o.Now.IsZero() {
			return moment{}, false, fmt.Errorf("%q counts from now, which is not known here", clip(text))
		}
		d := now.AddDate(0, 0, -back)
		m := moment{year: d.Year(), month: int(d.Month()), day: d.Day()}
		if i := strings.IndexAny(text, "0123456789"); i >= 0 {
			m.rest = text[i:]
		}
		return m, true, nil
	}
	switch {
	case len(t) > 80:
		return moment{}, false, nil
	case is(yesterdays):
		return day(1)
	case is(todays):
		return day(0)
	case is(tomorrows):
		return day(-1)
	case is(justNows):
		if o.Now.IsZero() {
			return day(0)
		}
		return moment{at: now.Truncate(time.Minute), timed: true}, true, nil
	}
	ahead := aheadWords.MatchString(t)
	if !ahead && !agoWords.MatchString(t) {
		return moment{}, false, nil
	}
	n, unit, ok := span(t)
	if !ok {
		return moment{}, false, nil
	}
	if o.Now.IsZero() {
		return day(0)
	}
	if ahead {
		n = -n
	}
	switch unit {
	case "second":
		return moment{at: now.Add(-time.Duration(n) * time.Second).Truncate(time.Minute), timed: true}, true, nil
	case "minute":
		return moment{at: now.Add(-time.Duration(n) * time.Minute).Truncate(time.Minute), timed: true}, true, nil
	case "hour":
		return moment{at: now.Add(-time.Duration(n) * time.Hour).Truncate(time.Minute), timed: true}, true, nil
	case "day":
		return moment{at: now.AddDate(0, 0, -n)}, true, nil
	case "week":
		return moment{at: now.AddDate(0, 0, -7*n)}, true, nil
	case "month":
		return moment{at: now.AddDate(0, -n, 0)}, true, nil
	}
	return moment{at: now.AddDate(-n, 0, 0)}, true, nil
}

var spanForm = regexp.MustCompile(`(?:^|[^\pL\d])(\d{1,4}|an?|one|einem|einer|une?|una|uno|uma?|един|една|одну|один|ett|een)?\s*([\pL]+)`)

// span finds a number with a unit of time.
func span(t string) (n int, unit string, ok bool) {
	for _, m := range spanForm.FindAllStringSubmatch(t, 8) {
		for _, u := range relativeUnits {
			for _, begin := range u.begin {
				begin = bare(begin)
				if whole, isWhole := strings.CutSuffix(begin, " "); isWhole && m[2] != whole || !strings.HasPrefix(m[2], strings.TrimSuffix(begin, " ")) {
					continue
				}
				if m[1] == "" && u.unit != "hour" && u.unit != "day" && u.unit != "week" && u.unit != "month" && u.unit != "year" && u.unit != "minute" {
					continue
				}
				if n = number2(m[1]); n == 0 {
					n = 1
				}
				if strings.HasPrefix(m[2], "годин") && strings.Contains(t, "преди") {
					return n, "year", true // an hour in Ukrainian, a year in Bulgarian
				}
				return n, u.unit, true
			}
		}
	}
	return 0, "", false
}
