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

	"muster/sites/definition"
)

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
			other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				requests++
				leaked = append(leaked, note(r)...)
				fmt.Fprint(w, page)
			}))
			t.Cleanup(other.Close)
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
