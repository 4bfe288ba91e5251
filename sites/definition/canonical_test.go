package definition

import (
	"net/url"
	"testing"

	"muster/internal/testutil"
)

func TestCanonicalNormalizesURLs(t *testing.T) {
	t.Parallel()
	def := &Definition{Scope: Scope{DropParams: []string{"sid", "ref_*"}}}
	for in, want := range map[string]string{
		"HTTP://Shop.Example:80":                       "http://shop.example/",
		"https://shop.example:443/a#top":               "https://shop.example/a",
		"https://shop.example:8443/a":                  "https://shop.example:8443/a",
		"http://shop.example/a/./b/../c":               "http://shop.example/a/c",
		"http://shop.example/a/..":                     "http://shop.example/",
		"http://shop.example/../../a":                  "http://shop.example/a",
		"http://shop.example/a/":                       "http://shop.example/a/",
		"http://shop.example/a//b":                     "http://shop.example/a//b",
		"http://shop.example/%7euser/%c3%a9%2f":        "http://shop.example/~user/%C3%A9%2F",
		"http://shop.example/é":                        "http://shop.example/%C3%A9",
		"http://shop.example/?b=2&a=1&b=1":             "http://shop.example/?a=1&b=2&b=1",
		"http://shop.example/?a=&b":                    "http://shop.example/?a=&b",
		"http://shop.example/?utm_source=x&id=1&SID=9": "http://shop.example/?id=1",
		"http://shop.example/?ref_from=x":              "http://shop.example/",
		"http://shop.example/?q=a+b":                   "http://shop.example/?q=a%20b",
		"http://shop.example/a;jsessionid=1F?x=1":      "http://shop.example/a?x=1",
		"http://bücher.example/":                       "http://xn--bcher-kva.example/",
		"http://shop.example./":                        "http://shop.example/",
		"http://u:p@shop.example/":                     "http://shop.example/",
		"http://[::1]:80/":                             "http://[::1]/",
	} {
		u, err := url.Parse(in)
		testutil.Ok(t, err)
		got := def.Canonical(u)
		if got != want {
			t.Errorf("%s: got %s, want %s", in, got, want)
		}
		again, err := url.Parse(got)
		if err != nil {
			t.Errorf("%s: %v", got, err)
		} else if twice := def.Canonical(again); twice != got {
			t.Errorf("canonical form of %s: got %s, want the same", got, twice)
		}
	}
}
