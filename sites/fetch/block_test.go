package fetch

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"muster/sites/definition"
	"muster/sites/extract"
)

// challenges are pages as protections serve them, cut to what tells them.
var challenges = map[string]string{
	"cloudflare managed":     `<html><head><title>Just a moment...</title><meta name="robots" content="noindex,nofollow"></head><body><div class="main-wrapper"><h1 class="zone-name-title">shop.example</h1><h2 id="challenge-running">Checking if the site connection is secure</h2></div><script src="/cdn-cgi/challenge-platform/h/g/orchestrate/chl_page/v1"></script></body></html>`,
	"cloudflare new":         `<html lang="en-US"><head><title>Just a moment...</title></head><body><div class="main-wrapper" role="main"><div class="main-content"><noscript><div class="h2"><span id="challenge-error-text">Enable JavaScript and cookies to continue</span></div></noscript></div></div><script>(function(){window._cf_chl_opt={}})();</script></body></html>`,
	"cloudflare german":      `<html><head><title>Nur einen Moment…</title></head><body><form id="challenge-form" action="/?__cf_chl_f_tk=x" method="POST"></form></body></html>`,
	"cloudflare attention":   `<html><head><title>Attention Required! | Cloudflare</title></head><body><h1 data-translate="block_headline">Sorry, you have been blocked</h1><h2>You are unable to access shop.example</h2><p>This website is using a security service to protect itself from online attacks.</p><p>Cloudflare Ray ID: 7d2b</p></body></html>`,
	"cloudflare 1015":        `<html><head><title>Access denied | shop.example used Cloudflare to restrict access</title></head><body><h1><span>Error</span> <span>1015</span></h1><h2>You are being rate limited</h2><p>The owner of this website has banned you temporarily from accessing this website.</p></body></html>`,
	"cloudflare ddos":        `<html><head><title>Just a moment...</title></head><body><h1>Checking your browser before accessing shop.example.</h1><p>This process is automatic.</p><p>DDoS protection by Cloudflare</p></body></html>`,
	"turnstile":              `<html><head><title>shop.example</title></head><body><p>Please complete the check below</p><div class="cf-turnstile"></div><p>Verify you are human by completing the action below.</p><script src="https://challenges.cloudflare.com/turnstile/v0/api.js"></script></body></html>`,
	"incapsula frame":        `<html style="height:100%"><head><META NAME="ROBOTS" CONTENT="NOINDEX, NOFOLLOW"></head><body><iframe id="main-iframe" src="/_Incapsula_Resource?CWUDNSAI=27&xinfo=1" frameborder=0>Request unsuccessful. Incapsula incident ID: 877000</iframe></body></html>`,
	"imperva":                `<html><head><title>Pardon Our Interruption</title></head><body><h1>Pardon Our Interruption</h1><p>As you were browsing something about your browser made us think you were a bot.</p></body></html>`,
	"perimeterx":             `<html><head><title>Access to this page has been denied</title></head><body><h1>Press &amp; Hold to confirm you are a human (and not a bot).</h1><div id="px-captcha"></div><p>Reference ID 1-2-3</p></body></html>`,
	"datadome":               `<html><head><title>shop.example</title></head><body><p id="cmsg">Please enable JS and disable any ad blocker</p><script data-cfasync="false">var dd={'cid':'x'}</script><script src="https://ct.captcha-delivery.com/c.js"></script></body></html>`,
	"datadome frame":         `<html><body><iframe src="https://geo.captcha-delivery.com/captcha/?initialCid=x" width="100%"></iframe></body></html>`,
	"akamai":                 `<HTML><HEAD><TITLE>Access Denied</TITLE></HEAD><BODY><H1>Access Denied</H1>You don't have permission to access "http&#58;&#47;&#47;shop.example&#47;" on this server.<P>Reference&#32;&#35;18&#46;2d351ab8<P></BODY></HTML>`,
	"akamai challenge":       `<html><body><div id="sec-if-cpt-container"></div><script src="/_sec/cp_challenge/ak-challenge-4-2.htm"></script></body></html>`,
	"google sorry":           `<html><head><title>https://www.google.com/search?q=x</title></head><body><form id="captcha-form" action="index" method="post"><div id="recaptcha" class="g-recaptcha"></div></form><div>About this page<br>Our systems have detected unusual traffic from your computer network.</div></body></html>`,
	"amazon":                 `<html><head><title>Robot Check</title></head><body><h4>Enter the characters you see below</h4><p>Sorry, we just need to make sure you're not a robot.</p><form method="get" action="/errors/validateCaptcha"><img src="https://images.example/captcha/x.jpg"></form></body></html>`,
	"aws waf":                `<html><head><title>Human Verification</title><script src="https://x.awswaf.com/challenge.js"></script></head><body><div id="captcha-container"></div></body></html>`,
	"distil":                 `<html><head><meta http-equiv="refresh" content="10; url=/distil_r_captcha.html?requestId=1"></head><body></body></html>`,
	"ddos-guard":             `<html><head><title>DDOS-GUARD</title></head><body><div id="ddos-guard"></div><h1>Checking your browser before accessing the site</h1></body></html>`,
	"sucuri":                 `<html><head><title>You are being redirected...</title></head><body><noscript>Javascript is required.</noscript><h1>Access Denied - Sucuri Website Firewall</h1><p>Your request was blocked. Block reason: Bad bot access attempt.</p></body></html>`,
	"hcaptcha":               `<html><head><title>Security check</title></head><body><form><div class="h-captcha" data-sitekey="x"></div></form><script src="https://hcaptcha.com/1/api.js"></script></body></html>`,
	"recaptcha only":         `<html><head><title>shop</title></head><body><p>I'm not a robot</p><div class="g-recaptcha"></div><script src="https://www.google.com/recaptcha/api.js"></script></body></html>`,
	"too many requests":      `<html><head><title>Too Many Requests</title></head><body><h1>Too Many Requests</h1><p>You have made too many requests. Please slow down.</p></body></html>`,
	"rate limit":             `<html><head><title>Rate limit exceeded</title></head><body><h1>Rate limit exceeded</h1><p>Too many requests from your address. Try again later.</p></body></html>`,
	"plain ban":              `<html><head><title>Forbidden</title></head><body><h1>Forbidden</h1><p>Your IP address has been blocked.</p></body></html>`,
	"nginx 403 as 200":       `<html><head><title>403 Forbidden</title></head><body><center><h1>403 Forbidden</h1></center><hr><p>Your access is limited; your IP was temporarily blocked</p></body></html>`,
	"are you human":          `<html><head><title>Are you a human?</title></head><body><h1>Are you a human?</h1><p>Please verify that you are not a robot to go on.</p></body></html>`,
	"verify":                 `<html><head><title>Please verify you are a human</title></head><body><p>Access to this page is denied because we believe you use automation tools. Incident ID: 1</p></body></html>`,
	"suspicious":             `<html><head><title>Security Challenge</title></head><body><p>We noticed suspicious activity from your network.</p><img src="/captcha.php"></body></html>`,
	"press and hold":         `<html><head><title>Robot or human?</title></head><body><h1>Robot or human?</h1><p>Activate and hold the button to confirm that you're human.</p><div class="px-captcha-container"></div></body></html>`,
	"unusual traffic":        `<html><head><title>Unusual Traffic</title></head><body><p>We have detected unusual traffic from your network.</p></body></html>`,
	"bot check":              `<html><head><title>Bot verification</title></head><body><p>Are you a robot?</p><div id="captcha"></div></body></html>`,
	"russian":                `<html><head><title>Доступ ограничен</title></head><body><h1>Доступ ограничен: проблема с IP</h1><p>Подтвердите, что вы не робот</p><div class="h-captcha"></div></body></html>`,
	"yandex":                 `<html><head><title>Вы не робот?</title></head><body><form action="/checkcaptcha"><div class="CheckboxCaptcha"></div></form><meta http-equiv="refresh" content="0;url=/showcaptcha?x"></body></html>`,
	"german":                 `<html><head><title>Zugriff verweigert</title></head><body><h1>Zugriff verweigert</h1><p>Too many requests from your IP.</p></body></html>`,
	"refresh to challenge":   `<html><head><meta http-equiv="Refresh" content="0; url=/blocked?u=1"></head></html>`,
	"iframe captcha":         `<html><head><title>Captcha</title></head><body><iframe src="https://www.google.com/recaptcha/api2/anchor"></iframe></body></html>`,
	"one more step":          `<html><head><title>One more step</title></head><body><h1>One more step</h1><p>Please complete the security check to access shop.example</p><div class="g-recaptcha"></div></body></html>`,
	"request rejected":       `<html><head><title>Request Rejected</title></head><body>The requested URL was rejected. Your request was blocked. Incident ID: 123</body></html>`,
	"radware":                `<html><head><title>Radware Captcha Page</title></head><body><h2>We apologize for the inconvenience</h2><p>Your activity and behavior on this site made us think that you are a bot. Please complete the CAPTCHA below</p><div class="h-captcha"></div></body></html>`,
	"kasada-like":            `<html><head><title>Access Denied</title></head><body><p>Automated access to this site is not allowed: automated requests were detected.</p></body></html>`,
	"automated queries":      `<html><head><title>Sorry...</title></head><body><h1>We're sorry...</h1><p>... but your computer or network may be sending automated queries.</p><form action="/sorry/index"></form></body></html>`,
	"slow down":              `<html><head><title>Access temporarily denied</title></head><body><h1>Access temporarily denied</h1><p>Slow down, please.</p></body></html>`,
	"cookies":                `<html><head><title>Please enable cookies</title></head><body><h1>Please enable cookies</h1><p>Checking your browser.</p></body></html>`,
	"blocked with reference": `<html><head><title>Access blocked</title></head><body><p>Access to this site has been blocked. Ray ID: 8</p></body></html>`,
}

// ordinary are pages that only look a little like a refusal.
var ordinary = map[string]string{
	"article on captchas":      `<html><head><title>How captchas work</title></head><body><h1>How captchas work</h1><p>` + strings.Repeat("A captcha asks whether you are human. Access denied is what a bot sees when it sends too many requests. ", 60) + `</p></body></html>`,
	"comment form":             `<html><head><title>Blue lamp</title></head><body><h1>Blue lamp</h1><p>` + strings.Repeat("A lamp of blue glass. ", 40) + `</p><form><div class="g-recaptcha"></div></form><script src="https://www.google.com/recaptcha/api.js"></script></body></html>`,
	"behind cloudflare":        `<html><head><title>Blue lamp</title></head><body><h1>Blue lamp</h1><p>` + strings.Repeat("A lamp of blue glass. ", 40) + `</p><script src="/cdn-cgi/challenge-platform/scripts/jsd/main.js"></script></body></html>`,
	"small behind cloudflare":  `<html><head><title>Blue lamp</title></head><body><h1>Blue lamp</h1><p>12 €</p><script src="/cdn-cgi/challenge-platform/scripts/jsd/main.js"></script></body></html>`,
	"behind akamai":            `<html><head><title>Blue lamp</title><script src="/_sec/cp_challenge/ak-challenge-4-3.htm"></script></head><body><h1>Blue lamp</h1><p>` + strings.Repeat("A lamp of blue glass. ", 40) + `</p><div id="sec-overlay" style="display:none;"><div id="sec-container"></div></div></body></html>`,
	"small behind akamai":      `<html><head><title>Blue lamp</title></head><body><h1>Blue lamp</h1><p>12 €</p><div id="sec-overlay" style="display:none;"><div id="sec-container"></div></div></body></html>`,
	"tiny":                     `<html><head><title>Lamp</title></head><body><h1>Lamp</h1><p>12 €</p></body></html>`,
	"tiny without title":       `<p>ok</p>`,
	"products with such words": `<html><head><title>Access our products</title></head><body><h1>Access our products</h1><p>Check out our blocked drains service. Rate limits on loans. Please try again later editions.</p></body></html>`,
	"login of a forum":         `<html><head><title>Log in</title></head><body><h1>Log in</h1><form><input name=user><input name=password></form></body></html>`,
	"404 page":                 `<html><head><title>Page not found</title></head><body><h1>Not found</h1><p>Please check the address.</p></body></html>`,
	"book title":               `<html><head><title>Access Denied: a novel</title></head><body><h1>The Forbidden Wish</h1><p class=price>£12</p></body></html>`,
	"band":                     `<html><head><title>The Human Robots</title></head><body><h1>Human Robots on tour</h1><p>Security check in at noon</p></body></html>`,
	"script frame":             `<html><head><title>App</title></head><body><div id="root"></div><script src="/app.js"></script></body></html>`,
	"moved by refresh":         `<html><head><title>Moved</title><meta http-equiv="refresh" content="0; url=/new/place"></head><body>moved</body></html>`,
	"listing":                  `<html><head><title>Lamps</title></head><body><ul>` + strings.Repeat(`<li><a href="/l">Lamp</a> 12 €</li>`, 20) + `</ul></body></html>`,
	"support article":          `<html><head><title>Why was my account blocked?</title></head><body><h1>Why was my account blocked?</h1><p>` + strings.Repeat("We block accounts after suspicious activity. Write to us and we unblock it. ", 12) + `</p></body></html>`,
	"job ad":                   `<html><head><title>Security engineer</title></head><body><h1>Security engineer</h1><p>` + strings.Repeat("You fight bots, build rate limits and verify that users are human. ", 20) + `</p></body></html>`,
}

func scoreOf(t testing.TB, def *definition.Definition, body string) Signs {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, "http://s.example/p", nil)
	if err != nil {
		t.Fatal(err)
	}
	d, err := extract.Parse(def, extract.Page{URL: req.URL, Requested: "http://s.example/p", Kind: definition.KindDetail, Status: 200, Header: http.Header{}, Body: []byte(body)})
	if err != nil {
		return Signs{}
	}
	return Score(def, d)
}

func TestBlockSigns(t *testing.T) {
	t.Parallel()
	const rest = "detail: {must_have: h1.name}\nblocks: {css: ['#wall'], text: ['(?i)come back tomorrow'], min_text: 30}\n"
	long := strings.Repeat("words ", 100)
	for _, c := range []struct {
		name, final, body string
		want              bool
	}{
		{"good", "/p", `<h1 class=name>a</h1>` + long, false},
		{"must_have missing on a long page", "/p", `<h1>a</h1>` + long, false},
		{"must_have missing and an element of the definition", "/p", `<div id=wall></div>` + long, true},
		{"must_have missing and words of the definition", "/p", `<p>Come back tomorrow</p>` + long, true},
		{"too short", "/p", `<h1 class=name>a</h1>`, true},
		{"sent to a login", "/login", `<h1>Log in</h1>` + long, true},
	} {
		if err := inspect(t, rest, "/p", c.final, c.body); (err != nil) != c.want {
			t.Errorf("%s: got %v, want blocked: %v", c.name, err, c.want)
		} else if err != nil && ClassOf(err) != SoftBlock {
			t.Errorf("%s: got class %s", c.name, ClassOf(err))
		}
	}
	form := `<form action=/go><input name=user><input type="Password" name=pw></form>`
	for final, want := range map[string]bool{
		"/login": true, "/wp-login.php?redirect_to=%2Fp": true, "/users/sign_in": true, "/anmelden": true, "/konto?next=%2Fp%3Fa%3Db": true, "/vhod/": true,
		"/p": false, "/p-blue-lamp": false, "/konto": false, "/log": false,
	} {
		if err := inspect(t, "", "/p", final, "<h1>Welcome</h1>"+form+strings.Repeat("words about the shop ", 200)); (err != nil) != want {
			t.Errorf("sent to %s: got %v", final, err)
		}
	}
	if err := inspect(t, "blocks: {off: true}\n", "/p", "/p", challenges["hcaptcha"]); err != nil {
		t.Errorf("with blocks: off: %v", err)
	}
	rec := httptest.NewRecorder()
	rec.Header().Set("Cf-Mitigated", "challenge")
	def, _ := site(t, http.NotFound, "")
	req, _ := http.NewRequest(http.MethodGet, "http://s.example/", nil)
	d, err := extract.Parse(def, extract.Page{URL: req.URL, Kind: definition.KindDetail, Header: rec.Header(), Body: []byte(fmt.Sprint("<p>", long))})
	if err != nil || !Score(def, d).Blocked() {
		t.Errorf("the header cf-mitigated is not seen: %v", err)
	}
}

// What a protection leaves in the pages that it lets through is no refusal
// there, and is one on a page with nothing else.
func TestMarkersOfAProtectionInGoodPages(t *testing.T) {
	t.Parallel()
	def, _ := site(t, http.NotFound, "")
	for name, pages := range map[string]map[string]string{"good": ordinary, "refused": challenges} {
		for page, body := range pages {
			if s := scoreOf(t, def, body); strings.Contains(page, "akamai") && s.Blocked() != (name == "refused") {
				t.Errorf("%s: got %+v, want a page that is %s", page, s, name)
			}
		}
	}
}
