package fetch

import (
	"regexp"
	"slices"
	"strings"
)

// concepts are what the words of refusals are about, in the languages of the
// web's larger sites. A short page about three of them is hardly ever anything
// else, whoever wrote it; nor is one with hardly more than a heading that is
// about a human or unusual use and one of the others.
var concepts = []struct {
	name   string
	weight int // in a pair
	words  *regexp.Regexp
}{
	{"a refusal", 1, anyOf(`\bblocked\b`, `denied`, `\bbanned`, `forbidden`, `rate.?limited`, `(been|is|temporarily) (limited|paused|suspended|restricted)`, `rejected`, `cannot be processed`, `could not be satisfied`,
		`gesperrt`, `blockiert`, `verweigert`, `bloqu[ée]`, `refusé`, `interdit\b`, `bloquead`, `denegad`, `acesso negado`, `restringid`, `bloccat`, `accesso negato`, `zablokowan`, `odmow[ay]`, `geblokkeerd`, `geweigerd`, `engellen`, `kısıtlan`,
		`заблокирован`, `блокиран`, `заблоковано`, `(доступ|достъп).{0,40}(огранич|отказан|запрещ|заборон)`, `blokován`, `odepřen`, `zamietnut`, `spärrad`, `nekad`, `blokeret`, `estetty`, `diblokir`, `ditolak`, `bị chặn`, `từ chối`,
		`拦截`, `阻断`, `禁止访问`, `拒绝访问`, `访问受限`, `封禁`, `攔截`, `アクセス.{0,6}(拒否|制限)`, `차단`, `접[근속].{0,12}(제한|거부)`, `رفض الوصول`, `محظور`)},
	{"you", 1, anyOf(`\byour (ip|request|access|browser|network|browsing|activity|connection)\b`, `\bthis ip\b`, `\byou('ve| have) been`, `from your (computer|network|address)`, `ihre?[rn]? (ip|anfrage|zugriff|netzwerk|browser)`, `deine?[mrns]? (ip|browser|netzwerk)`,
		`votre (adresse ip|ip|navigateur|accès|réseau)`, `comportement du navigateur`, `vous avez été`, `\b(tu|su) (dirección ip|ip|red|navegador|acceso)\b`, `peticiones tuyas`, `(tuo|tua|vostro) (ip|indirizzo ip|rete|browser|accesso)`,
		`seu (ip|endereço ip|navegador|acesso)`, `você (foi|não pode)`, `tw(ój|oje|ojej|ojego) (adres|ip|sieci|przeglądarki)`, `zostałeś`, `ваш(его|ия|ата|ей|ето)? (ip|мрежа|адрес|браузер|сети)`, `\b(uw|je) (ip|netwerk|browser)`, `alamat ip`, `ip adresi`,
		`您的(请求|访问|ip|网络)`, `你的 ?ip`, `ip地址`, `ipアドレス`, `ip ?주소`)},
	{"a human", 2, anyOf(`captcha`, `\bnot a (ro)?bot`, `you (are|might be|were) a (ro)?bot`, `(you are|you're|are you) (a )?(human|robot)`, `human verification`, `bot (detection|verification|check|protection)`, `not a robot|robot or human`,
		`kein (ro)?bot`, `als roboter`, `bist du ein mensch|sind sie ein mensch`, `pas un robot`, `êtes humain|êtes un humain`, `(es|eres|soy) un robot`, `ser humano`, `eres una persona`, `não é um rob`, `non sei un robot`, `geen robot`, `echte mensen`,
		`nie jesteś robotem`, `jesteś człowiekiem`, `nejste robot`, `nie ste robot`, `robot olmad`, `är människa|inte är en robot`, `er et menneske|ikke er en robot`, `nu sunteți un robot`, `не сте робот`, `сте човек`, `не робот`, `ви не робот`, `вы человек`,
		`không phải là robot`, `bukan robot`, `不是机器人`, `不是機器人`, `安全(验证|驗證)`, `完成.{0,6}(验证|驗證)`, `ロボットではない`, `로봇이 아`, `لست روبوت`)},
	{"unusual use", 2, anyOf(`(unusual|suspicious|abnormal|automated|malicious|excessive) (traffic|activity|behaviou?r|requests?|access|quer|browsing)`, `too many requests`, `automation tools`, `super-?human speed`, `ungewöhnliche[nrs]? (aktivität|datenverkehr|zugriff)`,
		`zu viele anfragen`, `activité inhabituelle|trafic inhabituel`, `surhumaine`, `tráfico inusual|actividad inusual`, `muchas peticiones`, `uso indebido`, `tráfego incomum|atividade incomum`, `attività insolita|traffico (insolito|anomalo)`,
		`nietypow(y|ego) ruch`, `zaintrygowa`, `nous a intrigué`, `необычн.{0,12}(трафик|активност)`, `необичаен трафик`, `подозрительн`, `много запросов`, `异常(请求|访问|流量)`, `(环境|網路|网络).{0,4}异常`, `不正なアクセス`, `大量のアクセス`, `비정상적인`, `자동화된`,
		`olağan ?dışı`, `mencurigakan`, `bất thường`, `ongebruikelijk(e)? (verkeer|activiteit)`, `ovanlig (trafik|aktivitet)`)},
	{"a check", 1, anyOf(`(checking|verifying|validating) (if |that )?(your browser|you|the site connection)`, `check if you are`, `checks to see if`, `(site|browser) verification`, `verification in progress`, `security (check|verification|checkpoint|measure|service)`,
		`(complete|solve|pass) (the|this|a) .{0,20}(check|captcha|verification|challenge)`, `enable (javascript|js)\b`, `(javascript|js) is (required|disabled)`, `in just a moment`, `please wait while`, `being redirected`, `verify (you|yourself|that you)`, `confirm (you|that you)`,
		`überprüfung|überprüfen`, `vérifi(er|ons|cation)`, `verific(ando|ar|a di)`, `verifi[ëe]r`, `weryfikacj`, `potwierdź`, `potvrďte`, `подтвердите`, `потвърдете`, `пройдите проверку`, `введите символы`, `проверка`, `xác minh`, `doğrula`, `확인해`, `请.{0,10}验证`, `完成验证`, `拖动.{0,4}滑块`, `يرجى التأكيد`)},
	{"a guard", 0, anyOf(`(website|web application) firewall`, `web page blocked`, `web filter`, `防火墙`, `防火牆`, `安全威胁`, `\bddos\b`, `\b(ray|incident|support|attack|transaction|reference) ?id\b`, `request id:`, `请求id`, `se protéger contre`, `schutz vor angriffen`, `protegerse de`, `protect(s|ed)? (itself|against|from) .{0,40}(attack|bots?\b|scrap)`,
		`against the scourge`, `for security reasons`, `generated by (cloudfront|wordfence|mod_security)`, `contact the (site owner|webmaster|administrator)`, `不合法参数`)},
}

func anyOf(words ...string) *regexp.Regexp {
	return regexp.MustCompile(`(?i)` + strings.Join(words, "|"))
}

// about weighs the concepts in a short page: 3 points for a refusal. said
// tells that it has been found to say so in so many words, too.
func about(text string, headings []string, chars int, linked, said bool) (points int, what string) {
	var names []string
	headed, weight := false, 0
	for _, c := range concepts {
		at := slices.ContainsFunc(headings, c.words.MatchString)
		if !at && !c.words.MatchString(text) {
			continue
		}
		headed = headed || at
		weight += c.weight
		names = append(names, c.name)
	}
	switch pair := len(names) == 2; {
	case len(names) >= 3,
		pair && chars < 600 && (said || headed && weight >= 3),
		pair && chars < 100 && !linked && names[0] == "a refusal" && names[1] == "you":
		points = 3
	case pair:
		points = 2
	}
	return points, "words about " + strings.Join(names, ", ")
}
