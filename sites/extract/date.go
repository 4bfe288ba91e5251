package extract

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// DateOptions describe the notation of a date.
type DateOptions struct {
	Layouts []string       // layouts of package time, tried in order. Defaults to common forms in the language of Locale and in English.
	Locale  string         // sets the language of words, in addition to English. Defaults to English.
	Order   string         // order of the numbers in 3/4/2024: dmy, mdy or ymd. By default it is inferred, and an ambiguous date is an error.
	Zone    *time.Location // zone of times without one. Defaults to UTC.
	Now     time.Time      // base of relative dates, which are errors without it
}

// maxDateText is the number of bytes of a text that are searched for a date.
const maxDateText = 2000

// Date returns the first date in a text as 2006-01-02, or as RFC 3339 with a time of day.
func Date(text string, o DateOptions) (string, error) {
	o.Zone = cmp.Or(o.Zone, time.UTC)
	text = Fold(text)
	if len(o.Layouts) > 0 {
		return dateByLayout(text, o)
	}
	text = strings.ToValidUTF8(text[:min(len(text), maxDateText)], "")
	text = strings.Map(plainRune, text)
	if text != "" && strings.IndexByte("MTWFS", text[0]) >= 0 { // Wed Jan 3 15:04:05 2024: the year follows the time of day
		for _, layout := range []string{time.ANSIC, time.UnixDate, time.RubyDate} {
			if t, err := time.ParseInLocation(layout, text, o.Zone); err == nil {
				return t.Format(time.RFC3339), nil
			}
		}
	}
	shape := compactForm.ReplaceAllString(separators.Replace(text), "$1-$2-$3 $4:$5:$6$7")
	if d, err := firstDate(shape, o); err != nil || d.year != 0 {
		return d.write(shape, o.Zone, err)
	}
	if s := relativeDate(text, o); s != "" {
		if o.Now.IsZero() {
			return "", fmt.Errorf("%q is relative to an unknown time", short(text))
		}
		return s, nil
	}
	if s := timestamp(text, o.Zone); s != "" {
		return s, nil
	}
	return "", fmt.Errorf("unknown date format %q; set locale or layout, such as 02.01.2006, or see the recipes in sites/README.md", short(text))
}

func dateByLayout(text string, o DateOptions) (string, error) {
	english := dateWord.ReplaceAllStringFunc(text, func(w string) string {
		month := monthOf(w, o.Locale)
		if month == 0 {
			return w
		}
		name := time.Month(month).String()
		if utf8.RuneCountInString(w) <= 4 && len(w) < len(name) {
			return name[:3]
		}
		return name
	})
	for _, l := range o.Layouts {
		t, err := time.ParseInLocation(l, text, o.Zone)
		if err != nil {
			t, err = time.ParseInLocation(l, english, o.Zone)
		}
		if err != nil {
			continue
		}
		if strings.Contains(l, "15") || strings.Contains(l, "03") || strings.Contains(l, ":") {
			return t.Format(time.RFC3339), nil
		}
		return t.Format(time.DateOnly), nil
	}
	return "", fmt.Errorf("%q does not match the layout %s", short(text), strings.Join(o.Layouts, " or "))
}

// day is a date and its position in the text. A year of 0 means no year.
type day struct {
	year, month, day int
	from, to         int
}

// firstDate returns the first date of a text. A word next to a numeric date is not part of it: in "by Jan, 12.05.2024" it is a
// name.
func firstDate(text string, o DateOptions) (day, error) {
	if d := isoDate(text); d.year != 0 {
		return d, nil
	}
	named, namedErr := namedDate(text, o)
	if d, err := numericDate(text, o); d.to > 0 && (named.year == 0 || named.to > d.from) {
		return d, err
	}
	return named, namedErr
}

// write formats the date with the time of day that follows it or begins the text.
func (d day) write(text string, zone *time.Location, err error) (string, error) {
	if err != nil {
		return "", err
	}
	if d.year < 100 {
		if d.year += 2000; d.year >= 2070 {
			d.year -= 100
		}
	}
	if d.year > 2400 {
		return "", fmt.Errorf("the year %d belongs to another calendar; see the recipes in sites/README.md", d.year)
	}
	t := time.Date(d.year, time.Month(d.month), d.day, 0, 0, 0, 0, zone)
	if d.month < 1 || d.month > 12 || t.Day() != d.day {
		return "", fmt.Errorf("invalid date %04d-%02d-%02d", d.year, d.month, d.day)
	}
	c, ok := clockIn(text[d.to:], 20)
	if !ok {
		c, ok = clockIn(text[:d.from], 0)
	}
	if !ok {
		return t.Format(time.DateOnly), nil
	}
	return time.Date(d.year, time.Month(d.month), d.day, c.hour, c.minute, c.second, 0, cmp.Or(c.zone, zone)).Format(time.RFC3339), nil
}

// clock is a time of day.
type clock struct {
	hour, minute, second int
	zone                 *time.Location // nil: not given
}

var clockForm = regexp.MustCompile(`(?i)(?:^|[^\d:])(?:(午後|下午|오후|午前|上午|오전)\s?)?(\d{1,2})(?:[:h.](\d{2})(?:[:.](\d{2})(?:[.,]\d{1,9})?)?|\s?[時时点시]\s?(\d{0,2}))` +
	`\s*(?:([ap])\.?m\b\.?)?\s*(z\b|[a-z]{3,4}\b)?\s*([+-]\d{1,2}:?\d{2}\b)?`)

// zones has the offsets of unambiguous abbreviations of time zones, in hours.
var zones = map[string]int{
	"z": 0, "utc": 0, "gmt": 0, "wet": 0, "cet": 1, "west": 1, "cest": 2, "eet": 2, "eest": 3, "msk": 3, "jst": 9, "kst": 9,
	"edt": -4, "cdt": -5, "est": -5, "mdt": -6, "pdt": -7, "mst": -7, "pst": -8,
}

// clockIn parses a time of day that begins within the first bytes of a text.
func clockIn(text string, within int) (clock, bool) {
	at := clockForm.FindStringSubmatchIndex(text)
	if at == nil || at[0] > within {
		return clock{}, false
	}
	m := clockForm.FindStringSubmatch(text)
	if end := max(at[5], at[7], at[9], at[11]); end < len(text) && text[end] >= '0' && text[end] <= '9' {
		return clock{}, false // 04.06.2024 is not a time
	}
	c := clock{hour: digits(m[2]), minute: digits(m[3] + m[5]), second: digits(m[4])}
	half := strings.ToLower(m[6])
	if m[1] != "" {
		half = "a"
		if strings.Contains("午後下午오후", m[1]) {
			half = "p"
		}
	}
	if half != "" && c.hour >= 1 && c.hour <= 12 {
		c.hour %= 12
		if half == "p" {
			c.hour += 12
		}
	}
	if hours, ok := zones[strings.ToLower(m[7])]; ok {
		c.zone = offset(hours * 60)
	}
	if off := strings.ReplaceAll(m[8], ":", ""); off != "" {
		minutes := digits(off[1:len(off)-2])*60 + digits(off[len(off)-2:])
		if off[0] == '-' {
			minutes = -minutes
		}
		c.zone = offset(minutes)
	}
	return c, c.hour <= 23 && c.minute <= 59 && c.second <= 59
}

func offset(minutes int) *time.Location {
	if minutes == 0 {
		return time.UTC
	}
	return time.FixedZone("", minutes*60)
}

// digits parses a few digits; "" is 0.
func digits(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}

var (
	// separators rewrites 2024年5月3日 as 2024-5-3, and 3 tháng 5 năm 2024 as 3-5-2024.
	separators  = strings.NewReplacer("年", "-", "년", "-", "月", "-", "월", "-", "日", " ", "일", " ", " tháng ", "-", " Tháng ", "-", " năm ", "-")
	compactForm = regexp.MustCompile(`^([12]\d{3})(0[1-9]|1[0-2])([0-2]\d|3[01])(?:T?([01]\d|2[0-3])([0-5]\d)([0-5]\d))?(Z|[+-]\d{2}:?\d{2})?$`)
	yearForm    = regexp.MustCompile(`^([12]\d{3})(?:-(\d{2}))?$`)
	isoForm     = regexp.MustCompile(`(?:^|\D)(\d{4})-\s?(\d{1,2})-(?:\s?(\d{1,2}))?(?:\D|$)`)
	yearFirst   = regexp.MustCompile(`(?:^|[^\d.,/-])(\d{4})\s?([./-])\s?(\d{1,2})\s?([./-])\s?(\d{1,2})(?:\D|$)`)
	numericForm = regexp.MustCompile(`(?:^|[^\d.,/-])(\d{1,2})\s?([./-])\s?(\d{1,2})\s?([./-])\s?(\d{4}|\d{2})(?:\D|$)`)
	innerForm   = regexp.MustCompile(`^\s?[./-]\s?\d`)
	dateWord    = regexp.MustCompile(`[\pL\pM]+|\d+`)
)

// isoDate parses 2024-05-03, 2024-05 and 2024, after separators has replaced other separators.
func isoDate(text string) day {
	if m := yearForm.FindStringSubmatch(text); m != nil {
		return day{year: digits(m[1]), month: max(digits(m[2]), 1), day: 1, to: len(text)}
	}
	for from := 0; ; {
		at := isoForm.FindStringSubmatchIndex(text[from:])
		if at == nil {
			return day{}
		}
		for i := range at {
			at[i] += from
		}
		d := day{year: digits(text[at[2]:at[3]]), month: digits(text[at[4]:at[5]]), day: 1, from: at[2], to: at[5] + 1}
		if at[6] >= from {
			d.day, d.to = digits(text[at[6]:at[7]]), at[7]
		}
		if d.inCalendar() {
			return d
		}
		from = at[5] // a number such as 0888-12-34
	}
}

// inCalendar reports whether year, month and day are in the range of dates.
func (d day) inCalendar() bool {
	return d.year >= 1000 && d.month >= 1 && d.month <= 12 && d.day >= 1 && d.day <= 31
}

// numericDate parses 3.4.2024, 3/4/24, 2024/4/3 and similar forms. It returns the position also with an error.
func numericDate(text string, o DateOptions) (day, error) {
	at := yearFirst.FindStringSubmatchIndex(text)
	ymd := at != nil && day{year: digits(text[at[2]:at[3]]), month: digits(text[at[6]:at[7]]), day: digits(text[at[10]:at[11]])}.inCalendar()
	if !ymd {
		at = numericForm.FindStringSubmatchIndex(text)
	}
	if at == nil || text[at[4]:at[5]] != text[at[8]:at[9]] {
		return day{}, nil
	}
	a, b, c := digits(text[at[2]:at[3]]), digits(text[at[6]:at[7]]), digits(text[at[10]:at[11]])
	d := day{from: at[2], to: at[11]}
	if ymd || o.Order == "ymd" && at[11]-at[10] == 2 {
		d.year, d.month, d.day = a, b, c
		return d, nil
	}
	sign := text[at[4]:at[5]]
	d.year, d.day, d.month = c, a, b
	switch {
	case a > 12 && b > 12:
		return day{}, nil
	case b > 12, o.Order == "mdy" && a <= 12 && sign != ".":
		d.day, d.month = b, a
	case a <= 12 && a != b && o.Order == "" && sign == "/":
		return d, fmt.Errorf("%q is ambiguous; set locale (en: month first, en-GB: day first) or layout", short(text))
	}
	return d, nil
}

// fillers are words that may be between the parts of a date.
const fillers = " st nd rd th of the er de del di den dne do e n o til an г го ого р ви ри ти ми на року года година gada m "

// part is a word or a number of a text.
type part struct {
	month    int // 1 to 12 for the name of a month, or 0
	n        int // the number
	digits   int // of the number; 0: a word
	from, to int
	clock    bool // a colon follows
	inner    bool // a separator and another digit follow
}

// fits reports whether a part can be the day (d), the month (m), the year (y) or the year in four digits (Y).
func (p part) fits(letter byte) bool {
	full := p.digits == 4 && p.n >= 1000 && p.n < 3000
	switch letter {
	case 'd':
		return p.digits > 0 && p.digits <= 2 && p.n >= 1 && p.n <= 31 && !p.clock
	case 'm':
		return p.month > 0
	case 'y':
		return full || p.digits == 2 && !p.clock && !p.inner
	}
	return full
}

// namedDate parses dates with the name of a month.
func namedDate(text string, o DateOptions) (day, error) {
	parts := dateParts(text, o.Locale)
	yearless := false
	for i := range parts {
		for _, form := range []string{"dmy", "mdy", "Ymd", "Ydm", "mY", "Ym", "dm", "md"} {
			if len(parts)-i < len(form) || slices.ContainsFunc([]int{0, 1, len(form) - 1}, func(j int) bool { return !parts[i+j].fits(form[j]) }) {
				continue
			}
			if rest := parts[i+len(form):]; form[0] == 'Y' && len(form) == 3 && len(rest) > 0 && rest[0].fits('Y') && !(len(rest) > 1 && rest[1].fits('m')) {
				break // the first year is not part of the date: © 2019, May 3, 2024
			}
			d := day{day: 1, from: parts[i].from, to: parts[i+len(form)-1].to}
			for j := range len(form) {
				switch p := parts[i+j]; form[j] {
				case 'd':
					d.day = p.n
				case 'm':
					d.month = p.month
				default:
					d.year = p.n
				}
			}
			if d.year > 0 || len(form) == 3 {
				return d, nil
			}
			yearless = true
		}
	}
	if yearless {
		return day{}, fmt.Errorf("%q has no year; extract the year from another element, or use type: text", short(text))
	}
	return day{}, nil
}

func dateParts(text, locale string) []part {
	var parts []part
	for _, at := range dateWord.FindAllStringIndex(text, 200) {
		w := text[at[0]:at[1]]
		p := part{from: at[0], to: at[1], clock: strings.HasPrefix(text[at[1]:], ":"), inner: innerForm.MatchString(text[at[1]:])}
		if n, err := strconv.Atoi(w); err == nil {
			p.n, p.digits = n, len(w)
		} else if p.month = monthOf(w, locale); p.month == 0 && strings.Contains(fillers, " "+strings.ToLower(w)+" ") {
			continue
		}
		parts = append(parts, p)
	}
	return parts
}

// relativeDate parses "2 hours ago", "yesterday", "in 3 days" and similar forms, or returns "". Units up to hours include a time
// of day.
func relativeDate(text string, o DateOptions) string {
	t := bare(text)
	if len(t) > 100 {
		return ""
	}
	for _, l := range languagesOf(o.Locale) {
		for i, names := range l.days {
			if !slices.ContainsFunc(names, func(w string) bool { return atEdge(t, w) }) {
				continue
			}
			if i == 3 {
				return o.since(0, 1)
			}
			at := o.Now.In(o.Zone).AddDate(0, 0, i-1)
			s, _ := day{year: at.Year(), month: int(at.Month()), day: at.Day()}.write(text, o.Zone, nil)
			return s
		}
		for _, span := range l.spans {
			m := span.form.FindStringSubmatch(t)
			if m == nil {
				continue
			}
			unit := slices.IndexFunc(l.units[:], func(begin []string) bool {
				return slices.ContainsFunc(begin, func(b string) bool { return strings.HasPrefix(m[2], b) })
			})
			if unit >= 0 {
				n, err := strconv.Atoi(m[1])
				if err != nil {
					n = 1 // an hour ago
				}
				return o.since(span.sign*n, unit)
			}
		}
	}
	return ""
}

// atEdge reports whether a text begins or ends with a word.
func atEdge(text, w string) bool {
	if rest, ok := strings.CutPrefix(text, w); ok {
		return rest == "" || strings.ContainsAny(rest[:1], " ,")
	}
	return strings.HasSuffix(text, " "+w)
}

// since returns the time n units from now. The units are seconds (0), minutes, hours, days, weeks, months, years (6).
func (o DateOptions) since(n, unit int) string {
	t := o.Now.In(o.Zone)
	if unit < 3 {
		return t.Add(time.Duration(n) * []time.Duration{time.Second, time.Minute, time.Hour}[unit]).Truncate(time.Minute).Format(time.RFC3339)
	}
	step := [][3]int{{0, 0, 1}, {0, 0, 7}, {0, 1, 0}, {1, 0, 0}}[unit-3]
	return t.AddDate(n*step[0], n*step[1], n*step[2]).Format(time.DateOnly)
}

// timestamp parses the Unix seconds or milliseconds that APIs use, or returns "".
func timestamp(text string, zone *time.Location) string {
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case err != nil || n < 1e8 || n >= 1e14:
		return ""
	case n < 1e11:
		return time.Unix(n, 0).In(zone).Format(time.RFC3339)
	}
	return time.UnixMilli(n).In(zone).Format(time.RFC3339)
}
