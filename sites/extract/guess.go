package extract

import (
	"bytes"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// tongue is a language as its letters beyond ASCII tell it.
type tongue struct {
	lang     string
	charsets []string // that its pages come in, the most usual first
	letters  string   // the most frequent first
}

// tongues are told apart by a guess. Languages that the same bytes give the
// same text in need no entry of their own.
var tongues = []tongue{
	{"en", []string{"windows-1252"}, "éñüöçáíèóäïêâåø"},
	{"de", []string{"windows-1252"}, "üäößé"},
	{"fr", []string{"windows-1252"}, "éèàêçùîôûâëïœæÿ"},
	{"es", []string{"windows-1252"}, "óáéíñúü"},
	{"ca", []string{"windows-1252"}, "óàèéíçòúïü·"},
	{"pt", []string{"windows-1252"}, "ãçéáíóõêúâàô"},
	{"it", []string{"windows-1252"}, "èàùòìé"},
	{"nl", []string{"windows-1252"}, "éëïöèü"},
	{"sv", []string{"windows-1252"}, "äåöé"},
	{"da", []string{"windows-1252"}, "åøæéö"},
	{"is", []string{"windows-1252"}, "íáðþéóöúýæ"},
	{"tr", []string{"windows-1254"}, "ıüşçğöâîû"},
	{"pl", []string{"iso-8859-2", "windows-1250"}, "łąęóżśćńź"},
	{"cs", []string{"windows-1250", "iso-8859-2"}, "íáěéřčžýšůúňťďó"},
	{"sk", []string{"windows-1250", "iso-8859-2"}, "áíčéýšžťúľôňäďóĺŕ"},
	{"hu", []string{"iso-8859-2", "windows-1250"}, "áéöóőüíúű"},
	{"ro", []string{"iso-8859-2", "windows-1250"}, "ăîţşâ"},
	{"hr", []string{"windows-1250", "iso-8859-2"}, "čšžćđ"},
	{"lt", []string{"windows-1257"}, "ėšųžįčūąę"},
	{"lv", []string{"windows-1257"}, "āīēšņūķļģčž"},
	{"et", []string{"windows-1257"}, "äõüöšž"},
	{"ru", []string{"windows-1251", "koi8-r", "ibm866", "iso-8859-5"}, "оеаинтсрвлкмдпуяыьгзбчйхжшюцщэфъё"},
	{"uk", []string{"windows-1251", "koi8-u"}, "оанивіертслкдумпзяьбгйхчїжцшюєщфґ"},
	{"bg", []string{"windows-1251"}, "аиоетнрсвлпкдмзгбуъячйцшжщхфюь"},
	{"sr", []string{"windows-1251"}, "аиоенрстјуквдмплзгбшчцњћжљђхфџ"},
	{"el", []string{"iso-8859-7", "windows-1253"}, "αοιετσνηυρπκμλςωάίόέήδγύχθφβώξζψϊϋ"},
	{"he", []string{"windows-1255"}, "יוהלאתרבמנשדקעםחפטגצכןסזךףץ"},
	{"ar", []string{"windows-1256"}, "اليمونرتبعدةسفهكقأحجشصىطخإذضغزثئءظآؤ"},
	{"fa", []string{"windows-1256"}, "اينردهومتبسكشلزفگقخعپجآحچصطضغذثژظ"},
	{"th", []string{"windows-874"}, "านรอก่เง้วมยลดตัสทิปคีหแ์ะบาุจข็ไใพซูืชโศณถผำๆธษฟญ"},
	{"ja", []string{"shift_jis", "euc-jp"}, ""},
	{"zh", []string{"gb18030"}, "的一是不了在人有我他这个们中来上大为和国地到以说时要就出会可也你对生能而子那得于着下自之年"},
	{"zh", []string{"big5"}, "的一是不了在人有我他這個們中來上大為和國地到以說時要就出會可也你對生能而子那得於著下自之年"},
	{"ko", []string{"euc-kr"}, "이다는의에을가로하고지를사도은기한리자인서시대어라나있해과스일정보수전게들제여니만구그비아부주상으장세면적용습트드무원성오동요우여안모경않없된"},
}

// sampleSize is how much text with letters beyond ASCII a guess looks at.
const sampleSize = 16 << 10

var (
	langAttr = regexp.MustCompile(`(?i)<html[^>]*\slang\s*=\s*["']?([a-z]{2})`)
)

// guess tells a charset by what its letters would be, and the language that
// the page gives for its own. It is right for whole pages in the languages
// it knows, not for a few words.
func guess(body []byte) string {
	var sample []byte
	for rest := body; len(rest) > 0 && len(sample) < sampleSize; {
		// < and > are no part of a longer character in any charset.
		end := bytes.IndexAny(rest, "<>\n")
		if end < 0 {
			end = len(rest) - 1
		}
		if run := rest[:end+1]; bytes.ContainsFunc(run, func(r rune) bool { return r >= utf8.RuneSelf }) {
			sample = append(sample, run[:min(len(run), sampleSize)]...)
		}
		rest = rest[end+1:]
	}
	lang := ""
	if m := langAttr.FindSubmatch(body[:min(len(body), 4096)]); m != nil {
		lang = strings.ToLower(string(m[1]))
	}
	best, bestScore := "windows-1252", -1<<30
	texts := map[string][]rune{}
	for _, t := range tongues {
		ranks := map[rune]int{}
		for i, r := range []rune(t.letters) {
			ranks[r] = i
		}
		for _, name := range t.charsets {
			if texts[name] == nil {
				enc, _ := lookup(name)
				texts[name] = []rune(string(decodeWith(enc, sample)))
			}
			score := t.score(texts[name], ranks)
			if t.lang == lang {
				score += 40
			}
			if score > bestScore {
				best, bestScore = name, score
			}
		}
	}
	return best
}

// score adds up how well each character of a text suits the language: its
// letters as they stand in words count for it; letters of others, of two
// scripts in a word and what hardly stands in text, against it.
func (t tongue) score(text []rune, ranks map[rune]int) int {
	score := 0
	at := func(i int) rune {
		if i < 0 || i >= len(text) {
			return ' '
		}
		return text[i]
	}
	for i, r := range text {
		if r < utf8.RuneSelf {
			continue
		}
		prev, next := at(i-1), at(i+1)
		rank, known := ranks[unicode.ToLower(r)]
		worth := 0
		if known {
			worth = 5 - 5*rank/len(ranks)
		}
		if unicode.IsUpper(r) {
			worth /= 3
		}
		switch {
		case r == utf8.RuneError:
			score -= 60
		case unicode.IsControl(r), unicode.Is(unicode.Co, r):
			score -= 20
		case unicode.In(r, unicode.Hiragana, unicode.Katakana):
			switch {
			case r >= 0xFF61 && r <= 0xFF9F: // half-width: the sign of a wrong guess
				score -= 4
			case t.lang == "ja":
				score += 10
			}
		case unicode.Is(unicode.Hangul, r):
			if t.lang == "ko" {
				score++
			}
			if known {
				score += 5 + worth
			}
			score -= 4 * ascii(prev, next)
		case unicode.Is(unicode.Han, r):
			switch {
			case known:
				score += 8
			case r < 0x4e00 || r >= 0x9fa6:
				score -= 6
			case t.lang == "zh":
				score += 2
			}
			score -= 4 * ascii(prev, next)
		case unicode.IsLetter(r), unicode.IsMark(r):
			switch latin := unicode.Is(unicode.Latin, r); {
			case unicode.IsUpper(r) && unicode.IsLower(prev):
				score -= 5
			case latin && prev >= utf8.RuneSelf && next >= utf8.RuneSelf && unicode.IsLetter(prev) && unicode.IsLetter(next):
				score -= 5 // another script read as Latin
			case !latin && !foreign(prev) && !foreign(next):
				score -= 2 + 6*ascii(prev, next) // a letter for itself
			case !latin:
				score += worth - 6*ascii(prev, next)
			case known:
				score += worth
			}
			if !known {
				score -= 3
			}
		case unicode.IsLetter(prev) && unicode.IsLetter(next) && !strings.ContainsRune("\u2019\u00ad\u2013\u00a0\u00b7", r):
			score -= 4 // a sign within a word
		case strings.ContainsRune("\u00a0\u00a9\u00ab\u00ae\u00bb\u2013\u2014\u2018\u2019\u201c\u201d\u201e\u2022\u2026\u20ac\u2122", r):
			score++
		case unicode.IsPunct(r), unicode.Is(unicode.Sc, r), unicode.Is(unicode.Zs, r), r == '\u00b0':
		default:
			score -= 2 // box drawings and the like
		}
	}
	return score
}

// foreign tells whether a character is a letter beyond ASCII.
func foreign(r rune) bool { return r >= utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsMark(r)) }

// ascii counts the ASCII letters among the two neighbours of a letter of
// another script.
func ascii(prev, next rune) int {
	n := 0
	for _, r := range []rune{prev, next} {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			n++
		}
	}
	return n
}
