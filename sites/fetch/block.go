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

// A page that has more is not read for what its words are about.
const (
	aboutChars = 1500
	aboutLinks = 12
)

// comesAgain matches a script that loads its page once more.
var comesAgain = regexp.MustCompile(`location\s*\.\s*reload\s*\(|location(\s*\.\s*href)?\s*=[^=]|location\s*\.\s*(replace|assign)\s*\(`)

// strong are elements that only a challenge has.
var strong = []*sign{
	{css: `#challenge-form, #cf-challenge-running, #challenge-running, #cf-please-wait, #challenge-error-text, form[action*="__cf_chl"], form#captcha-form[action="index"]`, reason: "a challenge form", hints: []string{"challenge", "cf-please", "__cf_chl", "captcha-form"}},
	{css: `iframe[src*="_Incapsula_Resource"]`, reason: "an Incapsula challenge", hints: []string{"_Incapsula_"}},
	{css: `#px-captcha, .px-captcha-container, [id^="px-captcha"]`, reason: "a PerimeterX challenge", hints: []string{"px-captcha"}},
	{css: `iframe[src*="geo.captcha-delivery.com"], script[src*="ct.captcha-delivery.com"]`, reason: "a DataDome challenge", hints: []string{"captcha-delivery"}},
	{css: `form[action*="/errors/validateCaptcha"], form[action*="/sorry/index"]`, reason: "a captcha form", hints: []string{"validateCaptcha", "/sorry/index"}},
	{css: `#sec-overlay, #sec-if-cpt-container, script[src*="/_sec/cp_challenge/"]`, reason: "an Akamai challenge", hints: []string{"sec-overlay", "sec-if-cpt", "cp_challenge"}},
	{css: `script#anubis_challenge, .geetest_holder, .geetest_captcha`, reason: "a challenge of its own script", hints: []string{"anubis_challenge", "geetest"}},
	{css: `#ddg-captcha, #ddos-guard, form#ddg-form`, reason: "a DDoS-Guard challenge", hints: []string{"ddg-", "ddos-guard"}},
}

// small are elements that a challenge has, and ordinary pages with a comment
// form too, so that they count only on a page with little else.
var small = []*sign{
	{css: `iframe[src*="challenges.cloudflare.com"], script[src*="challenges.cloudflare.com"], script[src*="/cdn-cgi/challenge-platform/"]`, reason: "a Cloudflare challenge and hardly any text", hints: []string{"challenges.cloudflare", "challenge-platform"}},
	{css: `iframe[src*="recaptcha"], script[src*="recaptcha"], .g-recaptcha, .h-captcha, .cf-turnstile, .frc-captcha, script[src*="hcaptcha"], iframe[src*="hcaptcha"], script[src*="awswaf"], #captcha, img[src*="captcha" i]`, reason: "a captcha and hardly any text", hints: []string{"captcha", "turnstile", "Captcha", "CAPTCHA", "awswaf"}},
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
var strongScripts = [][]byte{[]byte("window._cf_chl_opt"), []byte("window.gokuProps"), []byte("KPSDK.s"), []byte("window.rbzns"), []byte("sucuri_cloudproxy_js"), []byte(`window["bobcmn"]`), []byte("//projectshield.withgoogle.com/")}

// content is what a page has that is for its reader.
var content = definition.MustSelector(`h1, h2, p, a[href], img, table, form, ul, article`)

// alone are scripts that ordinary pages of a guarded site have too, beside
// their text.
var alone = definition.MustSelector(`script[src*="_Incapsula_Resource"], script[src*="captcha" i], script[src*="challenge" i]`)

var (
	headings    = definition.MustSelector("title, h1, h2")
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

// Score weighs the signs. Words count in title and headings, or on a page
// that has hardly any others: a page that writes about captchas is none.
func Score(def *definition.Definition, d *extract.Doc) Signs {
	var s Signs
	if d.Page.Header.Get("Cf-Mitigated") == "challenge" {
		s.add(blockScore, "the header cf-mitigated: challenge")
	}
	if d.Root == nil {
		return s
	}
	text := d.Text()
	chars := utf8.RuneCountInString(text)
	mustHave := extract.MustHave(def, d)
	words := 0 // points for words
	for _, c := range strong {
		if c.in(d) {
			s.add(blockScore, c.reason)
		}
	}
	if chars < 2000 {
		for _, script := range strongScripts {
			if bytes.Contains(d.Page.Body, script) {
				s.add(blockScore, "a challenge script")
			}
		}
		if alone.First(d.Root) != nil && content.First(d.Root) == nil {
			s.add(blockScore, "nothing but a challenge script")
		}
		for _, c := range small {
			if c.in(d) {
				points := 1
				if chars < 600 {
					points = 2
				}
				s.add(points, c.reason)
			}
		}
		for _, n := range refreshMeta.All(d.Root) {
			if captchaURL.MatchString(attribute(n, "content")) {
				s.add(blockScore, "a refresh that leads to a challenge")
			}
		}
		m := refusalText.FindString(text)
		strongWords := m != ""
		if m == "" {
			m = refusalFoot.FindString(text)
		}
		if m != "" {
			points := 1
			switch {
			case strongWords && chars < 100 && links.First(d.Root) == nil:
				points = 3
			case chars < 600:
				points = 2
			}
			s.add(points, fmt.Sprintf("the words %q", m))
			words += points
		}
	}
	var heads []string
	for _, n := range headings.All(d.Root) {
		heads = append(heads, extract.Text(n))
	}
	for _, h := range heads {
		if len(h) >= 120 || !refusal.MatchString(h) || chars >= 5000 {
			continue
		}
		s.add(2, fmt.Sprintf("the heading %q", h))
		words += 2
		if wholeRefusal.MatchString(h) && chars < 2*utf8.RuneCountInString(h)+40 && links.First(d.Root) == nil {
			s.add(1, "nothing else on the page")
		}
		break
	}
	if chars < aboutChars && len(links.All(d.Root)) <= aboutLinks {
		points, what := about(text, heads, chars, links.First(d.Root) != nil, words >= 2)
		if points > words {
			s.add(points-words, what)
		}
	}
	if content.First(d.Root) == nil && comesAgain.Match(d.Page.Body) && bytes.Contains(d.Page.Body, []byte("document.cookie")) {
		s.add(blockScore, "nothing but a script that sets a cookie and comes again")
	}
	if to := d.Page.URL.Path; d.Page.Requested != "" && !strings.HasSuffix(d.Page.Requested, to) && !loginURL.MatchString(d.Page.Requested) {
		login := loginURL.MatchString(to)
		if login && chars < 2000 {
			s.add(2, "a redirect to "+to)
		}
		if (login || comesBack(d.Page)) && password.First(d.Root) != nil {
			s.add(blockScore, "a redirect to a login")
		}
	}
	for _, c := range def.Blocks.CSS {
		if c.First(d.Root) != nil {
			s.add(blockScore, "the definition's "+c.Text)
		}
	}
	for _, p := range def.Blocks.Text {
		if p.MatchString(text) {
			s.add(2, "the definition's words "+p.String())
		}
	}
	if def.Blocks.MinText > 0 && chars < def.Blocks.MinText {
		s.add(blockScore, fmt.Sprintf("only %d characters of text", chars))
	}
	if !mustHave {
		points := 1
		if chars < 200 {
			points = 2
		}
		s.add(points, "must_have is missing")
		if chars < 20 {
			s.add(1, "hardly any text")
		}
	}
	return s
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
