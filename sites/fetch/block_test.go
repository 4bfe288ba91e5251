package fetch

import (
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"muster/internal/testutil"
	"muster/sites/definition"
	"muster/sites/extract"
)

// lines returns the lines of a file of testdata, each split at its first n-1 tabs.
func lines(t *testing.T, file string, n int) (all [][]string) {
	t.Helper()
	text := testutil.Must(os.ReadFile("testdata/" + file))(t)
	for line := range strings.Lines(string(text)) {
		all = append(all, strings.SplitN(strings.TrimSuffix(line, "\n"), "\t", n))
	}
	return all
}

// docOf returns a parsed page of a site whose definition ends with rest.
func docOf(t *testing.T, rest, body string, header http.Header) (*definition.Definition, *extract.Doc) {
	t.Helper()
	return docAt(t, rest, "/p", body, header)
}

// docAt is docOf for a page that was requested at /p and found at another path.
func docAt(t *testing.T, rest, final, body string, header http.Header) (*definition.Definition, *extract.Doc) {
	t.Helper()
	def, base := site(t, http.NotFound, rest)
	req := testutil.Must(http.NewRequest(http.MethodGet, base+final, nil))(t)
	d, err := extract.Parse(def, extract.Page{URL: req.URL, Requested: base + "/p", Kind: definition.KindDetail, Status: 200, Header: header, Body: []byte(body)})
	testutil.Ok(t, err)
	return def, d
}

func TestBlockPagesOfVendorsAreRecognized(t *testing.T) {
	t.Parallel()
	for _, line := range lines(t, "blocked.txt", 3) {
		by, name, body := line[0], line[1], line[2]
		want := by + ": "
		if by == "a phrase" {
			want = `"`
		}
		if got := blockedBy(docOf(t, "", body, http.Header{})); !strings.HasPrefix(got, want) {
			t.Errorf("%s: got %q, want %s…", name, got, want)
		}
	}
}

func TestGoodPagesAreNotBlocked(t *testing.T) {
	t.Parallel()
	for _, line := range lines(t, "good.txt", 2) {
		if got := blockedBy(docOf(t, "", line[1], http.Header{})); got != "" {
			t.Errorf("%s: got %q, want none", line[0], got)
		}
	}
}

// Headers, cookies and titles count on pages of any length; elements and phrases do not.
func TestEvidenceOnLongPages(t *testing.T) {
	t.Parallel()
	long := "<p>" + strings.Repeat("words ", 300)
	for name, c := range map[string]struct {
		header http.Header
		body   string
		want   string
	}{
		"header":               {http.Header{"Cf-Mitigated": {"challenge"}}, long, "Cloudflare: the header Cf-Mitigated: challenge"},
		"other value":          {http.Header{"Cf-Mitigated": {"none"}}, long, ""},
		"header of AWS":        {http.Header{"X-Amzn-Waf-Action": {"captcha"}}, long, "AWS WAF: the header X-Amzn-Waf-Action: captcha"},
		"cookie":               {http.Header{"Set-Cookie": {"techaro.lol-anubis-cookie-verification-a=1"}}, long, "Anubis: the cookie techaro.lol-anubis-cookie-verification-a"},
		"cookie that is unset": {http.Header{"Set-Cookie": {"techaro.lol-anubis-cookie-verification-a=; Max-Age=0"}}, long, ""},
		"title":                {nil, "<title>Just a moment...</title>" + long, `Cloudflare: the title "Just a moment..."`},
		"part of a title":      {nil, "<title>Just a moment... and on</title>" + long, ""},
		"element":              {nil, "<div id=px-captcha></div>" + long, ""},
		"markup":               {nil, "<script>window._cf_chl_opt={}</script>" + long, ""},
		"heading":              {nil, "<title>Access denied</title>" + long, ""},
		"phrase":               {nil, "You have been blocked." + long, ""},
	} {
		if c.header == nil {
			c.header = http.Header{}
		}
		if got := blockedBy(docOf(t, "", c.body, c.header)); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

func TestDefinitionSaysWhatIsBlocked(t *testing.T) {
	t.Parallel()
	const rest = "blocks: {css: ['#wall'], text: ['(?i)come back tomorrow'], min_text: 30}\n"
	long := strings.Repeat("words ", 100)
	for _, c := range []struct {
		name, rest, body, want string
	}{
		{"good", rest, `<h1 class=name>a</h1>` + long, ""},
		{"element", rest, `<div id=wall></div>` + long, "#wall of blocks.css matches"},
		{"words", rest, `<p>Come back tomorrow</p>` + long, "(?i)come back tomorrow of blocks.text matches"},
		{"too short", rest, `<h1 class=name>a</h1>`, "1 characters of text are less than blocks.min_text (30)"},
		{"off", "blocks: {off: true}\n", `<title>Just a moment...</title>`, ""},
	} {
		called := false
		def, d := docOf(t, c.rest, c.body, http.Header{})
		d.Page.OnBlocked = func() { called = true }
		err := Inspect(def, d)
		switch {
		case (err != nil) != (c.want != "") || called != (err != nil):
			t.Errorf("%s: got %v, and OnBlocked called: %v; want %q", c.name, err, called, c.want)
		case err != nil && (ClassOf(err) != SoftBlock || !strings.HasSuffix(err.Error(), c.want)):
			t.Errorf("%s: got %v, want class %s and %q", c.name, err, SoftBlock, c.want)
		}
	}
}

func TestRedirectToALoginIsABlock(t *testing.T) {
	t.Parallel()
	body := `<h1>Welcome</h1><form action=/go><input name=user><input type="Password" name=pw></form>` + strings.Repeat("words about the shop ", 200)
	for final, want := range map[string]bool{
		"/login": true, "/wp-login.php?redirect_to=%2Fp": true, "/users/sign_in": true, "/konto?next=%2Fp%3Fa%3Db": true,
		"/p": false, "/p-blue-lamp": false, "/konto": false, "/log": false,
	} {
		if err := Inspect(docAt(t, "", final, body, http.Header{})); (err != nil) != want {
			t.Errorf("sent to %s: got %v, want blocked: %v", final, err, want)
		}
	}
	testutil.Ok(t, Inspect(docAt(t, "", "/login", "<h1>Log in</h1> at the counter", http.Header{}))) // a page without a password field
}

func TestShortJSONIsReadForPhrases(t *testing.T) {
	t.Parallel()
	const rest = "detail: {format: json}\n"
	for body, want := range map[string]bool{
		`{"message":"Please verify you are human"}`:                         true,
		`{"url":"https://geo.captcha-delivery.com/captcha/?initialCid=1"}`:  true,
		`{"name":"Lamp","price":12}`:                                        false,
		`{"text":"verify you are human ` + strings.Repeat("a", 2000) + `"}`: false,
	} {
		if got := blockedBy(docOf(t, rest, body, http.Header{})); (got != "") != want {
			t.Errorf("%.60s: got %q, want blocked: %v", body, got, want)
		}
	}
}

// Each signature has a source and can match.
func TestSignaturesAreWellFormed(t *testing.T) {
	t.Parallel()
	all := testutil.Must(parseSignatures(signaturesFile))(t)
	vendors := map[string]bool{}
	for _, s := range all.Signatures {
		if s.Vendor == "" || vendors[s.Vendor] || !strings.HasPrefix(s.Source, "https://") {
			t.Errorf("vendor %q: got source %q, want a distinct vendor and an https URL", s.Vendor, s.Source)
		}
		vendors[s.Vendor] = true
		texts := slices.Concat(s.Headers, s.Cookies, s.Titles, s.Markup)
		for _, sel := range slices.Concat(s.Elements, s.Alone) {
			texts = append(texts, sel.Text)
		}
		for _, text := range texts {
			if len(text) < 5 || text != strings.TrimSpace(text) {
				t.Errorf("%s: got %q, want at least 5 characters without space around them", s.Vendor, text)
			}
		}
		if len(texts) == 0 {
			t.Errorf("%s: got no evidence, want some", s.Vendor)
		}
		for _, h := range s.Headers {
			name, value, ok := strings.Cut(h, ": ")
			if !ok || name != http.CanonicalHeaderKey(name) || value == "" {
				t.Errorf("%s: got header %q, want Name: value", s.Vendor, h)
			}
		}
	}
	seen := map[string]bool{}
	for _, p := range append(all.Headings, all.Phrases...) {
		if p != normal(p) || len(p) < 8 || seen[p] {
			t.Errorf("got %q, want a phrase in lower case that is listed once", p)
		}
		seen[p] = true
	}
	for _, wrong := range []string{"element: ['#a']", "elements: ['#a[']"} {
		if _, err := parseSignatures([]byte("signatures: [{vendor: A, " + wrong + "}]")); err == nil {
			t.Errorf("%s: got no error, want one", wrong)
		}
	}
}
