package fetch

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"muster/sites/definition"
)

func TestPagesAreRenderedByKind(t *testing.T) {
	t.Parallel()
	var asked []string
	end := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q struct {
			URL     string
			Headers map[string]string
			Timeout int `json:"timeout_ms"`
		}
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil || q.Timeout != 5000 || !strings.HasPrefix(q.Headers["User-Agent"], "muster") {
			t.Errorf("got the request %+v, %v, want a timeout of 5000 ms and the User-Agent of muster", q, err)
		}
		asked = append(asked, q.URL)
		switch {
		case strings.HasSuffix(q.URL, "/gone"):
			w.Header().Set("X-Page-Status", "404")
		case strings.HasSuffix(q.URL, "/moved"):
			w.Header().Set("X-Page-URL", "/here")
		case strings.HasSuffix(q.URL, "/away"):
			w.Header().Set("X-Page-URL", "http://elsewhere.example/")
		case strings.HasSuffix(q.URL, "/broken"):
			w.WriteHeader(http.StatusInternalServerError)
		case strings.HasSuffix(q.URL, "/big"):
			fmt.Fprint(w, strings.Repeat("x", 5000))
		}
		fmt.Fprint(w, "<h1>rendered by a browser, with enough words to be a page</h1>")
	}))
	t.Cleanup(end.Close)
	def, base := site(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/robots.txt" {
			fmt.Fprint(w, "user-agent: *\ndisallow: /secret\n")
			return
		}
		fmt.Fprint(w, `<div id=root></div><script src=/a.js></script> plain, as the site sends it`)
	}, "politeness: {delay: 0}\nlimits: {max_bytes: 4kB}\nrender: {url: '"+end.URL+"/render', kinds: [detail], timeout: 5s}\n")
	c := NewClient(Config{Definition: def})

	page, err := c.Get(t.Context(), base+"/p", definition.KindDetail)
	if err != nil || !strings.Contains(string(page.Body), "rendered by a browser") {
		t.Errorf("got %q, %v, want the rendered page", page.Body, err)
	}
	if page, err = c.Get(t.Context(), base+"/l", definition.KindListing); err != nil || !strings.Contains(string(page.Body), "as the site sends it") {
		t.Errorf("a page of another kind: got %q, %v, want the page of the site", page.Body, err)
	}
	if page, err = c.Get(t.Context(), base+"/moved", definition.KindDetail); err != nil || page.URL.Path != "/here" {
		t.Errorf("a page that has moved: got %v, %v, want /here", page.URL, err)
	}
	for path, want := range map[string]Class{"/gone": Gone, "/away": Redirect, "/broken": Connect, "/big": TooBig, "/secret": Robots} {
		if _, err := c.Get(t.Context(), base+path, definition.KindDetail); ClassOf(err) != want {
			t.Errorf("%s: got %v, want %s", path, err, want)
		}
	}
	for _, url := range asked {
		if strings.Contains(url, "robots.txt") || strings.Contains(url, "secret") || strings.Contains(url, "/l") {
			t.Errorf("got a request to the renderer for %s, want none", url)
		}
	}
}

// A redirected robots.txt is not rendered, even for a page that is.
func TestMovedRobotsIsNotRendered(t *testing.T) {
	t.Parallel()
	end := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, page) }))
	t.Cleanup(end.Close)
	def, base := site(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/robots.txt":
			http.Redirect(w, r, "/other.txt", http.StatusFound)
		case "/other.txt":
			fmt.Fprint(w, "user-agent: *\ndisallow: /secret\n")
		}
	}, "politeness: {delay: 0}\nrender: {url: '"+end.URL+"/render', kinds: [detail], timeout: 5s}\n")
	if _, err := NewClient(Config{Definition: def}).Get(t.Context(), base+"/secret", definition.KindDetail); ClassOf(err) != Robots {
		t.Errorf("got %v, want %s", err, Robots)
	}
}
