package definition

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/text/encoding/htmlindex"

	"muster/internal/secret"
)

func (c *checker) checkRequest(def *Definition) {
	if def.Encoding != "" {
		if _, err := htmlindex.Get(def.Encoding); err != nil {
			c.problemAt(def.At, "encoding", "unknown charset %q; use a name such as windows-1251 or utf-8", def.Encoding)
		}
	}
	def.secretTexts(func(key, text string) string {
		if left := text[strings.LastIndex(text, "${")+1:]; secret.Refers(text) && !strings.Contains(left, "}") {
			c.problemAt(def.At, key, "has ${ without }; write ${NAME} or ${file:PATH}")
		}
		return text
	})
	for _, name := range sortedKeys(def.Cookies.Values) {
		if name == "" || strings.ContainsAny(name, "=; ") || !validCookie(name+def.Cookies.Values[name]) {
			c.problemAt(def.At, "cookies."+name, "invalid cookie: the name must be one word, and the value one line without semicolons")
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
			c.problemAt(def.At, "depends_on", "lists %q twice", s)
		}
	}
}

// validCookie reports whether browsers accept the value of a cookie.
func validCookie(value string) bool {
	return httpguts.ValidHeaderFieldValue(value) && !strings.Contains(value, ";")
}

// fixedHeaders are headers that the transport or another key sets.
var fixedHeaders = map[string]string{
	"Accept-Encoding": "the transport negotiates compression", "Cookie": "write cookies instead", "Connection": "the transport manages connections",
	"Content-Length": "the transport sets it", "Transfer-Encoding": "the transport sets it",
}

func (c *checker) checkHeaders(headers map[string]string, at Pos, key string) {
	for _, name := range sortedKeys(headers) {
		if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(headers[name]) {
			c.problemAt(at, key+"."+name, "is not a valid HTTP header")
		}
		if why := fixedHeaders[http.CanonicalHeaderKey(name)]; why != "" {
			c.problemAt(at, key+"."+name, "cannot be set: %s", why)
		}
	}
}

func (c *checker) checkSession(def *Definition, base *url.URL) {
	s := def.Session
	if s == nil {
		return
	}
	if s.Login != nil {
		s.Login.check(c, def, base)
	}
	if s.Start != "" {
		c.checkOwn(def, base, s.Start, s.At, "session.start")
	}
}

func (c *checker) checkExtractor(e *External) {
	if e.At.Line > 0 && (e.URL == "") == (e.Command == "") {
		c.problemAt(e.At, "extractor", "set either url, or command, a name in the setting sites.extractors")
	}
	c.checkServiceURL(e.URL, e.At, "extractor.url")
	if e.URL == "" && e.Key != "" {
		c.problemAt(e.At, "extractor.key", "needs extractor.url, which gets it")
	}
	for _, k := range e.Kinds {
		c.oneOf(k, "", words[External]("kinds"), e.At, "extractor.kinds")
	}
}

func (c *checker) checkServiceURL(text string, at Pos, key string) {
	u, err := url.Parse(text)
	if text != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil) {
		c.problemAt(at, key, "must be an http or https URL with a host and without a password")
	}
}

func (c *checker) checkRender(r *Render) {
	if r.When == "" {
		r.When = RenderNever
		if r.At.Line > 0 {
			r.When = RenderAlways
		}
	}
	c.oneOf(r.When, "", words[Render]("when"), r.At, "render.when")
	c.checkServiceURL(r.URL, r.At, "render.url")
	if r.URL == "" && r.Key != "" {
		c.problemAt(r.At, "render.key", "needs render.url, the renderer that gets it")
	}
	if len(r.Kinds) == 0 {
		r.Kinds = slices.Clone(kinds)
	}
	for _, k := range r.Kinds {
		c.oneOf(k, "", words[Render]("kinds"), r.At, "render.kinds")
	}
}
