package extract

import (
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// language has the words of dates in a language, normalized by bare.
type language struct {
	code   string
	months [12][]string
	days   [4][]string // yesterday, today, tomorrow, just now
	spans  []span
	units  [7][]string // beginnings of: second, minute, hour, day, week, month, year
}

// span is a form such as "2 days ago".
type span struct {
	form *regexp.Regexp // with groups for the number and the unit
	sign int            // -1: ago, 1: ahead
}

// written is a language in the table below: words in the order of the fields of language, separated by spaces (days by commas),
// with slashes between alternatives. A month with a final * may have any ending and is never abbreviated. In ago and ahead, N is
// a number and U a unit.
type written struct{ code, months, days, ago, ahead, units string }

// languageTable begins with English.
var languageTable = []written{
	{"en", "january february march april may june july august september october november december",
		"yesterday,today,tomorrow,just now", "N U ago", "in N U", "sec min hour/hr day week month year"},
	{"de", "januar/jänner februar/feber märz/mrz/maerz april mai juni juli august september oktober november dezember",
		"gestern,heute,morgen,gerade eben", "vor N U", "in N U", "sek min stunde/std tag woche monat jahr"},
	{"fr", "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
		"hier,aujourd'hui,demain,à l'instant", "il y a N U", "dans N U", "sec min heure jour semaine mois an"},
	{"es", "enero febrero marzo abril mayo junio julio agosto septiembre/setiembre octubre noviembre diciembre",
		"ayer,hoy,mañana,ahora", "hace N U", "en N U", "seg min hora dia semana mes año"},
	{"it", "gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre",
		"ieri,oggi,domani,adesso", "N U fa", "fra N U/tra N U", "sec min or giorn settiman mes ann"},
	{"pt", "janeiro fevereiro março abril maio junho julho agosto setembro outubro novembro dezembro",
		"ontem,hoje,amanhã,agora", "há N U/N U atrás", "em N U", "seg min hora dia semana mes ano"},
	{"bg", "януари февруари март април май юни юли август септември октомври ноември декември",
		"вчера,днес,утре,току-що/току що", "преди N U", "след N U", "сек мин час дн/ден седмиц месец год"},
	{"uk", "січень/січня лютий/лютого березень/березня квітень/квітня травень/травня червень/червня липень/липня серпень/серпня вересень/вересня жовтень/жовтня листопад/листопада грудень/грудня",
		"вчора,сьогодні,завтра,щойно", "N U тому/N U назад", "через N U", "сек хвил годин дн/ден тиж міс рок/рік"},
	{"ru", "январь/января февраль/февраля март/марта апрель/апреля май/мая июнь/июня июль/июля август/августа сентябрь/сентября октябрь/октября ноябрь/ноября декабрь/декабря",
		"вчера,сегодня,завтра,только что", "N U назад", "через N U", "сек мин час дн/ден недел мес год/лет"},
	{"pl", "styczeń/stycznia luty/lutego marzec/marca kwiecień/kwietnia maj/maja czerwiec/czerwca lipiec/lipca sierpień/sierpnia wrzesień/września październik/października listopad/listopada grudzień/grudnia",
		"wczoraj,dzisiaj/dziś,jutro,przed chwilą", "N U temu", "za N U", "sek min godz dni/dzien tydz/tyg mies rok/lat"},
	{"cs", "leden/ledna únor/února březen/března duben/dubna květen/května červen/června červenec/července srpen/srpna září říjen/října listopad/listopadu prosinec/prosince",
		"včera,dnes,zítra,právě teď", "před N U", "za N U", "sek min hod dn/den tyd mes rok/let"},
	{"sk", "január/januára február/februára marec/marca apríl/apríla máj/mája jún/júna júl/júla august/augusta september/septembra október/októbra november/novembra december/decembra",
		"včera,dnes,zajtra,práve teraz", "pred N U", "o N U", "sek min hod dn/den tyz mes rok"},
	{"nl", "januari februari maart/mrt april mei juni juli augustus september oktober november december",
		"gisteren,vandaag,morgen,zojuist", "N U geleden", "over N U", "sec min uur/uren dag week/weken maand jaar"},
	{"sv", "januari februari mars april maj juni juli augusti september oktober november december",
		"igår/i går,idag/i dag,imorgon/i morgon,just nu", "N U sedan", "om N U", "sek min timm dag veck månad år"},
	{"da", "januar februar marts april maj juni juli august september oktober november december",
		"i går/igår,i dag/idag,i morgen,lige nu", "N U siden", "om N U", "sek min time dag uge måned år"},
	{"nb", "januar februar mars april mai juni juli august september oktober november desember",
		"i går,i dag,i morgen,akkurat nå", "N U siden", "om N U", "sek min time dag uke måned år"},
	{"is", "janúar febrúar mars apríl maí júní júlí ágúst september október nóvember desember", "", "", "", ""},
	{"fi", "tammikuu* helmikuu* maaliskuu* huhtikuu* toukokuu* kesäkuu* heinäkuu* elokuu* syyskuu* lokakuu* marraskuu* joulukuu*",
		"eilen,tänään,huomenna,juuri nyt", "N U sitten", "N U kuluttua", "sek min tun päiv viik kuuk vuo"},
	{"et", "jaanuar veebruar märts aprill mai juuni juuli august september oktoober november detsember", "", "", "", ""},
	{"lv", "janvār* februār* mart* aprīl* maij* jūnij* jūlij* august* septembr* oktobr* novembr* decembr*", "", "", "", ""},
	{"lt", "saus* vasar* kov* baland* geguž* birž* liep* rugpj* rugs* spal* lapkr* gruod*", "", "", "", ""},
	{"hu", "január február március április május június július augusztus szeptember október november december",
		"tegnap,,holnap,", "N U ezelőtt", "N U múlva", "másodp perc ór nap hét hónap év"},
	{"tr", "ocak şubat mart nisan mayıs haziran temmuz ağustos eylül ekim kasım aralık",
		"dün,bugün,yarın,az önce", "N U önce", "N U sonra", "saniye/sn dakika/dk saat gün hafta ay yıl"},
	{"ro", "ianuarie februarie martie aprilie mai iunie iulie august septembrie octombrie noiembrie decembrie",
		"ieri,azi,mâine,chiar acum", "acum N U", "peste N U", "sec min or zi săptămân lun an"},
	{"el", "ιανουαρι* φεβρουαρι* μαρτι* απριλι* μαι* ιουνι* ιουλι* αυγουστ* σεπτεμβρι* οκτωβρι* νοεμβρι* δεκεμβρι*",
		"χθες,σήμερα,αύριο,", "πριν N U/πριν από N U", "σε N U", "δευτ λεπτ ώρ ημέρ/μέρ εβδομάδ μήν χρόν/έτ"},
	{"hr", "siječanj/siječnja veljača/veljače ožujak/ožujka travanj/travnja svibanj/svibnja lipanj/lipnja srpanj/srpnja kolovoz/kolovoza rujan/rujna listopad/listopada studeni/studenoga/studenog prosinac/prosinca",
		"jučer,danas,sutra,", "prije N U", "za N U", "sek min sat dan tjed mjesec godin"},
	{"sl", "januar/januarja februar/februarja marec/marca april/aprila maj/maja junij/junija julij/julija avgust/avgusta september/septembra oktober/oktobra november/novembra december/decembra",
		"včeraj,danes,jutri,", "pred N U", "čez N U", "sek min ur dn/dan ted mesec let"},
	{"sr", "јануар/јануара фебруар/фебруара март/марта април/априла мај/маја јун/јуна јул/јула август/августа септембар/септембра октобар/октобра новембар/новембра децембар/децембра",
		"јуче,данас,сутра,", "пре N U", "за N U", "сек мин сат дан недељ месец годин"},
	{"ca", "gener febrer març abril maig juny juliol agost setembre octubre novembre desembre", "ahir,avui,demà,", "fa N U", "", "seg min hor di setman mes any"},
	{"id", "januari februari maret april mei juni juli agustus september oktober november desember", "", "", "", ""},
	{"ar", "يناير فبراير مارس أبريل مايو يونيو يوليو أغسطس سبتمبر أكتوبر نوفمبر ديسمبر", "", "", "", ""},
	{"he", "ינואר/בינואר פברואר/בפברואר מרץ/במרץ אפריל/באפריל מאי/במאי יוני/ביוני יולי/ביולי אוגוסט/באוגוסט ספטמבר/בספטמבר אוקטובר/באוקטובר נובמבר/בנובמבר דצמבר/בדצמבר", "", "", "", ""},
	{"hi", "जनवरी फरवरी मार्च अप्रैल मई जून जुलाई अगस्त सितंबर/सितम्बर अक्टूबर नवंबर/नवम्बर दिसंबर/दिसम्बर", "", "", "", ""},
	{"th", "มกราคม กุมภาพันธ์ มีนาคม เมษายน พฤษภาคม มิถุนายน กรกฎาคม สิงหาคม กันยายน ตุลาคม พฤศจิกายน ธันวาคม", "", "", "", ""},
	{"ja", "", "昨日,今日,明日,たった今", "N U前", "N U後", "秒 分 時間 日 週間 か月/ヶ月 年"},
	{"zh", "", "昨天,今天,明天,刚刚", "N U前", "N U后/N U後", "秒 分 小时/小時 天 周/星期/週 个月/個月 年"},
	{"ko", "", "어제,오늘,내일,방금", "N U ?전", "N U ?후", "초 분 시간 일 주 개월/달 년"},
}

// one matches the word for the number one.
const one = `an?|one|einem|einer|une?|una?|uno|uma?|един|една|едно|одну|один|ett|en|een`

// languages returns the table, compiled at first use.
var languages = sync.OnceValue(func() []language {
	list := make([]language, len(languageTable))
	for i, w := range languageTable {
		l := language{code: w.code, spans: slices.Concat(spans(w.ago, -1), spans(w.ahead, 1))}
		split(l.months[:], w.months, " ")
		split(l.days[:], w.days, ",")
		split(l.units[:], w.units, " ")
		list[i] = l
	}
	return list
})

func split(into [][]string, words, sep string) {
	if words == "" {
		return
	}
	for i, w := range strings.Split(words, sep) {
		if w != "" {
			into[i] = strings.Split(bare(w), "/")
		}
	}
}

// spans compiles forms such as "vor N U". The number is optional only at the beginning of the form.
func spans(forms string, sign int) []span {
	var list []span
	for form := range strings.SplitSeq(forms, "/") {
		before, after, ok := strings.Cut(form, "N U")
		if !ok {
			continue
		}
		optional := ""
		if before == "" {
			optional = "?"
		}
		form := `(?:^|[^\pL\d])` + bare(before) + `(?:(\d{1,4}|` + one + `)\s*)` + optional + `(\pL+)` + bare(after)
		list = append(list, span{regexp.MustCompile(form), sign})
	}
	return list
}

// languagesOf returns the language of a locale, if it is in the table, and English. Words of further languages are excluded,
// because they may be names or other words in the text.
func languagesOf(locale string) []language {
	code, _, _ := strings.Cut(strings.ToLower(strings.ReplaceAll(locale, "_", "-")), "-")
	all := languages()
	i := slices.IndexFunc(all, func(l language) bool { return l.code == code })
	if i <= 0 {
		return all[:1]
	}
	return []language{all[i], all[0]}
}

// monthOf returns the month with a name, in full or abbreviated to at least three letters, or 0.
func monthOf(word, locale string) int {
	word = bare(word)
	long := len([]rune(word)) >= 3
	cut := 0
	for _, l := range languagesOf(locale) {
		for i, names := range l.months {
			for _, name := range names {
				stem, ends := strings.CutSuffix(name, "*")
				switch {
				case word == name, ends && strings.HasPrefix(word, stem):
					return i + 1
				case cut == 0 && !ends && long && strings.HasPrefix(name, word):
					cut = i + 1
				}
			}
		}
	}
	return cut
}

// bare normalizes a word to lower case without accents.
func bare(w string) string {
	var b strings.Builder
	for _, r := range norm.NFD.String(strings.ToLower(w)) {
		switch {
		case unicode.Is(unicode.Mn, r):
		case r == 'ı':
			b.WriteRune('i')
		case r == 'ł':
			b.WriteRune('l')
		default:
			b.WriteRune(r)
		}
	}
	return norm.NFC.String(b.String()) // NFD splits Hangul
}
