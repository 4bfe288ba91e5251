package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"muster/internal/addressfilter"
	"muster/internal/testutil"
	"muster/sites/definition"
	"muster/sites/render"
)

// stubRenderer is a browser that records the requests.
type stubRenderer struct {
	got []render.Request
	err error
}

func (s *stubRenderer) Check() error { return nil }

func (s *stubRenderer) Render(_ context.Context, r render.Request) (*http.Response, error) {
	s.got = append(s.got, r)
	if s.err != nil {
		return nil, s.err
	}
	header := http.Header{"X-Page-Url": {r.URL}, "Content-Type": {"text/html; charset=utf-8"}, "Set-Cookie": {"seen=" + fmt.Sprint(len(s.got))}}
	return &http.Response{StatusCode: 200, Header: header, Body: io.NopCloser(strings.NewReader("<h1>rendered</h1>" + strings.Repeat("words ", 20)))}, nil
}

func renderingClient(t *testing.T, rest string, cfg Config) (*Client, *stubRenderer, string) {
	t.Helper()
	def, base := site(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/blocked" {
			w.WriteHeader(http.StatusForbidden)
		}
		fmt.Fprint(w, "<h1>plain</h1>"+strings.Repeat("words ", 20))
	}, quick+rest)
	s := &stubRenderer{}
	cfg.Definition, cfg.Browser = def, s
	c := NewClient(cfg)
	t.Cleanup(c.Close)
	return c, s, base
}

// render: auto fetches pages plainly until one of their kind has needed the browser, and no longer asks for it if it is in vain.
func TestRenderAutoLearnsByKind(t *testing.T) {
	t.Parallel()
	c, s, base := renderingClient(t, "render: auto\n", Config{})
	get := func(kind string) (rendered, can bool) {
		page := testutil.Must(c.Get(t.Context(), base+"/"+kind, kind))(t)
		if page.Rendered != strings.Contains(string(page.Body), "rendered") {
			t.Errorf("%s: got Rendered %v, but %.20q", kind, page.Rendered, page.Body)
		}
		can = c.CanRender(page)
		if can {
			again, err := c.Render(t.Context(), page)
			if err != nil || !again.Rendered || c.CanRender(again) {
				t.Errorf("%s: got %+v, %v, want a rendered page, once", kind, again, err)
			}
			c.Learn(t.Context(), kind, kind == definition.KindDetail)
		}
		return page.Rendered, can
	}
	for i := range 5 {
		if rendered, can := get(definition.KindDetail); rendered != (i > 0) || can != (i == 0) {
			t.Errorf("detail %d: got %v, %v, want the first page plain, and the next ones rendered", i, rendered, can)
		}
		if rendered, can := get(definition.KindListing); rendered || can != (i < maxVain) {
			t.Errorf("listing %d: got %v, %v, want plain pages, and %d attempts", i, rendered, can, maxVain)
		}
	}
	if post, err := c.Fetch(t.Context(), base+"/form", definition.KindDetail, definition.Post{Type: "text/plain", Text: "a"}); err != nil || post.Rendered {
		t.Errorf("got %v, %v, want a plain page for a form", post.Rendered, err)
	}
	if want := 5 + maxVain; len(s.got) != want {
		t.Errorf("got %d rendered pages, want %d", len(s.got), want)
	}
}

// The browser gets the visitor with its cookies and its proxy. A blocked visitor is replaced.
func TestBrowserIsTheVisitor(t *testing.T) {
	t.Parallel()
	var visitors []string
	c, s, base := renderingClient(t, "cookies: {first: '1'}\nlimits: {max_bytes: 2MB}\nrender: {when: always, kinds: [detail], wait: h1, timeout: 3s}\n", Config{
		BrowserProxy: func(visitor string) (string, error) {
			visitors = append(visitors, visitor)
			return "http://" + visitor + "@127.0.0.1:9/", nil
		},
	})
	for _, path := range []string{"/a", "/b"} {
		testutil.Must(c.Get(t.Context(), base+path, definition.KindDetail))(t)
	}
	if _, err := c.Get(t.Context(), base+"/blocked", definition.KindListing); ClassOf(err) != Blocked {
		t.Errorf("got %v, want %s", err, Blocked)
	}
	testutil.Must(c.Get(t.Context(), base+"/c", definition.KindDetail))(t)
	first, second, third := s.got[0], s.got[1], s.got[2]
	if first.Headers["Cookie"] != "first=1" || !strings.Contains(second.Headers["Cookie"], "seen=1") || first.Wait != "h1" || first.Milliseconds != 3000 || first.MaxBytes != 2e6 {
		t.Errorf("got %+v and %+v, want the cookies of the visitor and the limits of the definition", first, second)
	}
	if first.Session != visitors[0] || first.Session != second.Session || first.Session == third.Session || first.Proxy == third.Proxy {
		t.Errorf("got the sessions %q, %q, %q and proxies %v, want those of two visitors", first.Session, second.Session, third.Session, visitors)
	}
}

// The class of an error of the browser is the class of the page. Errors through a proxy are not errors of the site.
func TestErrorsOfTheBrowser(t *testing.T) {
	t.Parallel()
	filter, _ := addressfilter.New()
	refused := filter.Check(netip.MustParseAddr("127.0.0.1"))
	for name, c := range map[string]struct {
		err  error
		want Class
		site bool
	}{
		"renderer": {&render.Error{Class: render.Failed, Err: errors.New("the tab crashed")}, Renderer, false},
		"connect":  {&render.Error{Class: render.Connect, Err: errors.New("refused")}, Connect, true},
		"timeout":  {&render.Error{Class: render.Timeout, Err: errors.New("slow")}, Timeout, true},
		"proxy":    {&render.Error{Class: render.Proxy, Err: errors.New("down")}, Proxy, false},
		"address":  {&render.Error{Class: render.Connect, Err: refused}, Address, false},
		"canceled": {context.Canceled, Canceled, false},
	} {
		for _, proxy := range []func(string) (string, error){nil, func(string) (string, error) { return "http://127.0.0.1:9", nil }} {
			client, s, base := renderingClient(t, "render: always\n", Config{BrowserProxy: proxy})
			s.err = c.err
			_, err := client.Get(t.Context(), base+"/", definition.KindDetail)
			e, ok := errors.AsType[*Error](err)
			if !ok || e.Class != c.want || e.OfSite() != (c.site && proxy == nil) {
				t.Errorf("%s: got %v (%+v), want %s, of the site: %v", name, err, e, c.want, c.site && proxy == nil)
			}
		}
	}
}
