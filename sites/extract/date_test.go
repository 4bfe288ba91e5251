package extract

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"muster/internal/testutil"
	"muster/sites/definition"
)

var fetchedAt = time.Date(2026, 5, 20, 15, 30, 45, 0, time.UTC)

func TestDate(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		// Numbers.
		"2024-05-03": "2024-05-03", "2024-5-3": "2024-05-03", "2024/05/03": "2024-05-03", "2024.05.03": "2024-05-03", "03.05.2024": "2024-05-03", "3.5.2024": "2024-05-03", "3. 5. 2024": "2024-05-03",
		"03.05.24": "2024-05-03", "31/12/2023": "2023-12-31", "12/31/2023": "2023-12-31", "5/5/2024": "2024-05-05", "03-05-2024": "2024-05-03", "1.1.99": "1999-01-01", "20240503": "2024-05-03",
		"2024": "2024-01-01", "2024-05": "2024-05-01", "03.05.2024 г.": "2024-05-03", "Публикувана на 03.05.2024 г.": "2024-05-03",
		"0888-12-34 or 0888-12-12, 2024-05-03": "2024-05-03", "2888-12-34 2024-05-03": "2024-05-03", "2888-13-12: 03.05.2024": "2024-05-03", "call 2888-12-34, May 3, 2024": "2024-05-03",
		// Times.
		"2024-05-03T10:11:12Z": "2024-05-03T10:11:12Z", "2024-05-03T10:11:12+03:00": "2024-05-03T10:11:12+03:00", "2024-05-03T10:11:12.345+0300": "2024-05-03T10:11:12+03:00",
		"2024-05-03 10:11": "2024-05-03T10:11:00Z", "03.05.2024 10:11": "2024-05-03T10:11:00Z", "03.05.2024, 10:11 ч.": "2024-05-03T10:11:00Z", "5/13/2024 3:04 PM": "2024-05-13T15:04:00Z",
		"May 3, 2024 12:05 am": "2024-05-03T00:05:00Z", "May 3, 2024 at 3:04 p.m.": "2024-05-03T15:04:00Z", "3 May 2024 10:11 CEST": "2024-05-03T10:11:00+02:00", "20240503T101112Z": "2024-05-03T10:11:12Z", "20240503101112": "2024-05-03T10:11:12Z",
		"Fri, 03 May 2024 10:11:12 GMT": "2024-05-03T10:11:12Z", "Friday, 03-May-24 10:11:12 UTC": "2024-05-03T10:11:12Z", "Wed Jan  3 15:04:05 2024": "2024-01-03T15:04:05Z",
		// English.
		"May 3, 2024": "2024-05-03", "3 May 2024": "2024-05-03", "3rd of May 2024": "2024-05-03", "May 3rd, 2024": "2024-05-03", "Jan. 3, 2024": "2024-01-03", "Sept 3 2024": "2024-09-03", "5 Mar 2024": "2024-03-05", "Mar 5, 2024": "2024-03-05", "5 May 10:11": "", "3-May-2024": "2024-05-03",
		"Published on Friday, May 3, 2024 by Ann": "2024-05-03", "May 2024": "2024-05-01", "2024 May 3": "2024-05-03", "Posted 03/May/2024": "2024-05-03", "Augusta, 1 March 2024": "2024-03-01",
		"2024年5月3日": "2024-05-03", "2024年5月3日(金) 10:11": "2024-05-03T10:11:00Z", "2024年5月": "2024-05-01", "2024년 5월 3일": "2024-05-03", "2024年5月3日 10時": "2024-05-03T10:00:00Z", "2024年5月3日 午後3時04分": "2024-05-03T15:04:00Z",
		// Beyond ASCII digits and spaces.
		"3\u00a0May\u202f2024": "2024-05-03", "２０２４年５月３日": "2024-05-03",
		// Counted from the time of fetching.
		"today": "2026-05-20", "Yesterday": "2026-05-19", "yesterday at 10:11": "2026-05-19T10:11:00Z", "2 hours ago": "2026-05-20T13:30:00Z", "5 minutes ago": "2026-05-20T15:25:00Z", "3 days ago": "2026-05-17", "a week ago": "2026-05-13",
		"0 minutes ago": "2026-05-20T15:30:00Z", "in 0 days": "2026-05-20", "an hour ago": "2026-05-20T14:30:00Z",
		"1 month ago": "2026-04-20", "2 years ago": "2024-05-20",
		"posted 2 days ago": "2026-05-18", "just now": "2026-05-20T15:30:00Z",
		// Other languages, and calendars that only a recipe reads.
		"令和6年5月3日": "", "令和元年5月1日(水)": "", "平成31年4月30日 10時11分": "", "昭和64年1月7日": "", "民國113年5月3日": "", "二〇二四年五月三日": "", "令和六年十二月二十五日": "", "令和6.5.3": "", "R6.5.3": "",
		"ngày 3 tháng 5 năm 2024": "2024-05-03",
		"2024-W18-5":              "", "2024-W01": "", "2021W017": "", "2024-124": "", "2023-366": "", "2024-W60": "",
		"2024/5/3 10:11": "2024-05-03T10:11:00Z", "2024. 5. 3.": "2024-05-03", "2024.5.3": "2024-05-03", "3:04 PM, May 3, 2024": "2024-05-03T15:04:00Z", "10:11 03.05.2024": "2024-05-03T10:11:00Z",
		"tomorrow": "2026-05-21", "in 2 days": "2026-05-22", "in May": "", "in 5 rooms": "",
		// Seconds since 1970.
		"1714731072": "2024-05-03T10:11:12Z",
		// None.
		"": "", "soon": "", "5 rooms": "", "03/05/2024": "", "31.02.2024": "", "2024-13-01": "", "May 3": "", "1.234,56": "", "marketing 2": "", "12": "", "mar": "", "v1.2.3": "", "may contain nuts": "",
	} {
		got, err := Date(text, DateOptions{Now: fetchedAt})
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: got %q, %v, want %q", text, got, err, want)
		}
	}
}

func TestDateOrder(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ order, text, want string }{
		{"dmy", "03/05/2024", "2024-05-03"}, {"mdy", "03/05/2024", "2024-03-05"}, {"ymd", "24/05/03", "2024-05-03"}, {"mdy", "03.05.2024", "2024-05-03"}, {"mdy", "13/05/2024", "2024-05-13"}, {"dmy", "03/13/2024", "2024-03-13"},
	} {
		if got, err := Date(c.text, DateOptions{Order: c.order}); got != c.want {
			t.Errorf("%s in %s: got %s, %v, want %s", c.text, c.order, got, err, c.want)
		}
	}
	_, err := Date("03/05/2024", DateOptions{})
	if err == nil || !strings.Contains(err.Error(), "ambiguous") {
		t.Errorf("an ambiguous date: got %v, want an error", err)
	}
}

func TestDateZoneAndLayout(t *testing.T) {
	t.Parallel()
	sofia := testutil.Must(time.LoadLocation("Europe/Sofia"))(t)
	for _, c := range []struct {
		layout     []string
		text, want string
	}{
		{nil, "03.05.2024 10:11", "2024-05-03T10:11:00+03:00"}, {nil, "2024-01-03T10:11:00Z", "2024-01-03T10:11:00Z"},
		{[]string{"2006-002"}, "2024-124", "2024-05-03"},
		{[]string{"2 January 2006"}, "3 януари 2024", "2024-01-03"}, {[]string{"02/01/2006", "Jan 2 2006 15:04"}, "май 3 2024 10:11", "2024-05-03T10:11:00+03:00"},
	} {
		if got, err := Date(c.text, DateOptions{Zone: sofia, Layouts: c.layout, Locale: "bg"}); got != c.want {
			t.Errorf("%q: got %s, %v, want %s", c.text, got, err, c.want)
		}
	}
}

// The words of a date belong to its locale or to English. The same texts are not dates in other languages, where a word may be a
// name.
func TestDateInLanguageOfTheLocale(t *testing.T) {
	t.Parallel()
	for locale, texts := range map[string]map[string]string{
		"de":    {"3. Mai 2024 um 10.11 Uhr": "2024-05-03T10:11:00Z", "3. Mai 2024": "2024-05-03", "Freitag, 3. März 2024": "2024-03-03", "3. Jänner 2024": "2024-01-03", "vor 2 Stunden": "2026-05-20T13:30:00Z", "vor 3 Tagen": "2026-05-17", "gestern": "2026-05-19", "in 3 Tagen": "2026-05-23"},
		"fr":    {"3 mai 2024": "2024-05-03", "vendredi 1er août 2025": "2025-08-01", "mardi 5 mars 2024": "2024-03-05", "12 juil. 2024": "2024-07-12", "3 févr. 2024": "2024-02-03", "il y a 3 jours": "2026-05-17", "dans une semaine": "2026-05-27"},
		"es-MX": {"3 de mayo de 2024": "2024-05-03", "martes, 5 de marzo de 2024": "2024-03-05", "hace 2 días": "2026-05-18", "ayer": "2026-05-19"},
		"it":    {"3 maggio 2024": "2024-05-03", "12 gennaio 2024": "2024-01-12"},
		"pt":    {"3 de janeiro de 2024": "2024-01-03"},
		"bg":    {"3 май 2024": "2024-05-03", "3 май 2024 г.": "2024-05-03", "15 януари 2024 г. 10:11": "2024-01-15T10:11:00Z", "15 юли 2024": "2024-07-15", "преди 2 часа": "2026-05-20T13:30:00Z", "преди 3 дни": "2026-05-17", "преди 2 години": "2024-05-20", "преди 5 минути": "2026-05-20T15:25:00Z", "вчера": "2026-05-19", "днес, 10:11": "2026-05-20T10:11:00Z"},
		"ru":    {"3 мая 2024": "2024-05-03", "15 августа 2024 года": "2024-08-15", "сегодня": "2026-05-20", "3 дня назад": "2026-05-17", "2 недели назад": "2026-05-06", "через 2 часа": "2026-05-20T17:30:00Z"},
		"uk":    {"1 січня 2024 р.": "2024-01-01", "2 години тому": "2026-05-20T13:30:00Z"},
		"pl":    {"3 maja 2024": "2024-05-03", "15 stycznia 2024": "2024-01-15", "3 dni temu": "2026-05-17"},
		"cs":    {"15. ledna 2024": "2024-01-15", "1. července 2024": "2024-07-01", "1. června 2024": "2024-06-01"},
		"nl":    {"3 mei 2024": "2024-05-03", "3 maart 2024": "2024-03-03"},
		"sv":    {"3 maj 2024": "2024-05-03"},
		"tr":    {"15 mart 2024": "2024-03-15", "15 Ağustos 2024": "2024-08-15"},
		"fi":    {"15. tammikuuta 2024": "2024-01-15"},
		"hu":    {"2024. május 3.": "2024-05-03"},
		"el":    {"3 Μαΐου 2024": "2024-05-03"},
		"ro":    {"15 octombrie 2024": "2024-10-15"},
		"ja":    {"3日前": "2026-05-17", "3日後": "2026-05-23"},
		"ko":    {"3일 전": "2026-05-17", "어제": "2026-05-19"},
		"th":    {"3 พฤษภาคม 2024": "2024-05-03", "3 พฤษภาคม 2567": ""},
		"ar":    {"3 مايو 2024": "2024-05-03"},
		"he":    {"3 במאי 2024": "2024-05-03"},
		"hi":    {"3 मई 2024": "2024-05-03"},
		"hr":    {"3. svibnja 2024.": "2024-05-03"},
		"sk":    {"3. mája 2024": "2024-05-03"},
		"ca":    {"3 de maig de 2024": "2024-05-03"},
		"sr":    {"3. мај 2024.": "2024-05-03"},
	} {
		for text, want := range texts {
			if got, err := Date(text, DateOptions{Now: fetchedAt, Locale: locale}); got != want {
				t.Errorf("%s: %q: got %q, %v, want %q", locale, text, got, err, want)
			}
			if got, err := Date(text, DateOptions{Now: fetchedAt}); err == nil {
				t.Errorf("%q: got %q without a locale, want an error", text, got)
			}
		}
	}
}

// A name before a numeric date is not its month, and a copyright year is not its year.
func TestDateBesideName(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"von Jan » 12.05.2024, 14:30": "2024-05-12T14:30:00Z", "by Marc 13/05/2024": "2024-05-13", "by Marc 12/05/2024": "", "Martin, 12.05.2024": "2024-05-12",
		"Kovač 5 2024": "", "sausage 3 2024": "", "© 2019 · May 3, 2024": "2024-05-03", "Copyright 2019 May 3, 2024": "2024-05-03", "2019 May 3 - 2024 June 4": "2019-05-03",
		"Jan 12.05.24": "2024-05-12", "June, 3 May 2024": "2024-05-03", "3 May 2024, updated 04.06.2024": "2024-05-03", "04.06.2024, updated 5 June 2024": "2024-06-04",
		"May 3 24.99": "", "Marc 2024/05/03": "2024-05-03",
	} {
		for _, locale := range []string{"", "de"} {
			if got, err := Date(text, DateOptions{Locale: locale}); got != want || (err == nil) != (want != "") {
				t.Errorf("%s in %q: got %q, %v, want %q", text, locale, got, err, want)
			}
		}
	}
}

// The locale determines the month of a word that exists in several languages.
func TestDateMonthByLocale(t *testing.T) {
	t.Parallel()
	for locale, want := range map[string]string{"": "", "pl": "2024-11-05", "hr-HR": "2024-10-05", "hr_HR": "2024-10-05"} {
		if got, err := Date("5. listopada 2024", DateOptions{Locale: locale}); got != want {
			t.Errorf("locale %q: got %s, %v, want %s", locale, got, err, want)
		}
	}
}

// Dates in other calendars are errors with a remedy instead of dates in a wrong year.
func TestDateOfAnotherCalendarIsAnError(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"3 พฤษภาคม 2567", "令和6年5月3日", "民國113年5月3日"} {
		if got, err := Date(text, DateOptions{Locale: "th"}); err == nil || !strings.Contains(err.Error(), "recipes") {
			t.Errorf("%s: got %q, %v, want an error that names the recipes", text, got, err)
		}
	}
}

// Without a locale, the language of the page applies.
func TestDateByLanguageOfThePage(t *testing.T) {
	t.Parallel()
	for lang, want := range map[string]string{`lang="en-US"`: `"2024-03-05"`, `lang="en-GB"`: `"2024-05-03"`, `lang=bg`: `"2024-05-03"`, "": ""} {
		if got, _ := fieldValue(t, "{css: b, type: date}", "<html "+lang+"><b>03/05/2024</b>"); got != want {
			t.Errorf("%s: got %s, want %s", lang, got, want)
		}
	}
}

func FuzzDate(f *testing.F) {
	for _, s := range []string{"3 May 2024 10:11 CEST", "2024年5月3日", "vor 2 Stunden", "1714731072", "İ3 İıŁ 2024"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, order := range []string{"", "mdy", "ymd"} {
			_, _ = Date(s, DateOptions{Order: order, Now: fetchedAt})
		}
	})
}

const manyPrices = `records:
  item:
    each: li
    fields:
      price: {css: .price, type: price}
      date: {css: .date, type: date}
`

// A page may have thousands of prices and dates and no language. Searching the whole tree for each would take quadratic time.
func TestDocumentIsSearchedOnceForItsLanguage(t *testing.T) {
	t.Parallel()
	def := define(t, manyPrices)
	d := page(t, def, definition.KindDetail, "http://shop.example/p/1", "<html><body><ul><li><b class=price>5</b></ul>")
	testutil.Must(Run(def, d))(t)
	root := firstWith(d.Root, "html", "")
	root.Attr = append(root.Attr, html.Attribute{Key: "lang", Val: "de"}) // a second search would find it
	if got := d.Language(); got != "" {
		t.Errorf("got language %q after the first search found none, want none: the tree was searched again", got)
	}
}
