package extract

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

func TestHeaderNext(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]string{
		`</p?page=2>; rel="next", </p?page=9>; rel="last"`:             "/p?page=2",
		`</a,b?c=1,2>; rel=next`:                                       "/a,b?c=1,2",
		`</p>; title="a, <b>; rel=next"; rel=prev, </q>; rel="x NEXT"`: "/q",
		`</p>; title="a, <b>; rel=next"`:                               "",
		`</p>; rel=prev; rel=next`:                                     "",
		`</p>; rel=nexts, <>; rel=next, </q> ; rel = next`:             "/q",
		`</other>; rel=next; anchor="#top", </q>; rel=next`:            "/q",
		`broken, </q>;rel='next'`:                                      "/q",
		`</p>; rel="next`:                                              "/p",
		`<unclosed; rel=next`:                                          "",
	} {
		if got := headerNext([]string{header}); got != want {
			t.Errorf("%s: got %q, want %q", header, got, want)
		}
	}
}

func TestLargestImageOfSrcsetIsSelected(t *testing.T) {
	t.Parallel()
	for set, want := range map[string]string{
		"a.jpg 1x, b.jpg 2x":                       "b.jpg",
		"a.jpg 300w 200h, b.jpg 900w 600h":         "b.jpg",
		"a.jpg 900w 50h, b.jpg 300w 700h":          "a.jpg",
		"a,b.jpg, c.jpg 1.5x":                      "c.jpg",
		"/t_w100,h50.jpg 100w,/t_w200,h90.jpg 20w": "/t_w100,h50.jpg",
		"a.jpg 10q, b.jpg":                         "b.jpg",
		"a.jpg 10q":                                "",
		"data:image/gif;base64,R0lG 1x, b.jpg 2x":  "b.jpg",
		" , a.jpg ,":                               "a.jpg",
		"":                                         "",
	} {
		if got := largest(set); got != want {
			t.Errorf("%q: got %q, want %q", set, got, want)
		}
	}
}

func TestRefresh(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`<meta http-equiv="refresh" content="0; url=/b">`:                              "http://shop.example/b",
		`<META HTTP-EQUIV=REFRESH CONTENT="0;URL='b?x=1#y'">`:                          "http://shop.example/p/b?x=1",
		`<meta http-equiv=Refresh content="3, http://shop.example/c">`:                 "http://shop.example/c",
		`<base href="/d/"><meta http-equiv=refresh content=" ; url = e">`:              "http://shop.example/d/e",
		`<meta http-equiv=refresh content="5; url=/b">`:                                "",
		`<meta http-equiv=refresh content="30">`:                                       "",
		`<meta http-equiv=refresh content="0">`:                                        "",
		`<meta http-equiv=refresh content="0; url=">`:                                  "",
		`<meta http-equiv=refresh content="0; url=/p/1#x">`:                            "",
		`<meta http-equiv=refresh content="0; url=javascript:x()">`:                    "",
		`<!-- <meta http-equiv=refresh content="0; url=/b"> -->`:                       "",
		`<noscript><meta http-equiv=refresh content="0; url=/b"></noscript>`:           "",
		`<meta name=refresh content="0; url=/b">`:                                      "",
		strings.Repeat(" ", 40<<10) + `<meta http-equiv=refresh content="0; url=/b">`:  "",
		`<p>how to write &lt;meta http-equiv=refresh content="0; url=/b"&gt; yourself`: "",
	} {
		u, _ := url.Parse("http://shop.example/p/1")
		got := ""
		if to := (Page{URL: u, Header: http.Header{}, Body: []byte(body)}).Refresh(); to != nil {
			got = to.String()
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", strings.TrimSpace(body), got, want)
		}
	}
	u, _ := url.Parse("http://shop.example/p/1")
	check := Page{URL: u, Header: http.Header{"Set-Cookie": {"seen=1"}}, Body: []byte(`<meta http-equiv=refresh content="0; url=/p/1#x">`)}
	if to := check.Refresh(); to == nil || to.String() != u.String() {
		t.Errorf("reload after a cookie: got %v, want %s", to, u)
	}
}
