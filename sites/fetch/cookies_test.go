package fetch

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"muster/internal/testutil"
	"muster/sites/definition"
)

// Cookies are kept between pages, and returned as browsers do.
func TestCookiesAreKept(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ set, rest, want string }{
		{"sid=1; Path=/", "", "sid=1"},
		{"sid=1; Path=/", "session: {}\n", "sid=1"},
		{"sid=1; Path=/", "session: {start: /}\n", "sid=1"},
		{"sid=1; Path=/", "cookies: {a: b}\n", "a=b; sid=1"},
		{"sid=1; Path=/", "cookies: off\n", ""},
		{"sid=1", "", "sid=1"},
		{"sid=1; Path=/elsewhere", "", ""},
		{"sid=1; Max-Age=0", "", ""},
		{"sid=1; Domain=other.example", "", ""},
		{"sid=1; Domain=.127.0.0.1", "", "sid=1"},
		{"sid=1,2", "", "sid=1,2"},
		{"sid=a b", "", "sid=a b"},
		{`sid="1"`, "", `sid="1"`},
		{`sid={"a":1}`, "", `sid={"a":1}`},
		{`sid=a\b`, "", `sid=a\b`},
		{"sid=é", "", "sid=é"},
		{"a[b]=1", "", "a[b]=1"},
		{"noequals", "", "noequals"},
		{"=x", "", "x"},
		{"; ;=x", "", ""},
		{"none", `cookies: {a: '{"b": 1}', c: 'd, é'}` + "\n", `a={"b": 1}; c=d, é; none`},
	} {
		got := ""
		def, base := site(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/" {
				w.Header()["Set-Cookie"] = []string{c.set}
			}
			got = r.Header.Get("Cookie")
			fmt.Fprint(w, page)
		}, quick+c.rest)
		client := NewClient(Config{Definition: def, Clock: free{}})
		for _, path := range []string{"/", "/next"} {
			testutil.Must(client.Get(t.Context(), base+path, definition.KindDetail))(t)
		}
		if got != c.want {
			t.Errorf("%s, %s: got the cookies %q, want %q", c.set, c.rest, got, c.want)
		}
	}
}

// Redirects that need a cookie are followed. Otherwise the error names the reason, and none has a path, which may be secret.
func TestRedirectErrorsNameTheReason(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ location, rest, want string }{
		"the same page":    {"/", "", ""},
		"without cookies":  {"/", "cookies: off\n", "redirect: too many redirects: more than limits.redirects (5); they set cookies, which cookies: off drops"},
		"always":           {"/always", "", "redirect: too many redirects: more than limits.redirects (5); they set cookies that the site does not accept"},
		"no cookie":        {"/plain", "", "redirect: too many redirects: more than limits.redirects (5)"},
		"another host":     {"http://www.s.example:81/secret", "", "redirect: redirect to http://www.s.example:81 outside the site; add its host to hosts if it belongs to the site"},
		"scope":            {"/out", "scope: {deny: /out}\n", "redirect to http://127.0.0.1:PORT outside the site; scope excludes it"},
		"another scheme":   {"javascript:x", "", "redirect: redirect to javascript: outside the site; add its host to hosts if it belongs to the site"},
		"no Location":      {"", "", "redirect: HTTP status 302 Found without a Location to follow"},
		"fragment":         {"/end#part", "", ""},
		"login":            {"http://u:hush@127.0.0.1:PORT/end", "", ""},
		"backslash":        {`\end?a=\b`, "", ""},
		"slashes and host": {`\\127.0.0.1:PORT\end`, "", ""},
	} {
		base, port := "", ""
		def, at := site(t, func(w http.ResponseWriter, r *http.Request) {
			_, err := r.Cookie("sid")
			to := strings.ReplaceAll(c.location, "PORT", port)
			if r.Header.Get("Authorization") != "" {
				t.Errorf("%s: got a login, want none", name)
			}
			switch {
			case r.URL.Path == "/end" || err == nil && c.location == "/":
				fmt.Fprint(w, page)
				return
			case c.location == "/plain":
			default:
				http.SetCookie(w, &http.Cookie{Name: "sid", Value: "1", Path: "/"})
			}
			if to != "" {
				w.Header().Set("Location", to)
			}
			w.WriteHeader(http.StatusFound)
		}, quick+c.rest)
		base, port = at, at[strings.LastIndex(at, ":")+1:]
		p, err := NewClient(Config{Definition: def, Clock: free{}}).Get(t.Context(), base+"/", definition.KindDetail)
		want := strings.ReplaceAll(c.want, "PORT", port)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.HasSuffix(err.Error(), want)) {
			t.Errorf("%s: got %v, want %q", name, err, want)
		}
		if u := p.URL; err == nil && (u.Fragment != "" || u.User != nil || u.Path != "/" && u.Path != "/end") {
			t.Errorf("%s: got the page %s, want / or /end without login and fragment", name, u)
		}
	}
}

// A site with https gets its headers and cookies only encrypted: not after a redirect to http, and not by a link to it.
func TestSecretsAreNotSentInPlainText(t *testing.T) {
	t.Parallel()
	for _, rest := range []string{"", "session: {}\n", "cookies: off\n"} {
		for _, path := range []string{"/moved", "/there"} {
			var got http.Header
			plain := testutil.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				got = r.Header
				fmt.Fprint(w, page)
			}))
			sent := false
			secure := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				sent = r.Header.Get("Authorization") == "hush" && r.Header.Get("X-Token") == "hush"
				http.SetCookie(w, &http.Cookie{Name: "sid", Value: "hush", Path: "/"})
				if r.URL.Path == "/moved" {
					http.Redirect(w, r, plain.URL+"/there", http.StatusFound)
					return
				}
				fmt.Fprint(w, page)
			}))
			t.Cleanup(secure.Close)
			cookies := "cookies: {a: hush}\n"
			if strings.HasPrefix(rest, "cookies") {
				cookies = ""
			}
			def, err := definition.Parse("s.yaml", []byte("site: s\nbase_url: "+secure.URL+"\nhosts: ['"+strings.TrimPrefix(plain.URL, "http://")+
				"']\nstart: [/]\nheaders: {X-Token: hush, Authorization: hush}\n"+cookies+"records: {r: {fields: {v: b}}}\n"+quick+rest))
			testutil.Ok(t, err)
			transport := DirectTransport(local)
			transport.TLSClientConfig = secure.Client().Transport.(*http.Transport).TLSClientConfig
			client := NewClient(Config{Definition: def, Clock: free{}, Transport: transport})
			if _, err := client.Get(t.Context(), secure.URL+"/", definition.KindDetail); err != nil || !sent {
				t.Fatalf("got %v, want a page with the headers: %v", err, sent)
			}
			target := secure.URL
			if path == "/there" {
				target = plain.URL
			}
			testutil.Must(client.Get(t.Context(), target+path, definition.KindDetail))(t)
			if text := fmt.Sprint(got); got == nil || strings.Contains(text, "hush") || got.Get("Authorization") != "" {
				t.Errorf("%s%s: got %s, want no secrets", rest, path, text)
			}
		}
	}
}

// Headers, cookies and logins of a definition are sent only to its hosts, also after links, redirects and forms to other hosts.
func TestSecretsStayOnTheSite(t *testing.T) {
	t.Parallel()
	const rest = "headers: {Authorization: Bearer hush, X-Key: hush}\ncookies: {sid: hush}\n"
	const paced = "politeness: {delay: 0}\n"
	for name, c := range map[string]struct {
		rest   string
		leaves string // the path on the site that redirects to the other host
		status int
		kind   string
		path   string
		sent   bool // the other host gets a request, without secrets
	}{
		"page":                    {"", "/page", 302, definition.KindDetail, "/page", false},
		"second redirect":         {"", "/second", 307, definition.KindDetail, "/first", false},
		"refresh":                 {"", "/refresh", 200, definition.KindDetail, "/refresh", false},
		"sitemap":                 {"", "/sitemap.xml", 301, definition.KindSitemap, "/sitemap.xml", false},
		"robots.txt":              {paced, "/robots.txt", 302, definition.KindDetail, "/ok", true},
		"moved robots":            {paced, "/moved.txt", 308, definition.KindDetail, "/ok?moved", true},
		"robots.txt of a session": {paced + "session: {}\n", "/robots.txt", 302, definition.KindDetail, "/ok", true},
		"start of a session":      {"session: {start: /start}\n", "/start", 302, definition.KindDetail, "/ok", false},
		"page of a session":       {"session: {}\n", "/page", 302, definition.KindDetail, "/page", false},
		"login page":              {memberLogin, "/login", 302, definition.KindDetail, "/ok", false},
		"login form":              {memberLogin, "/send", 307, definition.KindDetail, "/ok", false},
		"response to a login":     {memberLogin, "/send", 303, definition.KindDetail, "/ok", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			var leaked []string
			requests, toSite := 0, 0
			note := func(r *http.Request) (secrets []string) {
				body, _ := io.ReadAll(r.Body)
				for key, values := range r.Header {
					if strings.Contains(strings.Join(values, " "), "hush") {
						secrets = append(secrets, key)
					}
				}
				if strings.Contains(string(body)+r.URL.String(), "hush") {
					secrets = append(secrets, "password")
				}
				return secrets
			}
			other := testutil.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				requests++
				leaked = append(leaked, note(r)...)
				fmt.Fprint(w, page)
			}))
			def, base := site(t, func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				if got := note(r); !slices.Contains(got, "Authorization") || !slices.Contains(got, "X-Key") || !slices.Contains(got, "Cookie") {
					t.Errorf("%s of the site got the secrets %v, want all headers and cookies", r.URL, got)
				}
				toSite++
				switch {
				case r.URL.Path == c.leaves && c.status == 200:
					fmt.Fprintf(w, `<meta http-equiv=refresh content="0; url=%s/away">`, other.URL)
				case r.URL.Path == c.leaves:
					http.Redirect(w, r, other.URL+"/away", c.status)
				case r.URL.Path == "/first":
					http.Redirect(w, r, "/second", http.StatusFound)
				case r.URL.Path == "/robots.txt":
					http.Redirect(w, r, "/moved.txt", http.StatusFound)
				case r.URL.Path == "/login":
					fmt.Fprint(w, `<form method=post action=/send><input name=user><input type=password name=password></form>`)
				default:
					fmt.Fprint(w, page)
				}
			}, rest+c.rest+map[bool]string{true: quick}[!strings.Contains(c.rest, paced)])
			client := NewClient(Config{Definition: def, Clock: free{}, Filter: local})
			t.Cleanup(client.Close)
			_, err := client.Get(t.Context(), base+c.path, c.kind)
			if (err == nil) != c.sent {
				t.Errorf("got error %v, want one: %v", err, !c.sent)
			}
			if len(leaked) > 0 || requests > 0 != c.sent || toSite == 0 {
				t.Errorf("the other host got %d requests with the secrets %v, want requests: %v and no secrets; the site got %d", requests, leaked, c.sent, toSite)
			}
		})
	}
}
