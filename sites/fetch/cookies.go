package fetch

import (
	"maps"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"muster/sites/definition"
)

// newJar returns a jar with the cookies of a definition, or nil if the definition keeps no cookies.
func newJar(def *definition.Definition, secure bool) http.CookieJar {
	if def.Cookies.Off {
		return nil
	}
	jar, _ := cookiejar.New(nil) // never fails
	given := cookiesOf(def)
	for _, host := range def.Hosts {
		name, _ := definition.SplitHost(host) // cookies apply to all ports
		under, wild := strings.CutPrefix(name, "*.")
		for _, c := range given {
			c.Path, c.Domain, c.Secure = "/", "", secure
			if wild {
				c.Domain = under
			}
		}
		jar.SetCookies(&url.URL{Scheme: "https", Host: under, Path: "/"}, given)
	}
	return jar
}

// cookiesOf returns the cookies of a definition.
func cookiesOf(def *definition.Definition) []*http.Cookie {
	var given []*http.Cookie
	for _, name := range slices.Sorted(maps.Keys(def.Cookies.Values)) {
		given = append(given, &http.Cookie{Name: name, Value: def.Cookies.Values[name]})
	}
	return given
}

// addCookies adds cookies to a request as they are. net/http would quote or drop some values.
func addCookies(req *http.Request, cookies []*http.Cookie) {
	if len(cookies) == 0 {
		return
	}
	var pairs []string
	for _, c := range cookies {
		pairs = append(pairs, strings.TrimPrefix(c.Name+"="+c.Value, "="))
	}
	req.Header.Set("Cookie", strings.Join(pairs, "; "))
}

// cookiesIn returns the cookies that a response sets, with the names and values that browsers accept (RFC 6265, 5.2). net/http
// drops those that servers should not send, such as JSON.
func cookiesIn(header http.Header) []*http.Cookie {
	var set []*http.Cookie
	for _, line := range header.Values("Set-Cookie") {
		pair, attributes, _ := strings.Cut(line, ";")
		name, value, named := strings.Cut(pair, "=")
		if !named {
			name, value = "", pair
		}
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		c, err := http.ParseSetCookie("name=value;" + attributes)
		if err != nil || name+value == "" || !httpguts.ValidHeaderFieldValue(pair) {
			continue
		}
		c.Name, c.Value, c.Domain = name, value, strings.TrimPrefix(c.Domain, ".")
		set = append(set, c)
	}
	return set
}
