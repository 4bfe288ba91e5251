package extract

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

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
