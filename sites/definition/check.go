package definition

import (
	"fmt"
	"net"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"muster/internal/addressfilter"
	"muster/internal/nearest"
	"muster/internal/yamlstrict"
	"muster/tasks"
)

// siteName matches names that are safe in Redis keys and file names.
var siteName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)

var kinds = []string{KindListing, KindDetail}

// checker collects the problems of a parsed definition.
type checker struct {
	file     string
	places   map[string]yamlstrict.Place
	problems Problems
}

// problemAt adds a problem of a key. Its position is the value's position in the file, or at if that is more precise or the key
// is missing.
func (c *checker) problemAt(at Pos, key, format string, args ...any) {
	file := c.file
	if w, ok := c.places[key]; ok && (w.File != file || w.At.Line > at.Line || w.At.Line == at.Line && w.At.Col > at.Col) {
		at, file = w.At, w.File
	}
	c.problems = append(c.problems, &Problem{File: file, At: at, Key: key, Text: fmt.Sprintf(format, args...)})
}

// check validates the definition and sets derived fields.
func (c *checker) check(def *Definition) {
	base := c.checkSite(def)
	if def.Schedule != "" {
		if _, err := tasks.NextTick(def.Schedule, time.Now()); err != nil {
			c.problemAt(def.At, "schedule", "%s", err)
		}
	}
	c.checkRender(&def.Render)
	c.checkExtractor(&def.Extractor)
	c.checkStart(def, base)
	c.checkNext(def.Listing.Next)
	for _, kind := range kinds {
		page := def.Page(kind)
		c.checkLinks(def, page.Links, def.recordFormat(kind), kind+".links")
		page.Format = c.oneOf(page.Format, FormatHTML, words[Detail]("format"), page.At, kind+".format")
		if !page.HTML.IsZero() && page.Format != FormatJSON {
			c.problemAt(page.HTML.At, kind+".html", "is for HTML inside JSON; add format: json")
		}
	}
	c.checkLocale(def.Locale, def.At, "locale")
	zone, err := time.LoadLocation(def.Timezone)
	if err != nil || def.Timezone == "Local" {
		c.problemAt(def.At, "timezone", "unknown time zone %q; use an IANA name such as Europe/Sofia or UTC", def.Timezone)
	}
	def.zone = zone
	c.checkRecords(def)
	c.checkRequest(def)
	c.checkSession(def, base)
	c.checkBounds(def)
}

// checkSite checks the name and the hosts of a site. It returns the base URL, or nil if it is invalid.
func (c *checker) checkSite(def *Definition) *url.URL {
	switch {
	case def.Site == "":
		c.problemAt(def.At, "site", "is missing; set it, for example to the host, such as shop.example")
	case !siteName.MatchString(def.Site):
		c.problemAt(def.At, "site", "invalid name %q; use letters, digits, dots, dashes and underscores", def.Site)
	}
	base, err := url.Parse(def.BaseURL)
	switch {
	case def.BaseURL == "":
		c.problemAt(def.At, "base_url", "is missing; set the URL that start URLs are relative to, such as https://shop.example")
		base = nil
	case err != nil || base.Host == "" || (base.Scheme != "http" && base.Scheme != "https"):
		c.problemAt(def.At, "base_url", "%q is not an http or https URL with a host", def.BaseURL)
		base = nil
	case base.User != nil:
		c.problemAt(def.At, "base_url", withLogin)
	}
	for i, h := range def.Hosts {
		name, port := SplitHost(strings.ToLower(h))
		if n, err := strconv.ParseUint(port, 10, 16); strings.ContainsFunc(name, notInHost) || strings.Trim(name, "-.*") == "" || port != "" && (err != nil || n == 0) {
			c.problemAt(def.At, "hosts", "%q is not a host name; write it without scheme and path, such as shop.example, *.shop.example or shop.example:8443", h)
		}
		wild := strings.HasPrefix(name, "*.")
		if h = asciiHost(strings.TrimPrefix(name, "*.")); wild {
			h = "*." + h
		}
		if port != "" && port != "80" && port != "443" {
			h = net.JoinHostPort(h, port)
		}
		def.Hosts[i] = h
	}
	if base != nil {
		if own := hostOf(base); !slices.Contains(def.Hosts, own) {
			def.Hosts = append(def.Hosts, own)
		}
	}
	if _, err := addressfilter.New(def.Addresses...); err != nil {
		c.problemAt(def.At, "allow_addresses", "%s", err)
	}
	return base
}

// withLogin is the problem of a URL with a login, which would be in the records.
const withLogin = "must not contain a login; send it as the header Authorization; see headers"

func (c *checker) oneOf(got, missing string, allowed []string, at Pos, key string) string {
	if got == "" {
		return missing
	}
	if !slices.Contains(allowed, got) {
		if n := nearest.Word(got, allowed); n != "" {
			c.problemAt(at, key, "%q is unknown; did you mean %q?", got, n)
		} else {
			c.problemAt(at, key, "%q is unknown; use one of %s", got, strings.Join(allowed, ", "))
		}
	}
	return got
}

func (c *checker) checkStart(def *Definition, base *url.URL) {
	if len(def.Start) == 0 {
		c.problemAt(def.At, "start", "is missing; list the start pages, such as /catalogue")
	}
	for i := range def.Start {
		s := &def.Start[i]
		if len(keysIn(map[string]bool{"url": s.URL != "", "template": s.Template != "", "sitemap": s.Sitemap != ""})) != 1 {
			c.problemAt(s.At, "start", "give one of url, template and sitemap")
			continue
		}
		if !s.Allow.IsZero() && s.Sitemap == "" {
			c.problemAt(s.Allow.At, "start.allow", "belongs to a sitemap; for other pages use scope.allow, or allow of a link")
		}
		s.As = c.oneOf(s.As, KindListing, words[Start]("as"), s.At, "start.as")
		s.checkPost(c, def)
		ref := s.URL + s.Sitemap
		if s.Template != "" {
			if !s.hasNumber() {
				c.problemAt(s.At, "start.template", "%q has no {n} for the number", s.Template)
			}
			s.Step = max(s.Step, 1)
			if s.To < s.From {
				c.problemAt(s.At, "start.to", "is %d, less than from (%d)", s.To, s.From)
			}
			if (s.To-s.From)/s.Step >= 1_000_000 {
				c.problemAt(s.At, "start", "produces more than 1,000,000 pages; narrow from and to")
				s.To = s.From
			}
			ref = fill(s.Template, s.From)
		} else if s.From != 0 || s.To != 0 || s.Step != 0 {
			c.problemAt(s.At, "start", "from, to and step require template; replace url by a template with {n}")
		}
		c.checkOwn(def, base, ref, s.At, "start")
	}
}

// checkOwn checks a reference to a page of the site. base is nil if it is invalid.
func (c *checker) checkOwn(def *Definition, base *url.URL, ref string, at Pos, key string) {
	if base == nil {
		return
	}
	if u, err := base.Parse(ref); err != nil {
		c.problemAt(at, key, "invalid URL %q: %s", ref, err)
	} else if u.User != nil && base.User == nil {
		c.problemAt(at, key, withLogin)
	} else if !def.InScope(u) {
		c.problemAt(at, key, "%s is outside the site's scope; add %q to hosts, or check scope", u, hostOf(u))
	}
}

func (c *checker) checkLinks(def *Definition, links []Link, format, key string) {
	for i := range links {
		l := &links[i]
		if l.CSS.IsZero() == l.JSON.IsZero() && !c.failedAt(l.At) {
			c.problemAt(l.At, key, "set either css or json to select the links")
		}
		if l.Template != "" && !strings.Contains(l.Template, "{value}") {
			c.problemAt(l.At, key+".template", "%q does not contain {value}", l.Template)
		}
		l.As = c.oneOf(l.As, KindDetail, words[Link]("as"), l.At, key+".as")
		c.checkCarry(def, l, format, key)
	}
}

// checkCarry checks the fields that a link passes to its page.
func (c *checker) checkCarry(def *Definition, l *Link, format, key string) {
	each := !l.Each.IsZero() || !l.EachJSON.IsZero()
	switch {
	case !l.Each.IsZero() && !l.EachJSON.IsZero():
		c.problemAt(l.At, key, "has each and each_json; give only one of them")
	case !l.EachJSON.IsZero() && format != FormatJSON:
		c.problemAt(l.EachJSON.At, key+".each_json", "needs format: json on the page")
	case len(l.Carry) > 0 && !each:
		c.problemAt(l.At, key+".carry", "requires each or each_json, which select the elements with the link and the values")
	}
	c.checkFields(def, l.Carry, format, key+".carry")
	for _, f := range l.Carry {
		if f.Type != TypeText || f.Required || f.Default != nil {
			c.problemAt(f.At, key+".carry."+f.Name, "is a string; set type, required and default in the record field that uses it")
		}
	}
}

func (c *checker) checkNext(x *Next) {
	if x == nil {
		return
	}
	given := keysIn(map[string]bool{"css": !x.CSS.IsZero(), "rel": x.Rel != "", "json": !x.JSON.IsZero(), "template": x.Template != "", "param": x.Param != ""})
	const key = "listing.next"
	switch {
	case len(given) == 0 && !c.failedAt(x.At):
		c.problemAt(x.At, key, "is empty; set one of css, rel, json, template and param")
	case len(given) > 1:
		c.problemAt(x.At, key, "has %s; give only one of them", strings.Join(given, " and "))
	}
	if x.Rel != "" && x.Rel != "next" {
		c.problemAt(x.At, key+".rel", `%q is unknown; the only one is "next"`, x.Rel)
	}
	if x.Template != "" && !strings.Contains(x.Template, "{n}") {
		c.problemAt(x.At, key+".template", "%q does not contain {n}", x.Template)
	}
	counted := x.Template != "" || (x.Param != "" && x.Cursor.IsZero())
	if !counted && (x.From != nil || x.To != 0 || x.Step != 0) {
		c.problemAt(x.At, key, "from, to and step belong to template, or to param without cursor")
	}
	if !x.Cursor.IsZero() && x.Param == "" {
		c.problemAt(x.At, key+".cursor", "requires param, the query parameter for the cursor")
	}
	if x.Step < 0 || x.To < 0 {
		c.problemAt(x.At, key, "from, to and step cannot be negative")
	}
	x.Step = max(x.Step, 1)
}

// failedAt reports whether a line already has a problem, so that a mistake is reported once.
func (c *checker) failedAt(at Pos) bool {
	return slices.ContainsFunc(c.problems, func(p *Problem) bool { return p.At.Line == at.Line })
}

// failedKey reports whether a key with the prefix has a problem.
func (c *checker) failedKey(prefix string) bool {
	return slices.ContainsFunc(c.problems, func(p *Problem) bool { return strings.HasPrefix(p.Key, prefix) })
}

// notInHost reports whether a host name cannot contain a character.
func notInHost(r rune) bool {
	return !unicode.IsLetter(r) && !unicode.IsMark(r) && !unicode.IsDigit(r) && !strings.ContainsRune("-._*", r)
}

// Tags of struct fields restrict the values of their keys: oneof lists the words, range has the minimum and the maximum of a
// number. The checks and docs/reference/site-definition.md use them.

// words returns the words in the oneof tag of a key of T.
func words[T any](key string) []string {
	for f := range reflect.TypeFor[T]().Fields() {
		if f.Tag.Get("yaml") == key {
			return strings.Fields(f.Tag.Get("oneof"))
		}
	}
	panic("definition: no key " + key)
}

// checkBounds checks the ranges of numbers in all sections.
func (c *checker) checkBounds(def *Definition) {
	def.Proxy.Fallback = c.oneOf(def.Proxy.Fallback, "", words[Proxy]("fallback"), def.Proxy.At, "proxy.fallback")
	checkRanges(c, &def.Politeness, def.Politeness.At, "politeness")
	checkRanges(c, &def.Limits, def.Limits.At, "limits")
	checkRanges(c, &def.Retries, def.Retries.At, "retries")
	checkRanges(c, &def.Blocks, def.Blocks.At, "blocks")
	checkRanges(c, &def.Proxy, def.Proxy.At, "proxy")
	checkRanges(c, &def.Render, def.Render.At, "render")
	checkRanges(c, &def.Extractor, def.Extractor.At, "extractor")
}

// checkRanges checks the numbers of a section, a pointer to a struct, against their range tags.
func checkRanges(c *checker, section any, at Pos, key string) {
	for f, v := range reflect.ValueOf(section).Elem().Fields() {
		low, high, ok := bounds(f)
		if !ok || v.Int() >= low && v.Int() <= high {
			continue
		}
		least, most, _ := strings.Cut(f.Tag.Get("range"), " ")
		c.problemAt(at, key+"."+f.Tag.Get("yaml"), "is %v; must be from %s to %s", v.Interface(), least, most)
	}
}

// bounds returns the range tag of a field, if it has one.
func bounds(f reflect.StructField) (low, high int64, ok bool) {
	least, most, ok := strings.Cut(f.Tag.Get("range"), " ")
	if !ok {
		return 0, 0, false
	}
	return number(f.Type, least), number(f.Type, most), true
}

// number parses a bound of a type. It panics if the tag is invalid; tests check all tags.
func number(t reflect.Type, text string) int64 {
	v, d := reflect.New(t), decoder()
	if d.Decode([]byte(text), v.Interface()); len(d.Problems) > 0 {
		panic("definition: " + text + " is not of type " + t.String())
	}
	return v.Elem().Int()
}
