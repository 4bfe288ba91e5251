package browser

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/network"
)

const (
	largest      = 150 << 10 // maximum size of a page in bytes
	largestFlow  = 300 << 10 // maximum size of a workflow page
	mostFollowed = 2         // links per position in a page; the links of other rows lead to pages of the same kind
)

// crawl is a crawl of the pages of a site.
type crawl struct {
	*tab
	prefix string // path prefix of the tested pages
	client *http.Client
	header http.Header     // header of its requests
	quick  bool            // skips inspections
	known  string          // pages below this path are inspected by other tests
	seen   map[string]bool // requested paths

	questions []string // confirmation pages
}

// walk opens and inspects all pages that the navigation links to, the first links of each position on them, and their subpages. It
// sends the key, if any, with each request. It returns the crawl.
func walk(b *tab, name, prefix, key string) *crawl {
	b.Helper()
	c := newCrawl(b, prefix, key)
	if prefix != "" {
		c.known = prefix + "/tasks/" // inspected by the tests of tasks/ui
	}
	c.walk(name)
	return c
}

func newCrawl(b *tab, prefix, key string) *crawl {
	b.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		b.Fatal(err)
	}
	transport := &http.Transport{}
	b.Cleanup(transport.CloseIdleConnections)
	c := &crawl{tab: b, prefix: prefix, client: &http.Client{Jar: jar, Transport: transport}, seen: map[string]bool{}}
	c.as(key)
	return c
}

// as makes the crawl send a key, in the browser and in its own requests.
func (c *crawl) as(key string) {
	c.Helper()
	c.header = http.Header{}
	if key != "" {
		c.header.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte("x:"+key)))
		send(c.tab, network.SetExtraHTTPHeaders, network.SetExtraHTTPHeadersParams{Headers: network.Headers{"Authorization": c.header.Get("Authorization")}})
	}
}

func (c *crawl) walk(name string) {
	c.Helper()
	menu := []string{c.prefix + "/"}
	var below []string
	for len(menu) > 0 {
		path := menu[0]
		menu = menu[1:]
		if !c.open(name, path) {
			continue
		}
		menu = append(menu, c.links(`header nav a[href]`, 1000)...)
		below = append(below, c.links(`main a[href]`, mostFollowed)...)
	}
	for _, path := range below {
		if !c.open(name, path) || strings.Contains(path, "?") { // a filtered page
			continue
		}
		for _, part := range c.links(`main a[href]`, 1) { // its subpages and actions
			if strings.HasPrefix(part, path+"/") {
				c.open(name, part)
			}
		}
	}
	if len(c.seen) < 5 {
		c.Errorf("%s: got the pages %v only", name, c.seen)
	}
}

// links returns the targets of the links that match a selector, at most some per position. Links in the same column of different
// rows have the same position.
func (c *crawl) links(selector string, most int) []string {
	c.Helper()
	all := eval[[]string](c.tab, fmt.Sprintf(`(() => {
		const seen = {}, all = [];
		for (const a of document.querySelectorAll(%q)) {
			let place = "";
			for (let e = a; e.parentElement && e.id !== "main"; e = e.parentElement) {
				const row = e.matches("tr, li, p, g, nav a, svg a, main > div, main > section");
				place = e.localName + (row ? "" : ":" + [...e.parentElement.children].indexOf(e)) + " " + place;
			}
			seen[place] = (seen[place] || 0) + 1;
			if (seen[place] <= %d) all.push(new URL(a.getAttribute("href"), document.baseURI).href);
		}
		return all;
	})()`, selector, most))
	var paths []string
	for _, link := range all {
		u, err := url.Parse(link)
		if err != nil || u.Scheme+"://"+u.Host != c.base {
			continue // an external link, which is not loaded
		}
		paths = append(paths, u.RequestURI())
	}
	return paths
}

// get requests a path without the browser.
func (c *crawl) get(path string) (code int, kind, body string) {
	c.Helper()
	return c.ask(http.MethodGet, path, nil)
}

func (c *crawl) ask(method, path string, form url.Values) (code int, kind, body string) {
	c.Helper()
	req, err := http.NewRequestWithContext(c.Context(), method, c.base+path, strings.NewReader(form.Encode()))
	if err != nil {
		c.Fatal(err)
	}
	for name, values := range c.header {
		req.Header[name] = values
	}
	req.Header.Set("Accept", "text/html")
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	res, err := c.client.Do(req)
	if err != nil {
		c.Fatal(err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(res.Body, 10<<20))
	if err != nil {
		c.Fatalf("%s: %v", path, err)
	}
	return res.StatusCode, res.Header.Get("Content-Type"), string(raw)
}

// open opens and inspects a page, once. It returns false for a page of another handler.
func (c *crawl) open(name, path string) bool {
	c.Helper()
	if c.seen[path] {
		return false
	}
	c.seen[path] = true
	ours := strings.HasPrefix(path, c.prefix+"/") || path == c.prefix
	if !ours && strings.HasPrefix(path, "/asynqmon") {
		return false // a page of another handler
	}
	code, kind, body := c.get(path)
	if code != http.StatusOK {
		c.Errorf("%s: a link to %s: got %d, want 200: %.300s", name, path, code, body)
		return false
	}
	if !ours || !strings.HasPrefix(kind, "text/html") {
		return false
	}
	most := largest
	if strings.Contains(path, "/workflows/") {
		most = largestFlow
	}
	if len(body) > most {
		c.Errorf("%s %s: got a page of %d bytes, want at most %d", name, path, len(body), most)
	}
	c.visit(path)
	if got := eval[int](c.tab, `document.querySelectorAll("h1").length`); got != 1 {
		c.Errorf("%s %s: got %d headings of the first level, want 1", name, path, got)
	}
	if eval[bool](c.tab, `"hostile" in window`) {
		c.Errorf("%s %s: untrusted text was executed", name, path)
	}
	if eval[bool](c.tab, `!!document.querySelector("form[method=post]")`) {
		c.questions = append(c.questions, path)
	}
	if !c.quick && (c.known == "" || !strings.HasPrefix(path, c.known)) {
		c.inspect(name + " " + path)
	}
	return true
}

// tokenName is the required form field against CSRF.
const tokenName = "muster_form"

// perform submits each confirmation page: first without the token, which must have no effect, then like a user.
func (c *crawl) perform() {
	c.Helper()
	c.expectFailures() // rejected forms are expected
	for _, path := range c.questions {
		if code, _, _ := c.get(path); code != http.StatusOK {
			continue // the object no longer exists
		}
		if code, _, body := c.ask(http.MethodPost, path, url.Values{}); code != http.StatusForbidden {
			c.Errorf("%s without a token: got %d, want 403: %.300s", path, code, body)
		}
		c.visit(path)
		eval[bool](c.tab, fillIn)
		code := c.click("form[method=post] button")
		if code != http.StatusOK && code != http.StatusCreated && code != http.StatusBadRequest && code != http.StatusConflict && code != http.StatusNotFound && code != http.StatusUnprocessableEntity {
			c.Errorf("%s: got %d: %.500s", path, code, c.text())
		}
		if c.known == "" || !strings.HasPrefix(path, c.known) {
			c.inspect("done " + path)
		}
	}
}

// fillIn fills the empty required fields.
const fillIn = `[...document.querySelectorAll("form[method=post] [required]")].map(f => { if (!f.value) f.value = f.type === "number" ? f.min || "1" : "x1"; }).length >= 0`

// paths returns the visited paths for messages.
func (c *crawl) paths() []string {
	var all []string
	for path := range c.seen {
		all = append(all, path)
	}
	slices.Sort(all)
	return all
}

// decode decodes JSON.
func decode(t *testing.T, text string, v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), v); err != nil {
		t.Fatalf("%v: %.300s", err, text)
	}
}
