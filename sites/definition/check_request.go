package definition

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/text/encoding/htmlindex"

	"muster/internal/secret"
)

func (c *checker) checkRequest(def *Definition) {
	if def.Encoding != "" {
		if _, err := htmlindex.Get(def.Encoding); err != nil {
			c.problemAt(def.At, "encoding", "%q is no known charset; write it like windows-1251 or utf-8", def.Encoding)
		}
	}
	def.secretTexts(func(key, text string) string {
		if left := text[strings.LastIndex(text, "${")+1:]; secret.Refers(text) && !strings.Contains(left, "}") {
			c.problemAt(def.At, key, "has ${ without }; write ${NAME} or ${file:PATH}")
		}
		return text
	})
	for _, name := range sortedKeys(def.Cookies) {
		if err := (&http.Cookie{Name: name, Value: def.Cookies[name]}).Valid(); err != nil {
			c.problemAt(def.At, "cookies."+name, "is not a valid cookie: the name is one word, and the value is ASCII without quotes, semicolons and backslashes")
		}
	}
	c.checkHeaders(def.Headers, def.At, "headers")
	if !httpguts.ValidHeaderFieldValue(def.UserAgent) {
		c.problemAt(def.At, "user_agent", "is not a valid HTTP header value")
	}
	for i, s := range def.DependsOn {
		if s == def.Site {
			c.problemAt(def.At, "depends_on", "a site cannot depend on itself")
		}
		if slices.Index(def.DependsOn, s) != i {
			c.problemAt(def.At, "depends_on", "names %q twice", s)
		}
	}
}

// whyNot returns why a header cannot be set, because it belongs to the transport or to another key, or "".
func whyNot(header string) string {
	switch http.CanonicalHeaderKey(header) {
	case "Accept-Encoding":
		return "the transport unpacks what it has asked for itself"
	case "Cookie":
		return "write cookies instead"
	case "Connection":
		return "the transport keeps connections itself"
	case "Content-Length", "Transfer-Encoding":
		return "the transport sets it"
	}
	return ""
}

func (c *checker) checkHeaders(headers map[string]string, at Pos, key string) {
	for _, name := range sortedKeys(headers) {
		if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(headers[name]) {
			c.problemAt(at, key+"."+name, "is not a valid HTTP header")
		}
		if why := whyNot(name); why != "" {
			c.problemAt(at, key+"."+name, "cannot be set: %s", why)
		}
	}
}

// checkSession checks the limits of a session, and sets their defaults.
func (c *checker) checkSession(def *Definition, base *url.URL) {
	s := def.Session
	if s == nil {
		return
	}
	fill := func(to *int, missing int, key string) {
		if _, given := c.places["session."+key]; !given {
			*to = missing
		}
	}
	visitors, uses := 10, 50
	if s.Login != nil {
		visitors, uses = 1, 1_000_000 // each one logs in
		s.Login.check(c, def, base)
	}
	fill(&s.Max, visitors, "max")
	fill(&s.MaxUses, uses, "max_uses")
	fill(&s.MaxErrors, 3, "max_errors")
	if _, given := c.places["session.max_age"]; !given {
		s.MaxAge = 50 * time.Minute
	}
	checkRanges(c, s, s.At, "session")
	if s.Start != "" && base != nil {
		if u, err := base.Parse(s.Start); err != nil || !def.InScope(u) {
			c.problemAt(s.At, "session.start", "%q is no URL of the site; see hosts and scope", s.Start)
		}
	}
	seen := map[string]bool{}
	for i, p := range s.Profiles {
		key := fmt.Sprintf("session.profiles[%d]", i)
		switch {
		case p.Name == "":
			c.problemAt(p.At, key+".name", "is missing; give any unique text")
		case seen[p.Name]:
			c.problemAt(p.At, key+".name", "%q is the name of another profile too", p.Name)
		}
		seen[p.Name] = true
		if len(p.Headers) == 0 {
			c.problemAt(p.At, key+".headers", "is missing; give the headers of the profile, such as User-Agent and Accept-Language")
		}
		c.checkHeaders(p.Headers, p.At, key+".headers")
	}
}

func (c *checker) checkRender(r *Render) {
	if r.URL == "" {
		if r.At.Line > 0 && !c.failedAt(r.At) {
			c.problemAt(r.At, "render.url", "is missing; give the address of the renderer, such as http://127.0.0.1:3000/render")
		}
		return
	}
	u, err := url.Parse(r.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil {
		c.problemAt(r.At, "render.url", "is not an http or https URL with a host, and without a password")
	}
	if len(r.Kinds) == 0 {
		r.Kinds = slices.Clone(kinds)
	}
	for _, k := range r.Kinds {
		c.oneOf(k, "", words[Render]("kinds"), r.At, "render.kinds")
	}
}
