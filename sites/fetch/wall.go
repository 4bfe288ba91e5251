package fetch

import (
	"bytes"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"muster/sites/definition"
	"muster/sites/extract"
)

// What a page may have at most to be read sentence by sentence.
const (
	wallChars = 1500
	wallLinks = 12
)

var (
	sentenceAt = regexp.MustCompile(`[.!?…:;]+(\s|$)|[。！？；]`)
	// supposes matches sentences about what may be, unless it is said of what is at hand.
	supposes = regexp.MustCompile(`(?i)^[^\pL\pN]*(if|when|whenever|once|unless|without|ohne|sans|sin|senza|zonder|bez|без|wenn|falls|sobald|si|s'il|quand|lorsque|se|quando|als|indien|wanneer|jeśli|jeżeli|gdy|pokud|když|ak|keď|ha|om|hvis|når|jos|kun|eğer|если|когда|якщо|коли|ако|когато|إذا|اگر|nếu|jika|kalau|apabila)\s|^(如果|若|当您|當您|אם |もし|만약)|\b(we|they|sites?|servers?|services?) (may|might|could|will|reserve)\s|\byou (may|might) (have|need) to\s`)
	atHand   = regexp.MustCompile(`(?i)\b(this|these|here|current|diese[rs]?|cet|cette|ceci|esta?|este|esto|questa|questo|deze|dit|tę|tej|tuto|toto|denna|detta|denne|dette|bu)\b|эт[оуа]|това|тази|ц[яюе] |هذ|这|這|この|이 `)
	// address matches what is no word.
	address = regexp.MustCompile(`(?i)\bhttps?://\S+|\S+@\S+|\S+\.[a-z]{2,3}/\S*`)
	// technical matches what is written for whoever looks into it, and at the foot of pages.
	technical = regexp.MustCompile(`(?i)^[^\pL\pN]*((request(ed|or)?|server|client|event|incident|remote|unique|script|your)? ?(id|ip|time|date|date/time|user.?agent|refer+er|host(name)?|method|protocol|version|server|ur[il]|country|location|timestamp|data center|signatures?( count| reference)?)[^\pL\pN]*|(©|\(c\)|copyright)\W.*|(generated|powered|protected) by [^ ]+( v?[\d.]+)?)$`)
	// lookYourself matches what the reader is to look at, who is not looked at then.
	lookYourself = regexp.MustCompile(`(?i)^[^\pL\pN]*(please |bitte |veuillez |por favor,? |prosimy |proszę |prosím |пожалуйста,? |моля,? )?(check|überprüfen sie|überprüfe|prüfen sie|prüfe|vérifiez|vérifier|compruebe|comprueba|verifique|verifica|controlla|verificare|controleer|sprawdź|zkontrolujte|skontrolujte|ellenőrizze|kontrollera|kontrollér|tarkista|проверьте|перевірте|проверете) `)
	// defines matches sentences about things of a kind.
	defines   = regexp.MustCompile(`(?i)^[^\pL\pN]*(an?|eine?|une?|una|uno|uma|um|een|en|ett|et) `)
	ipAddress = regexp.MustCompile(`\b\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}\b`)
	// fields are what forms have that want more than an answer to a challenge.
	fields = definition.MustSelector(`textarea:not([name$="captcha-response"]), select, input[type="email" i], input[type="password" i], input[type="tel" i], input[type="search" i], input[type="date" i], input[type="file" i]`)
	inputs = definition.MustSelector(`input:not([type]), input[type="text" i]`)
	button = definition.MustSelector(`form button, form input[type="submit" i]`)
)

// bare is a page with little on it: what a reader sees of it.
type bare struct {
	title  string
	lines  []string
	chars  int // of the lines, those of wide scripts twice
	links  int
	form   bool // it asks for more than an answer to a challenge
	login  bool // it asks for a password
	button bool
	json   bool
	aside  bool // the lines stand in for scripts
}

// bareOf returns what a page has to say when it is little enough. What
// stands in for scripts counts when there is hardly anything else.
func bareOf(d *extract.Doc) (b bare, ok bool) {
	value := d.JSON
	if body := bytes.TrimSpace(d.Page.Body); d.Root != nil && len(body) < 4*wallChars && (bytes.HasPrefix(body, []byte("{")) || bytes.HasPrefix(body, []byte("["))) {
		_ = json.Unmarshal(body, &value) // an API's answer where a page was to be
	}
	if value != nil || d.Root == nil {
		b.json, b.lines = true, jsonLines(value)
		b.chars = width(strings.Join(b.lines, ""))
		return b, b.chars > 0 && b.chars <= wallChars
	}
	b.title, b.links = d.Title(), len(links.All(d.Root))
	if b.links > wallLinks || len(d.Text()) > 4*wallChars {
		return b, false
	}
	b.lines = extract.Lines(d.Body(), false)
	b.chars = width(d.Text())
	if b.chars < 50 {
		b.lines, b.aside = extract.Lines(d.Body(), true), b.chars < 20
	}
	if b.chars > wallChars {
		return b, false
	}
	b.login = password.First(d.Root) != nil
	b.form = fields.First(d.Root) != nil || len(inputs.All(d.Root)) > 2
	b.button = button.First(d.Root) != nil
	return b, true
}

// said weighs what the sentences of a bare page say. Words tell little by
// themselves: a refusal is a page whose few sentences bring certain notions
// together, whoever wrote them and in whatever language.
func (b *bare) said() (points int, what string) {
	if points, what = b.weighed(); points == 0 || b.tellsOfOther() {
		return 0, ""
	}
	return points, what
}

func (b *bare) weighed() (points int, what string) {
	kinds := map[string]int{}
	var total, covered, known, cookies, going, strong int
	var about notion                                                                           // of the page
	var here bool                                                                              // it speaks of this very request
	first := 1 + slices.IndexFunc(b.lines, func(l string) bool { return countLetters(l) > 3 }) // line that says anything
	for i, line := range append([]string{b.title}, b.lines...) {
		if i > 0 && line == b.title {
			continue
		}
		for _, s := range sentenceAt.Split(line, -1) {
			if len(s) < 80 && technical.MatchString(s) {
				break // and what follows on the line is its value
			}
			letters := countLetters(words(s))
			of, knownHere := notionsIn(s)
			if ipAddress.MatchString(s) {
				if of |= ofTrace; of.has(ofDeny) {
					of |= ofAccess
				}
			}
			switch {
			case !of.any(ofDeny | ofUnusual | ofQueue | ofHuman):
			case of.any(ofDeny|ofUnusual|ofQueue) && supposes.MatchString(s) && !atHand.MatchString(s):
				of &^= ofDeny | ofUnusual | ofQueue
			case !of.has(ofYou) && i > 0 && defines.MatchString(s) && !atHand.MatchString(s):
				of &^= ofDeny | ofUnusual | ofHuman
			}
			if of.has(ofVerify) && !of.has(ofHuman) && lookYourself.MatchString(s) {
				of &^= ofVerify
			}
			if of != 0 && of&^(ofFailure|ofYou) == 0 {
				continue // says nothing of its own
			}
			about |= of
			here = here || of.has(ofAccess) && of.any(ofDeny|ofVerify|ofUnusual) && atHand.MatchString(s)
			total += letters
			known += knownHere
			if of.has(ofConsent) {
				cookies += letters
			}
			if of.has(ofGoing) {
				going += letters
			}
			says := kindsOf(of, i <= first && letters < 60)
			best := 0
			for _, k := range says {
				kinds[k.name] = max(kinds[k.name], k.points)
				best = max(best, k.points)
			}
			if best > 1 {
				strong++
			}
			if i == 0 && of.any(titled) {
				kinds["its title"] = 1
				if best < 2 && of.any(titled&^ofHuman) && ((&bare{title: line}).nothingElse() || of.has(ofVerify|ofAccess) && 5*knownHere >= 4*letters) {
					kinds["its title"] = 2
				}
				best = max(best, 1)
			}
			switch {
			case best > 0 || of.has(ofAccess|ofYou):
				covered += letters
			case of&^(ofYou|ofNone|ofPlace|ofFailure|ofConsent|ofGoing) != 0:
				covered += letters / 2
			}
		}
	}
	if kinds["a tunnel"] == 1 && about.has(ofScript) {
		kinds["a tunnel"] = 2 // one is in use, and is to be turned off
	}
	if b.login && kinds["a login"] > 0 {
		return blockScore, "a login to go on"
	}
	if b.form || total == 0 {
		return 0, ""
	}
	var names []string
	for _, k := range kindNames {
		if p := kinds[k]; p > 0 {
			points += p
			names = append(names, k)
		}
	}
	if strong > 1 {
		points++
	}
	if b.chars < 200 && strong > 0 && b.links == 0 && covered*10 >= total*7 {
		points++
	}
	traced := kinds["whom to ask"] > 0
	spoken := here || about.any(ofYou|ofPlace) || wide(strings.Join(b.lines, "\n"))
	if kinds["a queue"] == 2 && !spoken {
		points-- // others may stand in it
	}
	switch {
	case covered*10 < total*3:
		points = 0
	case strong == 0 && points < 4 && (kinds["its title"] < 2 || !traced && (b.chars >= 200 || covered*10 < total*8)), // nothing is said outright
		covered*2 < total && points < 4, // there is more on the page
		b.chars >= 600 && (points < 5 || !traced),
		!spoken && !traced && !b.json && known*100 < total*45,              // it tells of something else
		!spoken && b.chars >= 120 && (points < 5 || points < 6 && !traced): // nobody is spoken to
		points = min(points, 2)
	}
	switch {
	case points >= blockScore:
	case b.chars < 60 && b.nothingElse():
		points, names = blockScore, append(names, "nothing else")
	case b.button && b.chars >= 150 && cookies*10 >= total*6:
		points, names = blockScore, append(names, "consent and nothing else")
	case b.button && b.chars < 200 && going*2 >= total:
		points, names = blockScore, append(names, "a button to go on and nothing else")
	}
	if points < blockScore && b.json && slices.ContainsFunc(b.lines, func(l string) bool { return (&bare{lines: []string{l}, json: true}).nothingElse() }) {
		points, names = blockScore, append(names, "an error and nothing else")
	}
	return points, "sentences about " + strings.Join(names, ", ")
}

type kind struct {
	name   string
	points int
}

var kindNames = []string{"a refusal", "its title", "a human", "unusual use", "a check", "waiting", "a queue", "a place", "a tunnel", "scripts", "a login", "whom to ask"}

// titled are the notions that titles of refusals have.
const titled = ofDeny | ofVerify | ofHuman | ofUnusual | ofWait | ofQueue

// kindsOf tells what a sentence says, by the notions that it brings together;
// leading tells that it is the page's title or first line.
func kindsOf(n notion, leading bool) (kinds []kind) {
	add := func(name string, points int) { kinds = append(kinds, kind{name, points}) }
	switch {
	case n.has(ofDeny | ofAccess), leading && n.has(ofDeny|ofYou):
		add("a refusal", 2)
	case n.has(ofDeny | ofYou), n.has(ofNone | ofAccess | ofYou):
		add("a refusal", 1)
	}
	switch {
	case n.has(ofHuman) && n.any(ofVerify|ofNone|ofDeny), n.has(ofHuman | ofYou | ofAccess):
		add("a human", 2)
	case n.has(ofHuman) && n.any(ofAccess|ofYou|ofUnusual):
		add("a human", 1)
	}
	switch {
	case n.has(ofUnusual | ofAccess), n.has(ofUnusual | ofYou):
		add("unusual use", 2)
	case n.has(ofUnusual):
		add("unusual use", 1)
	}
	switch {
	case n.has(ofVerify | ofAccess | ofYou):
		add("a check", 2)
	case n.has(ofVerify) && n.any(ofAccess|ofYou|ofWait):
		add("a check", 1)
	}
	if n.has(ofWait) {
		add("waiting", 1)
	}
	if n.has(ofQueue) && n.any(ofYou|ofWait|ofAccess) {
		add("a queue", 2)
	}
	if n.has(ofPlace) && n.any(ofDeny|ofNone) {
		add("a place", 2)
	}
	switch {
	case n.has(ofTunnel) && n.any(ofScript|ofDeny|ofNone):
		add("a tunnel", 2)
	case n.has(ofTunnel | ofYou):
		add("a tunnel", 1)
	case n.has(ofScript) && n.any(ofAccess|ofWait|ofVerify|ofYou):
		add("scripts", 1)
	}
	if n.has(ofLogin) {
		add("a login", 2)
	}
	if n.has(ofTrace) {
		add("whom to ask", 1)
	}
	return kinds
}

// nothingElse tells whether a page has no words but those of a refusal.
func (b *bare) nothingElse() bool {
	text := strings.TrimSpace(strings.Join(b.lines, " "))
	if text == "" && b.title == "" {
		return false
	}
	text = b.title + " " + text
	of, letters := notionsIn(text)
	return (of.any(ofDeny|ofUnusual|ofWait|ofTrace|ofHuman) || of.has(ofScript) && !b.aside) && (letters*5 >= countLetters(text)*4 || b.json && of.any(ofDeny|ofUnusual) && letters*2 >= countLetters(text))
}

// saysWhy matches the keys under which an API says what is wrong.
var saysWhy = regexp.MustCompile(`(?i)^(errors?|messages?|msg|ret|mensaje|mensagem|messaggio|nachricht|meldung|erreur|erro|fehler|details?|reason|cause|title|status|info|description|error_?(message|msg|description|code)|code)$`)

var (
	// saysSo matches those of them that nothing else has.
	saysSo = regexp.MustCompile(`(?i)^(errors?|messages?|msg|ret|mensaje|mensagem|messaggio|nachricht|meldung|erreur|erro|fehler|details?|reason|cause|error_?(message|msg|description|code))$`)
	// failed matches the keys under which an API says whether it did what was asked.
	failed = regexp.MustCompile(`(?i)^(success|succeeded|ok|result)$`)
	// wordOf matches the places where a key's words begin.
	wordOf = regexp.MustCompile(`[_-]+|([a-z])([A-Z])`)
)

// jsonLines are what a small JSON value says to whoever asked in vain.
func jsonLines(v any) (lines []string) {
	if list, ok := v.([]any); ok && len(list) == 1 {
		v = list[0]
	}
	top, ok := v.(map[string]any)
	if !ok || len(top) > 12 {
		return nil
	}
	inVain, why, other := false, false, 0
	for k, v := range top {
		inVain = inVain || v == false && failed.MatchString(k)
		if status, ok := v.(float64); ok && status >= 400 && status < 600 && k == "status" {
			why = true
		}
		why = why || saysSo.MatchString(k)
		if !saysWhy.MatchString(k) && v != nil {
			other++
		}
	}
	record := !why && !inVain && other > 0 // that has a title or a status
	for _, k := range slices.Sorted(maps.Keys(top)) {
		switch v := top[k].(type) {
		case bool:
			if of, _ := notionsIn(wordOf.ReplaceAllString(k, "$1 $2")); v && inVain && of.any(ofHuman|ofDeny|ofUnusual) {
				lines = append(lines, "access denied: "+k) // "is_bot": true
			}
		case string:
			if saysWhy.MatchString(k) && !record || challengeURL.MatchString(v) {
				lines = append(lines, v)
			}
		case map[string]any:
			if saysWhy.MatchString(k) {
				lines = append(lines, jsonLines(v)...)
			} else if u, ok := v["url"].(string); ok && len(v) == 1 && challengeURL.MatchString(u) {
				lines = append(lines, u)
			}
		case []any:
			if len(v) > 0 && !saysWhy.MatchString(k) {
				return nil // what was asked for
			}
			for _, v := range v {
				switch text, ok := v.(string); {
				case !saysSo.MatchString(k):
				case ok:
					lines = append(lines, text)
				default:
					lines = append(lines, jsonLines(v)...)
				}
			}
		}
	}
	return lines
}

// wide tells whether a text is for a good part in a script of wide characters,
// whose sentences need not say whom they speak to.
func wide(s string) bool { return 4*width(s) > 5*utf8.RuneCountInString(s) }

// width counts characters, those of scripts that need few of them twice.
func width(s string) (n int) {
	for _, r := range s {
		if n++; r >= 0x2e80 {
			n++
		}
	}
	return n
}

// words leaves addresses out of a sentence.
func words(s string) string {
	if strings.ContainsAny(s, "/@") {
		return address.ReplaceAllString(s, "")
	}
	return s
}

// countLetters counts those of words: what has digits in it is a number.
func countLetters(s string) (n int) {
	word, number := 0, false
	for _, r := range s + " " {
		switch {
		case unicode.IsLetter(r):
			word++
		case unicode.IsDigit(r):
			number = true
		default:
			if !number {
				n += word
			}
			word, number = 0, false
		}
	}
	return n
}
