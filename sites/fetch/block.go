package fetch

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/html"

	"muster/sites/definition"
	"muster/sites/extract"
)

// blockScore is how many points make a page a refusal.
const blockScore = 3

// Signs is what speaks for a page being a refusal ("soft block").
type Signs struct {
	Score   int
	Reasons []string
}

func (s *Signs) add(points int, reason string) {
	s.Score += points
	s.Reasons = append(s.Reasons, reason)
}

// Blocked tells whether the signs are enough.
func (s Signs) Blocked() bool { return s.Score >= blockScore }

// sign is an element that speaks for a challenge.
type sign struct {
	css    string
	reason string
	hints  []string // one of them stands in every page that has the element; spares a search in all others
	sel    definition.Selector
}

var (
	allScripts = definition.MustSelector("script")
	// guardScript matches the addresses of scripts that protections put into a
	// site: apart from the site's own, or named by a number.
	guardScript = regexp.MustCompile(`^/(\.|__|_fs-|_sec/|TSPD/|[0-9a-f]{4,}[-/])`)
	// challengeURL matches what leads to a challenge.
	challengeURL = regexp.MustCompile(`(?i)[/.?=_-](captcha|challenge|js_challenge|authwall|botwall|humans?-?verif\w*)\b|captcha-delivery|/captcha|/punish\?`)
	// talks matches a script that says something to its site.
	talks = regexp.MustCompile(`document\s*\.\s*cookie|XMLHttpRequest|\bfetch\s*\(`)
	// leadsAway matches a script that goes to a login or a challenge.
	leadsAway = regexp.MustCompile(`(?i)/(authwall|log[-_]?in|sign[-_]?in|captcha|challenge|blocked|denied|verify)\b`)
	// hidden matches what is only written by programs that make scripts hard to read.
	hidden = regexp.MustCompile(`\b_0x[0-9a-f]{3,}|\beval\s*\(\s*(function\s*\(p,a,c,k|atob|unescape)`)
)

// comesAgain matches a script that loads its page once more.
var comesAgain = regexp.MustCompile(`location\s*\.\s*reload\s*\(|location(\s*\.\s*href)?\s*=[^=]|location\s*\.\s*(replace|assign)\s*\(`)

// What a form has that a script fills in and sends.
var (
	unseen      = definition.MustSelector(`form input[type="hidden" i]`)
	shown       = definition.MustSelector(`input:not([type="hidden" i]):not([type="submit" i]), textarea, select, img, h2, p + p`)
	sendsItself = regexp.MustCompile(`\.submit\s*\(\s*\)`)
)

// strong are elements that only a challenge has.
var strong = []*sign{
	{css: `#challenge-form, #cf-challenge-running, #challenge-running, #cf-please-wait, #challenge-error-text, .cf-browser-verification, .cf-challenge, form[action*="__cf_chl"], form#captcha-form[action="index"]`, reason: "a challenge form", hints: []string{"challenge", "cf-please", "__cf_chl", "cf-browser", "captcha-form"}},
	{css: `iframe[src*="_Incapsula_Resource"]`, reason: "an Incapsula challenge", hints: []string{"_Incapsula_"}},
	{css: `#px-captcha, .px-captcha-container, [id^="px-captcha"]`, reason: "a PerimeterX challenge", hints: []string{"px-captcha"}},
	{css: `iframe[src*="geo.captcha-delivery.com"], script[src*="ct.captcha-delivery.com"]`, reason: "a DataDome challenge", hints: []string{"captcha-delivery"}},
	{css: `form[action*="/errors/validateCaptcha"], form[action*="/sorry/index"]`, reason: "a captcha form", hints: []string{"validateCaptcha", "/sorry/index"}},
	{css: `script#anubis_challenge, .geetest_holder, .geetest_captcha`, reason: "a challenge of its own script", hints: []string{"anubis_challenge", "geetest"}},
	{css: `#ddg-captcha, #ddos-guard, form#ddg-form`, reason: "a DDoS-Guard challenge", hints: []string{"ddg-", "ddos-guard"}},
}

var strongHints = hintsOf(strong)

// small are elements that a challenge has, and ordinary pages with a comment
// form or behind a protection too, so that they count only on a page with
// little else.
var small = []*sign{
	{css: `iframe[src*="challenges.cloudflare.com"], script[src*="challenges.cloudflare.com"], script[src*="/cdn-cgi/challenge-platform/"]`, reason: "a Cloudflare challenge and hardly any text", hints: []string{"challenges.cloudflare", "challenge-platform"}},
	{css: `#sec-overlay, #sec-if-cpt-container, script[src*="/_sec/cp_challenge/"]`, reason: "an Akamai challenge and hardly any text", hints: []string{"sec-overlay", "sec-if-cpt", "cp_challenge"}},
	{css: `iframe[src*="recaptcha"], script[src*="recaptcha"], .g-recaptcha, .h-captcha, .cf-turnstile, .frc-captcha, script[src*="hcaptcha"], iframe[src*="hcaptcha"], script[src*="awswaf"], [id*="captcha" i], [class*="captcha" i], [name$="captcha-response"], img[src*="captcha" i], [id*="arkose" i], script[src*="arkoselabs"]`, reason: "a captcha and hardly any text", hints: []string{"captcha", "turnstile", "Captcha", "CAPTCHA", "awswaf", "arkose"}},
}

func init() {
	for _, list := range [][]*sign{strong, small} {
		for _, c := range list {
			c.sel = definition.MustSelector(c.css)
		}
	}
}

// in tells whether the element is in a page.
func (c *sign) in(d *extract.Doc) bool {
	return slices.ContainsFunc(c.hints, func(h string) bool { return bytes.Contains(d.Page.Body, []byte(h)) }) && c.sel.First(d.Root) != nil
}

// strongScripts stand in the scripts of challenges, whose noscript text is
// out of a selector's reach.
var strongScripts = [][]byte{[]byte("window._cf_chl_opt"), []byte("window.gokuProps"), []byte("KPSDK.s"), []byte("window.rbzns"), []byte("sucuri_cloudproxy_js"), []byte(`window["bobcmn"]`), []byte("//projectshield.withgoogle.com/"), []byte("generated by Mod_Security")}

// content is what a page has that is for its reader.
var content = definition.MustSelector(`h1, h2, p, a[href], img, table, form, ul, article`)

// alone are scripts that ordinary pages of a guarded site have too, beside
// their text.
var alone = definition.MustSelector(`script[src*="_Incapsula_Resource"], script[src*="captcha" i], script[src*="challenge" i], iframe[src*="captcha" i], iframe[src*="challenge" i]`)

var (
	links       = definition.MustSelector("a[href]")
	refreshMeta = definition.MustSelector(`meta[http-equiv="refresh" i]`)
	captchaURL  = regexp.MustCompile(`(?i)captcha|challenge|/sorry/|blocked|verify-human|are-you-human`)
	loginURL    = regexp.MustCompile(`(?i)/((wp-)?log[-_]?in|sign[-_]?in|auth|anmelden|anmeldung|einloggen|connexion|iniciar-sesion|entrar|accedi|accesso|logowanie|inloggen|prihlaseni|giris|vhod|captcha|blocked|denied|sorry|challenge|verify)([/?.#]|$)`)
	password    = definition.MustSelector(`input[type="password" i]`)
)

// Inspect looks a parsed page over for signs that it is a refusal although
// its status says otherwise. An *Error of class SoftBlock says why, and
// Config.Refused hears of it; nil says that the page is good.
func Inspect(def *definition.Definition, d *extract.Doc) error {
	if def.Blocks.Off {
		return nil
	}
	s := Score(def, d)
	if !s.Blocked() {
		return nil
	}
	if d.Page.Refused != nil {
		d.Page.Refused()
	}
	return &Error{Class: SoftBlock, URL: d.Page.Requested, Status: d.Page.Status, Via: d.Page.Via, Err: errors.New("the page looks like a refusal: " + strings.Join(s.Reasons, ", "))}
}

// Score weighs the signs. Words count only on a page that has hardly any: a
// page that writes about captchas is none.
func Score(def *definition.Definition, d *extract.Doc) Signs {
	var s Signs
	if d.Page.Header.Get("Cf-Mitigated") == "challenge" {
		s.add(blockScore, "the header cf-mitigated: challenge")
	}
	b, isBare := bareOf(d)
	if isBare {
		if points, what := b.said(); points > 0 {
			s.add(points, what)
		}
		if slices.ContainsFunc(b.lines, challengeURL.MatchString) {
			s.add(blockScore, "the address of a challenge")
		}
	}
	if d.Root == nil {
		return s
	}
	if strongHints.in(d.Page.Body) {
		for _, c := range strong {
			if c.in(d) {
				s.add(blockScore, c.reason)
			}
		}
	}
	chars := utf8.RuneCountInString(d.Text())
	if chars < 2000 {
		s.markup(d, chars, b.form)
	}
	if content.First(d.Root) == nil && chars < 200 {
		s.scripts(d)
	}
	s.redirect(d.Page, chars, password.First(d.Root) != nil)
	s.definition(def, d, chars)
	return s
}

// markup adds what speaks for a challenge on a page with little text.
func (s *Signs) markup(d *extract.Doc, chars int, form bool) {
	for _, script := range strongScripts {
		if bytes.Contains(d.Page.Body, script) {
			s.add(blockScore, "a challenge script")
		}
	}
	for _, c := range small {
		if c.in(d) && !form {
			points := 1
			switch {
			case chars < 20 && content.First(d.Root) == nil && appRoot.First(d.Root) == nil, chars < 20 && inputs.First(d.Root) != nil:
				points = blockScore
			case chars < 600:
				points = 2
			}
			s.add(points, c.reason)
		}
	}
	if chars < 200 && links.First(d.Root) == nil && content.First(d.Root) != nil && slices.ContainsFunc(allScripts.All(d.Root), func(n *html.Node) bool { return guardScript.MatchString(attribute(n, "src")) }) {
		s.add(2, "a guard's script and hardly any text")
	}
	if chars < 300 && !form && content.First(d.Root) != nil && links.First(d.Root) == nil && appRoot.First(d.Root) == nil {
		if text := inScripts(d); len(text) < 8000 && talks.MatchString(text) && comesAgain.MatchString(text) {
			s.add(2, "hardly any text, and a script that answers and comes again")
		}
	}
	if chars < 200 && links.First(d.Root) == nil && unseen.First(d.Root) != nil && shown.First(d.Root) == nil && sendsItself.MatchString(attribute(d.Body(), "onload")+inScripts(d)) {
		s.add(blockScore, "nothing but a form that sends itself")
	}
	for _, n := range refreshMeta.All(d.Root) {
		if captchaURL.MatchString(attribute(n, "content")) {
			s.add(blockScore, "a refresh that leads to a challenge")
		}
	}
}

// scripts adds what speaks for a challenge on a page that has nothing to read.
func (s *Signs) scripts(d *extract.Doc) {
	app := appRoot.First(d.Root) != nil
	if alone.First(d.Root) != nil && !app {
		s.add(blockScore, "nothing but a challenge script")
	}
	for _, n := range allScripts.All(d.Root) {
		if src := attribute(n, "src"); guardScript.MatchString(src) && !app {
			s.add(blockScore, "nothing but a guard's script")
		}
	}
	switch text := inScripts(d); {
	case (comesAgain.MatchString(text) || refreshMeta.First(d.Root) != nil) && talks.MatchString(text) && !app:
		s.add(blockScore, "nothing but a script that answers and comes again")
	case len(hidden.FindAllString(text, 3)) > 2 && !app:
		s.add(blockScore, "nothing but a script that hides what it does")
	case len(text) > 8000: // it may well be what the page is made with
	case challengeURL.MatchString(text) && !app, comesAgain.MatchString(text) && leadsAway.MatchString(text):
		s.add(blockScore, "nothing but a script that leads to a challenge")
	}
}

// inScripts is the text of a page's own scripts.
func inScripts(d *extract.Doc) string {
	var inside strings.Builder
	for _, n := range allScripts.All(d.Root) {
		if n.FirstChild != nil {
			inside.WriteString(n.FirstChild.Data)
		}
	}
	return inside.String()
}

// redirect adds what speaks for having been sent to a login or a challenge.
func (s *Signs) redirect(p extract.Page, chars int, password bool) {
	to := p.URL.Path
	if p.Requested == "" || strings.HasSuffix(p.Requested, to) || loginURL.MatchString(p.Requested) {
		return
	}
	login := loginURL.MatchString(to)
	if login && chars < 2000 {
		s.add(2, "a redirect to "+to)
	}
	if (login || comesBack(p)) && password {
		s.add(blockScore, "a redirect to a login")
	}
}

// definition adds what the site's definition says of its refusals.
func (s *Signs) definition(def *definition.Definition, d *extract.Doc, chars int) {
	for _, c := range def.Blocks.CSS {
		if c.First(d.Root) != nil {
			s.add(blockScore, "the definition's "+c.Text)
		}
	}
	for _, p := range def.Blocks.Text {
		if p.MatchString(d.Text()) {
			s.add(2, "the definition's words "+p.String())
		}
	}
	if def.Blocks.MinText > 0 && chars < def.Blocks.MinText {
		s.add(blockScore, fmt.Sprintf("only %d characters of text", chars))
	}
	if !extract.MustHave(def, d) {
		points := 1
		if chars < 200 {
			points = 2
		}
		s.add(points, "must_have is missing")
		if chars < 20 {
			s.add(1, "hardly any text")
		}
	}
}

// comesBack tells whether a redirect led to a page that was told where to go
// on to: the page that was asked for.
func comesBack(p extract.Page) bool {
	asked, err := url.Parse(p.Requested)
	if err != nil || len(asked.Path) < 2 || asked.Path == p.URL.Path {
		return false
	}
	for _, values := range p.URL.Query() {
		for _, v := range values {
			if strings.Contains(v, asked.Path) {
				return true
			}
		}
	}
	return false
}

// NeedsScript tells whether a page is the empty frame of an application that
// a browser would fill.
func NeedsScript(d *extract.Doc) bool {
	return d.Root != nil && len(d.Text()) < 300 && appRoot.First(d.Root) != nil && scripts.First(d.Root) != nil
}

var (
	appRoot = definition.MustSelector(`#root, #app, #__next, #__nuxt, [ng-app], [data-reactroot], app-root, #main-app`)
	scripts = definition.MustSelector("script[src]")
)

func attribute(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}
