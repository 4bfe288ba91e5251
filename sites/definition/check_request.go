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
		if *to < 1 || *to > 1_000_000 {
			c.problemAt(s.At, "session."+key, "is %d; must be from 1 to 1000000", *to)
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
	if s.Max > 1000 {
		c.problemAt(s.At, "session.max", "is %d; must be from 1 to 1000", s.Max)
	}
	if _, given := c.places["session.max_age"]; !given {
		s.MaxAge = 50 * time.Minute
	}
	if s.MaxAge < time.Second || s.MaxAge > 30*24*time.Hour {
		c.problemAt(s.At, "session.max_age", "is %s; must be from 1s to 720h", s.MaxAge)
	}
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
		c.oneOf(k, "", kinds, r.At, "render.kinds")
	}
}

func (c *checker) checkBounds(def *Definition) {
	bound := func(at Pos, key string, got, low, high int64) {
		if got < low || got > high {
			c.problemAt(at, key, "is %d; must be from %d to %d", got, low, high)
		}
	}
	span := func(at Pos, key string, got, low, high time.Duration) {
		if got < low || got > high {
			c.problemAt(at, key, "is %s; must be from %s to %s", got, low, high)
		}
	}
	p, l, r := &def.Politeness, &def.Limits, &def.Retries
	bound(p.At, "politeness.max_per_domain", int64(p.MaxPerDomain), 1, 1000)
	span(p.At, "politeness.delay", p.Delay, 0, time.Hour)
	span(p.At, "politeness.crawl_delay_max", p.CrawlDelayMax, 0, time.Hour)
	span(p.At, "politeness.retry_after_max", p.RetryAfterMax, 0, 24*time.Hour)
	bound(l.At, "limits.max_pages", int64(l.MaxPages), 1, 100_000_000)
	bound(l.At, "limits.max_depth", int64(l.MaxDepth), 0, 1_000_000)
	bound(l.At, "limits.max_bytes", int64(l.MaxBytes), 1<<10, 1<<30)
	bound(l.At, "limits.max_records", int64(l.MaxRecords), 0, 1_000_000_000)
	bound(l.At, "limits.max_total_bytes", int64(l.MaxTotalBytes), 0, 1<<45)
	bound(l.At, "limits.redirects", int64(l.Redirects), 0, 20)
	span(l.At, "limits.page_timeout", l.PageTimeout, 100*time.Millisecond, time.Hour)
	span(l.At, "limits.max_duration", l.MaxDuration, 0, 30*24*time.Hour)
	bound(r.At, "retries.attempts", int64(r.Attempts), 0, 100)
	span(r.At, "retries.base", r.Base, 0, time.Hour)
	span(r.At, "retries.cap", r.Cap, 0, 24*time.Hour)
	span(r.At, "retries.stall_max", r.StallMax, 0, 7*24*time.Hour)
	bound(def.Blocks.At, "blocks.min_text", int64(def.Blocks.MinText), 0, 1<<20)
	def.Proxy.Fallback = c.oneOf(def.Proxy.Fallback, "", []string{FallbackFail, FallbackWait, FallbackDirect}, def.Proxy.At, "proxy.fallback")
	span(def.Render.At, "render.timeout", def.Render.Timeout, 100*time.Millisecond, time.Hour)
	span(def.Proxy.At, "proxy.wait", def.Proxy.Wait, 0, 24*time.Hour)
}
