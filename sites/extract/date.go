package extract

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// DateOptions say how dates are written.
type DateOptions struct {
	Layouts []string       // of package time; tried in turn. Without any the usual forms of many languages are understood.
	Order   string         // of the numbers in 3/4/2024: dmy, mdy or ymd. Defaults to what the digits allow; what can be read in two ways is an error then.
	Zone    *time.Location // of times that do not say theirs. Defaults to UTC.
	Now     time.Time      // what "2 hours ago" counts from. Defaults to nothing: such dates are errors.
}

// Date reads the first date in a text and writes it as 2006-01-02, or with a
// time of day as RFC 3339.
func Date(text string, o DateOptions) (string, error) {
	if o.Zone == nil {
		o.Zone = time.UTC
	}
	text = Fold(text)
	if len(o.Layouts) > 0 {
		return dateByLayout(text, o)
	}
	rs := []rune(text)
	for i, r := range rs {
		rs[i] = plainRune(r)
	}
	text = westernYears(string(rs[:min(len(rs), 2000)]), o)
	for _, read := range []func(string, DateOptions) (moment, bool, error){isoDate, asianDate, vietnameseDate, namedDate, numericDate, relativeDate, stampDate} {
		m, ok, err := read(text, o)
		if err != nil {
			return "", err
		}
		if ok {
			if lead := leadingClock.FindString(text); lead != "" && !clockForm.MatchString(m.rest) {
				m.rest = lead
			}
			return m.write(o.Zone)
		}
	}
	return "", fmt.Errorf("%q is no date in a known form; give its layout, such as 02.01.2006", clip(text))
}

func dateByLayout(text string, o DateOptions) (string, error) {
	for _, l := range o.Layouts {
		t, err := time.ParseInLocation(l, text, o.Zone)
		if err != nil {
			t, err = time.ParseInLocation(l, inEnglish(text), o.Zone)
		}
		if err != nil {
			continue
		}
		if strings.Contains(l, "15") || strings.Contains(l, "03") || strings.Contains(l, ":") {
			return t.Format(time.RFC3339), nil
		}
		return t.Format(time.DateOnly), nil
	}
	return "", fmt.Errorf("%q is not as in the layout %s", clip(text), strings.Join(o.Layouts, " or "))
}

// moment is a date that was read, with the text after it, where its time of
// day may stand.
type moment struct {
	year, month, day int
	rest             string
	at               time.Time // instead of all others, when it is known to the second
	timed            bool      // at has a time of day
	buddhist         bool      // the year may be one of Thailand's calendar
}

func (m moment) write(zone *time.Location) (string, error) {
	if !m.at.IsZero() {
		if m.timed {
			return m.at.Format(time.RFC3339), nil
		}
		return m.at.Format(time.DateOnly), nil
	}
	if m.buddhist && m.year > 2400 {
		m.year -= 543
	}
	if m.year < 100 {
		if m.year += 2000; m.year >= 2070 {
			m.year -= 100
		}
	}
	d := time.Date(m.year, time.Month(m.month), m.day, 0, 0, 0, 0, zone)
	if m.month < 1 || m.month > 12 || d.Day() != m.day {
		return "", fmt.Errorf("there is no day %04d-%02d-%02d", m.year, m.month, m.day)
	}
	c, ok := clockIn(m.rest)
	if !ok {
		return d.Format(time.DateOnly), nil
	}
	if c.zone != nil {
		zone = c.zone
	}
	return time.Date(m.year, time.Month(m.month), m.day, c.hour, c.minute, c.second, 0, zone).Format(time.RFC3339), nil
}

// clock is a time of day.
type clock struct {
	hour, minute, second int
	zone                 *time.Location // nil: not said
}

var clockForm = regexp.MustCompile(`(?i)^[^\d:]{0,20}?\b(\d{1,2})[:h.](\d{2})(?:[:.](\d{2})(?:[.,]\d{1,9})?)?\s*(?:([ap])\.?m\b\.?)?\s*(z\b|utc|gmt|[a-z]{3,4}\b)?\s*([+-]\d{1,2}:?\d{2}\b)?`)

// leadingClock matches the time of day that stands before the date.
var leadingClock = regexp.MustCompile(`(?i)^\d{1,2}:\d{2}(?::\d{2})?\s*(?:[ap]\.?m\b\.?)?`)

// zones are the abbreviations of time zones that mean one offset only.
var zones = map[string]int{"z": 0, "utc": 0, "gmt": 0, "wet": 0, "cet": 1, "west": 1, "cest": 2, "eet": 2, "eest": 3, "msk": 3, "edt": -4, "cdt": -5, "est": -5, "mdt": -6, "pdt": -7, "mst": -7, "pst": -8, "jst": 9, "kst": 9}

// clockIn reads the time of day at the beginning of what follows a date.
func clockIn(rest string) (clock, bool) {
	m := clockForm.FindStringSubmatch(rest)
	if m == nil {
		return clock{}, false
	}
	c := clock{hour: number2(m[1]), minute: number2(m[2]), second: number2(m[3])}
	if half := strings.ToLower(m[4]); half != "" && c.hour >= 1 && c.hour <= 12 {
		c.hour %= 12
		if half == "p" {
			c.hour += 12
		}
	}
	if c.hour > 23 || c.minute > 59 || c.second > 59 {
		return clock{}, false
	}
	if hours, ok := zones[strings.ToLower(m[5])]; ok {
		c.zone = time.FixedZone("", hours*3600)
		if hours == 0 {
			c.zone = time.UTC
		}
	}
	if off := strings.ReplaceAll(m[6], ":", ""); off != "" {
		minutes := number2(off[1:len(off)-2])*60 + number2(off[len(off)-2:])
		if off[0] == '-' {
			minutes = -minutes
		}
		if c.zone = time.FixedZone("", minutes*60); minutes == 0 {
			c.zone = time.UTC
		}
	}
	return c, true
}

// number2 reads a few digits; "" is 0.
func number2(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}

var (
	isoForm     = regexp.MustCompile(`(?:^|[^\d])(\d{4})-(\d{1,2})-(\d{1,2})(?:[T_]|\b)`)
	yearMonth   = regexp.MustCompile(`^(\d{4})(?:-(\d{2}))?$`)
	asianForm   = regexp.MustCompile(`(\d{4})\s?[年년]\s?(\d{1,2})\s?[月월](?:\s?(\d{1,2})\s?[日일])?(?:\s?[(（][^)）]*[)）])?`)
	asianClock  = regexp.MustCompile(`^\s*(午前|午後|上午|下午|오전|오후)?\s*(\d{1,2})[時时点시:]\s?(\d{1,2})?`)
	weekForm    = regexp.MustCompile(`^(\d{4})-?W(\d{2})(?:-?([1-7]))?$`)
	ordinalForm = regexp.MustCompile(`^(\d{4})-(\d{3})$`)
	yearFirst   = regexp.MustCompile(`(?:^|[^\d.,/-])(\d{4})\s?([./-])\s?(\d{1,2})\s?([./-])\s?(\d{1,2})(?:\D|$)`)
	numericForm = regexp.MustCompile(`(?:^|[^\d.,/-])(\d{1,4})\s?([./-])\s?(\d{1,2})\s?([./-])\s?(\d{4}|\d{2})(?:\D|$)`)
	compactForm = regexp.MustCompile(`^(\d{4})(\d{2})(\d{2})(?:T?([01]\d|2[0-3])([0-5]\d)([0-5]\d))?(Z|[+-]\d{2}:?\d{2})?$`)
)

func isoDate(text string, _ DateOptions) (moment, bool, error) {
	if m := yearMonth.FindStringSubmatch(text); m != nil {
		year, month := number2(m[1]), number2(m[2])
		if year < 1000 || year > 2999 {
			return moment{}, false, nil
		}
		return moment{year: year, month: max(month, 1), day: 1}, true, nil
	}
	if m := compactForm.FindStringSubmatch(text); m != nil && (m[1][0] == '1' || m[1][0] == '2') {
		mo := moment{year: number2(m[1]), month: number2(m[2]), day: number2(m[3])}
		if m[4] != "" {
			mo.rest = m[4] + ":" + m[5] + ":" + m[6] + m[7]
		}
		return mo, mo.month >= 1 && mo.month <= 12 && mo.day >= 1 && mo.day <= 31, nil
	}
	if m := weekForm.FindStringSubmatch(text); m != nil && number2(m[2]) >= 1 && number2(m[2]) <= 53 {
		// The fourth of January is in the first week, which begins on Monday.
		d := time.Date(number2(m[1]), 1, 4, 0, 0, 0, 0, time.UTC)
		d = d.AddDate(0, 0, (number2(m[2])-1)*7+max(number2(m[3]), 1)-1-(int(d.Weekday())+6)%7)
		return moment{year: d.Year(), month: int(d.Month()), day: d.Day()}, true, nil
	}
	if m := ordinalForm.FindStringSubmatch(text); m != nil && number2(m[2]) >= 1 && number2(m[2]) <= 366 {
		d := time.Date(number2(m[1]), 1, number2(m[2]), 0, 0, 0, 0, time.UTC)
		return moment{year: d.Year(), month: int(d.Month()), day: d.Day()}, d.Year() == number2(m[1]), nil
	}
	at := isoForm.FindStringSubmatchIndex(text)
	if at == nil {
		return moment{}, false, nil
	}
	g := func(i int) int { return number2(text[at[2*i]:at[2*i+1]]) }
	return moment{year: g(1), month: g(2), day: g(3), rest: text[at[1]:]}, true, nil
}

func asianDate(text string, _ DateOptions) (moment, bool, error) {
	at := asianForm.FindStringSubmatchIndex(text)
	if at == nil {
		return moment{}, false, nil
	}
	m := moment{year: number2(text[at[2]:at[3]]), month: number2(text[at[4]:at[5]]), day: 1, rest: text[at[1]:]}
	if at[6] >= 0 {
		m.day = number2(text[at[6]:at[7]])
	}
	if c := asianClock.FindStringSubmatch(m.rest); c != nil {
		hour := number2(c[2])
		if strings.Contains("午後下午오후", c[1]) && c[1] != "" && hour < 12 {
			hour += 12
		}
		m.rest = fmt.Sprintf("%02d:%02d", hour, number2(c[3]))
	}
	return m, true, nil
}

var vietnameseForm = regexp.MustCompile(`(?i)(\d{1,2})\s+tháng\s+(\d{1,2})(?:\s*,|\s+năm)?\s+(\d{4})`)

// vietnameseDate reads dates whose months have numbers: 3 tháng 5 năm 2024.
func vietnameseDate(text string, _ DateOptions) (moment, bool, error) {
	at := vietnameseForm.FindStringSubmatchIndex(text)
	if at == nil {
		return moment{}, false, nil
	}
	g := func(i int) int { return number2(text[at[2*i]:at[2*i+1]]) }
	return moment{day: g(1), month: g(2), year: g(3), rest: text[at[1]:]}, true, nil
}

// numericDate reads 3.4.2024, 3/4/24, 2024/4/3 and their like.
func numericDate(text string, o DateOptions) (moment, bool, error) {
	at := yearFirst.FindStringSubmatchIndex(text)
	if at == nil {
		at = numericForm.FindStringSubmatchIndex(text)
	}
	if at == nil || text[at[4]:at[5]] != text[at[8]:at[9]] {
		return moment{}, false, nil
	}
	g := func(i int) (int, int) { return number2(text[at[2*i]:at[2*i+1]]), at[2*i+1] - at[2*i] }
	a, digits := g(1)
	b, _ := g(3)
	c, last := g(5)
	m := moment{rest: text[at[11]:]}
	switch {
	case digits == 4 && last <= 2:
		m.year, m.month, m.day = a, b, c
		return m, true, nil
	case digits > 2:
		return moment{}, false, nil
	case o.Order == "ymd" && last == 2:
		m.year, m.month, m.day = a, b, c
		return m, b <= 12 && c <= 31, nil
	}
	m.year = c
	dot := text[at[4]:at[5]] != "/"
	switch {
	case a > 12 && b > 12:
		return moment{}, false, nil
	case a > 12 || a == b:
		m.day, m.month = a, b
	case b > 12:
		m.day, m.month = b, a
	case o.Order == "mdy" && !(dot && text[at[4]:at[5]] == "."):
		m.day, m.month = b, a
	case o.Order != "" || dot:
		m.day, m.month = a, b
	default:
		return moment{}, false, fmt.Errorf("%q can be read in two ways; say which by locale (en: the month first, en-GB: the day first) or by layout", clip(text))
	}
	return m, true, nil
}

// namedDate reads dates whose month is a word.
func namedDate(text string, _ DateOptions) (moment, bool, error) {
	words := dateWords(text)
	best, size := -1, 0
	for i, w := range words {
		if n := len([]rune(w.text)); monthOf(w.text) > 0 && n > size && (yearNear(words, i) || n >= 3) {
			best, size = i, n
		}
	}
	if best < 0 {
		return moment{}, false, nil
	}
	m := moment{month: monthOf(words[best].text), buddhist: unicode.Is(unicode.Thai, []rune(words[best].text)[0])}
	before, after := numbersBefore(words, best), numbersAfter(words, best)
	use := func(w dateWord) { m.rest = text[w.end:] }
	switch {
	case len(before) > 0 && before[0].isDay() && len(after) > 0 && after[0].isYear():
		m.day, m.year = before[0].n, after[0].n
		use(after[0])
	case len(after) > 1 && after[0].isDay() && after[1].isYear():
		m.day, m.year = after[0].n, after[1].n
		use(after[1])
	case len(before) > 0 && before[0].isFullYear() && len(after) > 0 && after[0].isDay():
		m.day, m.year = after[0].n, before[0].n
		use(after[0])
	case len(before) > 1 && before[0].isDay() && before[1].isFullYear():
		m.day, m.year = before[0].n, before[1].n
		use(words[best])
	case len(before) > 0 && before[0].isFullYear():
		m.day, m.year = 1, before[0].n
	case len(after) > 0 && after[0].isFullYear():
		m.day, m.year = 1, after[0].n
	case len(after) > 0 && after[0].isDay():
		// Wed Jan 3 15:04:05 2024: the year stands behind the time of day.
		if y := yearAfterClock.FindStringSubmatch(text[after[0].end:]); y != nil {
			m.day, m.year = after[0].n, number2(y[1])
			use(after[0])
			break
		}
		fallthrough
	case len(before) > 0 && before[0].isDay():
		return moment{}, false, fmt.Errorf("%q has no year; take it from elsewhere on the page, or leave the field a text", clip(text))
	default:
		return moment{}, false, nil
	}
	return m, true, nil
}

var yearAfterClock = regexp.MustCompile(`^\s*\d{1,2}:\d{2}(?::\d{2})?\s*(?:[A-Z]{3,4}\s*)?(\d{4})\b`)

// dateWord is a word or a number of a text.
type dateWord struct {
	text  string
	n     int // of a number
	len   int // its digits; 0 for a word
	end   int // where it ends in the text
	colon bool
}

func (w dateWord) isDay() bool      { return w.len > 0 && w.len <= 2 && w.n >= 1 && w.n <= 31 }
func (w dateWord) isFullYear() bool { return w.len == 4 && w.n >= 1000 && w.n < 3000 }
func (w dateWord) isYear() bool     { return w.isFullYear() || w.len == 2 && !w.colon }

func dateWords(text string) []dateWord {
	var words []dateWord
	rs := []rune(text)
	pos := 0 // in bytes
	for i := 0; i < len(rs) && len(words) < 400; {
		start := i
		class := func(r rune) int {
			switch {
			case r >= '0' && r <= '9':
				return 1
			case unicode.IsLetter(r) || unicode.Is(unicode.Mn, r):
				return 2
			}
			return 0
		}
		c := class(rs[i])
		for i < len(rs) && class(rs[i]) == c {
			pos += len(string(rs[i]))
			i++
			if c == 0 {
				break
			}
		}
		switch c {
		case 1:
			s := string(rs[start:i])
			n, err := strconv.Atoi(s)
			if err != nil {
				continue
			}
			words = append(words, dateWord{text: s, n: n, len: i - start, end: pos, colon: i < len(rs) && rs[i] == ':'})
		case 2:
			words = append(words, dateWord{text: string(rs[start:i]), end: pos})
		}
	}
	return words
}

// fillers may stand between the parts of a date.
var fillers = map[string]bool{"st": true, "nd": true, "rd": true, "th": true, "of": true, "de": true, "del": true, "den": true, "di": true, "er": true, "г": true, "р": true, "го": true, "ого": true,
	"ви": true, "ри": true, "ти": true, "ми": true, "на": true, "року": true, "года": true, "година": true, "den ": true, "a": true, "e": true, "do": true, "dne": true, "the": true, "o": true, "til": true, "n": true, "an": true}

// numbersBefore are the numbers next to word i on its left, nearest first.
func numbersBefore(words []dateWord, i int) []dateWord {
	var out []dateWord
	for j := i - 1; j >= 0 && len(out) < 2; j-- {
		if words[j].len > 0 {
			out = append(out, words[j])
		} else if !fillers[strings.ToLower(words[j].text)] {
			break
		}
	}
	return out
}

func numbersAfter(words []dateWord, i int) []dateWord {
	var out []dateWord
	for j := i + 1; j < len(words) && len(out) < 2; j++ {
		if words[j].len > 0 {
			if words[j].colon && len(out) > 0 && !words[j].isFullYear() {
				break // the hour of a time of day
			}
			out = append(out, words[j])
		} else if !fillers[strings.ToLower(words[j].text)] {
			break
		}
	}
	return out
}

func yearNear(words []dateWord, i int) bool {
	return len(numbersBefore(words, i))+len(numbersAfter(words, i)) > 0
}

// stampDate reads seconds or milliseconds since 1970, as APIs give them.
func stampDate(text string, o DateOptions) (moment, bool, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case err != nil || n < 1e8:
		return moment{}, false, nil
	case n < 1e11:
		return moment{at: time.Unix(n, 0).In(o.Zone), timed: true}, true, nil
	case n < 1e14:
		return moment{at: time.UnixMilli(n).In(o.Zone), timed: true}, true, nil
	}
	return moment{}, false, nil
}

// bare is a word without case, accents and a final dot.
func bare(w string) string {
	var b strings.Builder
	for _, r := range norm.NFD.String(strings.ToLower(w)) {
		if !unicode.Is(unicode.Mn, r) {
			if r == 'ı' {
				r = 'i'
			} else if r == 'ł' {
				r = 'l'
			}
			b.WriteRune(r)
		}
	}
	return norm.NFC.String(b.String()) // Hangul came apart
}

// months are the names of months in the languages that are understood, each
// with the forms that a prefix does not cover.
var months = [12]string{
	"january januar janvier januari enero ene gennaio janeiro января январь януари janvari styczen stycznia leden ledna ianuarie ocak januar tammikuu tammikuuta januar ιανουαριος ιανουαριου січень січня janvāris sausis jaanuar siječanj",
	"february februar februari fevrier febrero febbraio fevereiro февраля февраль февруари luty lutego unor unora februarie subat helmikuu helmikuuta φεβρουαριος φεβρουαριου лютий лютого veebruar",
	"march marz maerz mars marzo março maart mrt marca marec марта март marzec brezen brezna martie mart maaliskuu maaliskuuta marcius μαρτιος μαρτιου березень березня",
	"april avril abril aprile апреля апрель април kwiecien kwietnia duben dubna aprilie nisan huhtikuu huhtikuuta aprilis απριλιος απριλιου квітень квітня",
	"may mai mayo maggio maio mei maj мая май maja kveten kvetna mayis toukokuu toukokuuta majus μαιος μαιου травень травня",
	"june juni juin junio giugno junho июня июнь юни czerwiec czerwca cerven cervna iunie haziran kesakuu kesakuuta junius ιουνιος ιουνιου червень червня",
	"july juli juillet julio luglio julho июля июль юли lipiec lipca cervenec cervence iulie temmuz heinakuu heinakuuta julius ιουλιος ιουλιου липень липня",
	"august août agosto augustus августа август sierpien sierpnia srpen srpna agustos elokuu elokuuta augusztus αυγουστος αυγουστου серпень серпня",
	"september septembre septiembre settembre setembro сентября сентябрь септември wrzesien wrzesnia zari septembrie eylul syyskuu syyskuuta szeptember σεπτεμβριος σεπτεμβριου вересень вересня",
	"october oktober octobre octubre ottobre outubro октября октябрь октомври pazdziernik pazdziernika rijen rijna octombrie ekim lokakuu lokakuuta οκτωβριος οκτωβριου жовтень жовтня okt",
	"november novembre noviembre novembro ноября ноябрь ноември listopad listopada listopadu noiembrie kasim marraskuu marraskuuta νοεμβριος νοεμβριου листопад листопада",
	"december dezember decembre dicembre diciembre dezembro декабря декабрь декември grudzien grudnia prosinec prosince decembrie aralik joulukuu joulukuuta δεκεμβριος δεκεμβριου грудень грудня desember",
}

// monthNames leads from the bare form of a name to its month.
var monthNames = func() map[string]int {
	m := map[string]int{}
	for i, names := range months {
		for name := range strings.FieldsSeq(names) {
			rs := []rune(bare(name))
			m[string(rs)] = i + 1
			for n := 3; n < len(rs); n++ {
				short := string(rs[:n])
				if was, ok := m[short]; ok && was != i+1 {
					if _, whole := fullNames[short]; !whole {
						m[short] = 0 // it could be either
					}
					continue
				}
				m[short] = i + 1
			}
		}
	}
	for i, names := range wholeMonths {
		for name := range strings.FieldsSeq(names) {
			m[bare(name)] = i + 1
		}
	}
	for _, names := range months { // a whole name is never a short form of another
		for name := range strings.FieldsSeq(names) {
			m[bare(name)] = fullNames[bare(name)]
		}
	}
	return m
}()

var fullNames = func() map[string]int {
	m := map[string]int{}
	for i, names := range months {
		for name := range strings.FieldsSeq(names) {
			if _, ok := m[bare(name)]; !ok {
				m[bare(name)] = i + 1
			}
		}
	}
	return m
}()

// wholeMonths are names that count only when they are not cut short: forms
// whose beginnings would be those of other months elsewhere, and languages
// that do not cut them short.
var wholeMonths = [12]string{
	"jänner januarja januara januára јануари јануар gener يناير ינואר בינואר जनवरी มกราคม",
	"feber februarja februara februára фебруари фебруар veljače febrer فبراير פברואר בפברואר फरवरी กุมภาพันธ์",
	"ožujka מרץ במרץ maret مارس मार्च มีนาคม",
	"aprila apríla abril travnja أبريل ابريل אפריל באפריל अप्रैल เมษายน",
	"maja mája maig svibnja maí мај مايو מאי במאי मई พฤษภาคม",
	"junija júna juny јуни јун lipnja يونيو יוני ביוני जून มิถุนายน",
	"julija júla juliol јули јул srpnja يوليو יולי ביולי जुलाई กรกฎาคม",
	"avgusta avgust agost kolovoza أغسطس اغسطس אוגוסט באוגוסט अगस्त สิงหาคม",
	"septembra setembre septembar септембар rujna سبتمبر ספטמבר בספטמבר सितंबर सितम्बर กันยายน",
	"oktobra octobre október októbra октобар أكتوبر اكتوبر אוקטובר באוקטובר अक्टूबर ตุลาคม",
	"novembra novembre новембар studenoga studenog نوفمبر נובמבר בנובמבר नवंबर नवम्बर พฤศจิกายน",
	"decembra desembre декембар ديسمبر דצמבר בדצמבר दिसंबर दिसम्बर ธันวาคม",
}

// monthOf is the month that a word names, in full or cut short, or 0.
func monthOf(word string) int { return monthNames[bare(word)] }

var wordForm = regexp.MustCompile(`[\pL\pM]+\.?`)

// inEnglish puts English names of months in the place of those of other
// languages, for layouts.
func inEnglish(text string) string {
	return wordForm.ReplaceAllStringFunc(text, func(w string) string {
		name := strings.TrimSuffix(w, ".")
		m := monthOf(name)
		if m == 0 {
			return w
		}
		if len([]rune(name)) <= 4 && len(name) < len(time.Month(m).String()) {
			return time.Month(m).String()[:3] + w[len(name):]
		}
		return time.Month(m).String() + w[len(name):]
	})
}
