package fetch

import (
	"regexp"
	"slices"
	"strings"
)

// What no refusal has.
var (
	// price matches what no refusal names.
	price  = regexp.MustCompile(`[€$£¥₽₹₩]\s?\d|\d\s?([€£₽₩元円]|EUR\b|USD\b|GBP\b|лв|руб|kr\b|zł|Kč|TL\b)`)
	adults = regexp.MustCompile(`(?i)\b(age|adults?|minors?)\b|(over|under|least|über|ab) (18|21)\b|18\+`)
	// asks matches the titles of pages that write about something.
	asks = regexp.MustCompile(`(?i)^[^\pL\pN]*(why|how|what|when|warum|wie|was ist|pourquoi|comment|por qué|cómo|por que|perché|come |waarom|hoe|dlaczego|jak |почему|как |зачем|защо|чому|为什么|如何|为何|なぜ|왜)`)
	// kindOfText matches the titles of texts that tell of refusals in general.
	kindOfText = regexp.MustCompile(`(?i)^[^\pL\pN]*(terms (of|and|&)|terms$|conditions|privacy|faq|frequently asked|polic(y|ies)$|agb$|nutzungsbedingungen|datenschutz|impressum|(politique de )?confidentialité|mentions légales|conditions d|aviso legal|términos|condiciones|política de|politica d|privacidad|privacidade|termos|termini|algemene voorwaarden|regulamin|polityka|podmínky|условия|политика|правила|правове|隐私|隱私|服务条款|服務條款|用户协议|利用規約|プライバシー|이용약관|개인정보)|\b(changelog|release notes|tutorials?)\b|\b(release|version) v?\d+\.\d|教程|教學|チュートリアル|튜토리얼`)
	// tells matches what texts have that are about something else than the
	// reader's own request: who said so, since when, and that it is an article.
	tells = regexp.MustCompile(`(?i)\b(said|says|told|according to|announced|spokes(man|woman|person))\b|\bin this (article|post|tutorial|guide|chapter|section)\b|\b(you will|you'll|you’ll) learn\b|\blearn (how|to)\b|\blessons?\b|lektionen|leçons|aprender|\bclases\b|lecciones|lezioni|lekcj|\bуроков|научит|学习|课程|講座|学びます|입문|in diesem (artikel|beitrag|kapitel)|dans cet article|en este (artículo|tutorial)|nest[ea] (artigo|tutorial)|in questo articolo|in dit artikel|w tym artykule|v tomto článku|в (этой|тази|цій) стат|本文|この記事|이 글에서|` +
		`\bsagte\b|a déclaré|a annoncé|\bdijo\b|afirmó|\bdisse\b|ha detto|ha dichiarato|сообщил|заявил|каза |заяви |повідоми|(^|[\s.])و?قال(ت)? |أعلن|记者|記者|报道|報道|と述べ|밝혔다|말했다|\b(in|of|since|until|from|en|de|del|nel|im jahr|anno) 1[5-9]\d\d\b`)
	// dated matches a line of a list of changes.
	dated = regexp.MustCompile(`(?i)^[^\pL\pN]*v?\d{1,2}\.\d{1,2}(\.\d{1,2})?([^\pL\pN]+[\pL]|$)`)
)

// tellsOfOther tells whether a page has what no refusal has, such as a price,
// or is a text about refusals in general.
func (b *bare) tellsOfOther() bool {
	all := strings.Join(b.lines, "\n")
	return price.MatchString(all) || adults.MatchString(all) || asks.MatchString(b.title) || kindOfText.MatchString(b.title) || tells.MatchString(all) || slices.ContainsFunc(b.lines, dated.MatchString)
}
