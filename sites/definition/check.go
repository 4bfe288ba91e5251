package definition

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/text/encoding/htmlindex"

	"muster/internal/addressfilter"
	"muster/internal/nearest"
)

// siteName is what may stand in Redis keys and file names.
var siteName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)

const upper = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

var (
	types     = []string{TypeText, TypeHTML, TypeNumber, TypeInteger, TypePrice, TypeBool, TypeDate, TypeURL, TypeList, TypeObject}
	pageFacts = []string{"url", "requested_url", "title", "status", "fetched_at", "html", "site"}
	kinds     = []string{KindListing, KindDetail}
	formats   = []string{FormatHTML, FormatJSON}
)

// check finds what can be read but cannot work, and fills in what follows
// from the rest.
func (d *decoder) check(def *Definition) {
	switch {
	case def.Site == "":
		d.problemAt(def.At, "site", "is missing; give the site a name, best its host, such as shop.example")
	case !siteName.MatchString(def.Site):
		d.problemAt(def.At, "site", "%q cannot name a site; use letters, digits, dots, dashes and underscores", def.Site)
	}
	base, err := url.Parse(def.BaseURL)
	switch {
	case def.BaseURL == "":
		d.problemAt(def.At, "base_url", "is missing; give the URL that start URLs are relative to, such as https://shop.example")
		base = nil
	case err != nil || base.Host == "" || (base.Scheme != "http" && base.Scheme != "https"):
		d.problemAt(def.At, "base_url", "%q is not an http or https URL with a host", def.BaseURL)
		base = nil
	}
	for i, h := range def.Hosts {
		h = strings.ToLower(h)
		name, port := SplitHost(h)
		if n, err := strconv.ParseUint(port, 10, 16); strings.ContainsFunc(name, notInHost) || strings.Trim(name, "-.*") == "" || port != "" && (err != nil || n == 0) {
			d.problemAt(def.At, "hosts", "%q is not a host name; write it without scheme and path, such as shop.example, *.shop.example or shop.example:8443", h)
		}
		if port == "80" || port == "443" {
			h = name
		}
		def.Hosts[i] = h
	}
	if base != nil {
		if own := hostOf(base); !slices.Contains(def.Hosts, own) {
			def.Hosts = append(def.Hosts, own)
		}
	}
	if _, err := addressfilter.New(def.Addresses...); err != nil {
		d.problemAt(def.At, "allow_addresses", "%s", err)
	}
	d.checkStart(def, base)
	d.checkLinks(def.Listing.Links, "listing.links")
	d.checkLinks(def.Detail.Links, "detail.links")
	d.checkNext(def.Listing.Next)
	def.Listing.Format = d.oneOf(def.Listing.Format, FormatHTML, formats, def.Listing.At, "listing.format")
	def.Detail.Format = d.oneOf(def.Detail.Format, FormatHTML, formats, def.Detail.At, "detail.format")
	for _, kind := range kinds {
		if page := def.Page(kind); !page.HTML.IsZero() && page.Format != FormatJSON {
			d.problemAt(page.HTML.At, kind+".html", "is for HTML that stands in JSON; write format: json beside it")
		}
	}
	d.checkLocale(def.Locale, def.At, "locale")
	zone, err := time.LoadLocation(def.Timezone)
	if err != nil || def.Timezone == "Local" {
		d.problemAt(def.At, "timezone", "%q is no time zone; write it like Europe/Sofia or UTC", def.Timezone)
	}
	def.zone = zone
	d.checkRecords(def)
	d.checkRequest(def)
	d.checkSession(def, base)
	d.checkRender(&def.Render)
	d.checkBounds(def)
}

func (d *decoder) oneOf(got, missing string, allowed []string, at Pos, key string) string {
	if got == "" {
		return missing
	}
	if !slices.Contains(allowed, got) {
		if n := nearest.Word(got, allowed); n != "" {
			d.problemAt(at, key, "%q is unknown; did you mean %q?", got, n)
		} else {
			d.problemAt(at, key, "%q is unknown; use one of %s", got, strings.Join(allowed, ", "))
		}
	}
	return got
}

func (d *decoder) checkStart(def *Definition, base *url.URL) {
	if len(def.Start) == 0 {
		d.problemAt(def.At, "start", "is missing; list the pages to begin with, such as /catalogue")
	}
	for i := range def.Start {
		s := &def.Start[i]
		given := 0
		for _, ref := range []string{s.URL, s.Template, s.Sitemap} {
			if ref != "" {
				given++
			}
		}
		if given != 1 {
			d.problemAt(s.At, "start", "give one of url, template and sitemap")
			continue
		}
		if !s.Allow.IsZero() && s.Sitemap == "" {
			d.problemAt(s.Allow.At, "start.allow", "belongs to a sitemap; for other pages use scope.allow, or allow of a link")
		}
		s.As = d.oneOf(s.As, KindListing, kinds, s.At, "start.as")
		ref := s.URL + s.Sitemap
		if s.Template != "" {
			if !strings.Contains(s.Template, "{n}") {
				d.problemAt(s.At, "start.template", "%q has no {n} for the number", s.Template)
			}
			s.Step = max(s.Step, 1)
			if s.To < s.From {
				d.problemAt(s.At, "start.to", "is %d, below from, which is %d", s.To, s.From)
			}
			if (s.To-s.From)/s.Step >= 1_000_000 {
				d.problemAt(s.At, "start", "makes more than 1,000,000 pages; narrow from and to")
				s.To = s.From
			}
			ref = fill(s.Template, s.From)
		} else if s.From != 0 || s.To != 0 || s.Step != 0 {
			d.problemAt(s.At, "start", "from, to and step belong to a template; write template instead of url, with {n} in it")
		}
		if base == nil {
			continue
		}
		u, err := base.Parse(ref)
		if err != nil {
			d.problemAt(s.At, "start", "%q is not a URL: %s", ref, err)
		} else if !def.InScope(u) {
			d.problemAt(s.At, "start", "%s is outside the site's scope; add %q to hosts, or look at scope", u, hostOf(u))
		}
	}
}

func (d *decoder) checkLinks(links []Link, key string) {
	for i := range links {
		l := &links[i]
		if l.CSS.IsZero() == l.JSON.IsZero() && !d.failedAt(l.At) {
			d.problemAt(l.At, key, "give either css or json to find the links with")
		}
		if l.Template != "" && !strings.Contains(l.Template, "{value}") {
			d.problemAt(l.At, key+".template", "%q has no {value} for what was found", l.Template)
		}
		if l.CSS.Attr != "" && l.Attr == "" {
			l.Attr = l.CSS.Attr
		}
		l.As = d.oneOf(l.As, KindDetail, kinds, l.At, key+".as")
	}
}

func (d *decoder) checkNext(x *Next) {
	if x == nil {
		return
	}
	var given []string
	for name, set := range map[string]bool{"css": !x.CSS.IsZero(), "rel": x.Rel != "", "json": !x.JSON.IsZero(), "template": x.Template != "", "param": x.Param != ""} {
		if set {
			given = append(given, name)
		}
	}
	slices.Sort(given)
	const key = "listing.next"
	switch {
	case len(given) == 0 && !d.failedAt(x.At):
		d.problemAt(x.At, key, "says no way to the next page; give one of css, rel, json, template and param")
	case len(given) > 1:
		d.problemAt(x.At, key, "has %s; give only one of them", strings.Join(given, " and "))
	}
	if x.Rel != "" && x.Rel != "next" {
		d.problemAt(x.At, key+".rel", `%q is unknown; the only one is "next"`, x.Rel)
	}
	if x.Template != "" && !strings.Contains(x.Template, "{n}") {
		d.problemAt(x.At, key+".template", "%q has no {n} for the number", x.Template)
	}
	if x.CSS.Attr != "" && x.Attr == "" {
		x.Attr = x.CSS.Attr
	}
	counted := x.Template != "" || (x.Param != "" && x.Cursor.IsZero())
	if !counted && (x.From != nil || x.To != 0 || x.Step != 0) {
		d.problemAt(x.At, key, "from, to and step belong to template, or to param without cursor")
	}
	if !x.Cursor.IsZero() && x.Param == "" {
		d.problemAt(x.At, key+".cursor", "needs param, the query parameter that takes it")
	}
	if x.Step < 0 || x.To < 0 {
		d.problemAt(x.At, key, "from, to and step cannot be negative")
	}
	x.Step = max(x.Step, 1)
}

// failedAt tells whether the value at this place has been complained about
// already, so that one mistake is not told twice.
func (d *decoder) failedAt(at Pos) bool {
	return slices.ContainsFunc(d.problems, func(p *Problem) bool { return p.At.Line == at.Line })
}

func (d *decoder) checkRecords(def *Definition) {
	if len(def.Records) == 0 && !d.failedKey("records") {
		d.problemAt(def.At, "records", "is missing; name at least one kind of record and its fields")
	}
	for i := range def.Records {
		r := &def.Records[i]
		key := "records." + r.Name
		if !siteName.MatchString(r.Name) {
			d.problemAt(r.At, key, "%q cannot name a record; use letters, digits, dots, dashes and underscores", r.Name)
		}
		r.From = d.oneOf(r.From, KindDetail, kinds, r.At, key+".from")
		r.OnInvalid = d.oneOf(r.OnInvalid, OnInvalidDrop, []string{OnInvalidDrop, OnInvalidKeep, OnInvalidFail}, r.At, key+".on_invalid")
		page := def.Page(r.From)
		if !r.Each.IsZero() && !r.EachJSON.IsZero() {
			d.problemAt(r.At, key, "has each and each_json; give only one of them")
		}
		if !r.EachJSON.IsZero() && page.Format != FormatJSON {
			d.problemAt(r.EachJSON.At, key+".each_json", "needs format: json on the %s page", r.From)
		}
		if len(r.Fields) == 0 && !d.failedKey(key+".fields") {
			d.problemAt(r.At, key+".fields", "is missing; name at least one field")
		}
		d.checkFields(def, r.Fields, page.Format, key+".fields")
		names := make([]string, len(r.Fields))
		for i, f := range r.Fields {
			names[i] = f.Name
		}
		d.checkNames(r.Key, append(names, "_url"), r.At, key+".key")
		d.checkNames(r.Watch, names, r.At, key+".watch")
	}
}

// checkNames finds names of fields that there are not.
func (d *decoder) checkNames(given, names []string, at Pos, key string) {
	for _, k := range given {
		if slices.Contains(names, k) {
			continue
		}
		if n := nearest.Word(k, names); n != "" {
			d.problemAt(at, key, "no field %q; did you mean %q?", k, n)
		} else {
			d.problemAt(at, key, "no field %q; there are %s", k, strings.Join(names, ", "))
		}
	}
}

func (d *decoder) failedKey(prefix string) bool {
	return slices.ContainsFunc(d.problems, func(p *Problem) bool { return strings.HasPrefix(p.Key, prefix) })
}

func (d *decoder) checkFields(def *Definition, fields Fields, format, key string) {
	for i := range fields {
		f := &fields[i]
		key := key + "." + f.Name
		if strings.HasPrefix(f.Name, "_") {
			d.problemAt(f.At, key, "names that begin with _ are taken; choose another")
		}
		missing := TypeText
		if len(f.Fields) > 0 {
			missing = TypeObject
		}
		f.Type = d.fieldType(f.Type, missing, f.At, key+".type")
		f.Of = d.fieldType(f.Of, missing, f.At, key+".of")
		if f.Of != missing && f.Type != TypeList {
			d.problemAt(f.At, key+".of", "belongs to type: list")
		}
		if f.Of == TypeList {
			d.problemAt(f.At, key+".of", "a list of lists is not supported; use a list of objects")
		}
		if f.Locale == "" {
			f.Locale = def.Locale
		} else {
			d.checkLocale(f.Locale, f.At, key+".locale")
		}
		if f.Currency = strings.ToUpper(f.Currency); f.Currency != "" && (len(f.Currency) != 3 || strings.Trim(f.Currency, upper) != "") {
			d.problemAt(f.At, key+".currency", "%q is no ISO 4217 code, such as EUR", f.Currency)
		}
		for _, l := range f.Layout {
			if time.Date(2033, 11, 22, 0, 0, 0, 0, time.UTC).Format(l) == l {
				d.problemAt(f.At, key+".layout", "%q has no day, month or year; write the layout as it would write 2 January 2006, such as 2006-01-02", l)
			}
		}
		object := f.Type == TypeObject || (f.Type == TypeList && f.Of == TypeObject)
		switch {
		case object && len(f.Fields) == 0 && format != FormatJSON:
			d.problemAt(f.At, key, "an object needs fields of its own")
		case !object && len(f.Fields) > 0:
			d.problemAt(f.At, key, "only an object has fields; write type: object, or type: list with of: object")
		}
		if len(f.Fields) > 0 {
			within := format
			if slices.ContainsFunc(f.Any, func(s Source) bool { return s.JSONLD != "" || s.Microdata != "" || !s.JSON.IsZero() }) {
				within = FormatJSON // its fields are looked for in what that yields
			}
			d.checkFields(def, f.Fields, within, key+".fields")
		}
		if len(f.Any) == 0 && f.Type != TypeObject && !d.failedAt(f.At) && !d.failedKey(key) {
			d.problemAt(f.At, key, noPlace)
		}
		d.checkChecks(f, key)
		if f.Min != nil && f.Max != nil && *f.Min > *f.Max {
			d.problemAt(f.At, key, "min is above max")
		}
		for j := range f.Any {
			d.checkSource(&f.Any[j], f, format, key)
		}
	}
}

// fieldType checks the name of a type.
func (d *decoder) fieldType(got, missing string, at Pos, key string) string {
	if got == "floor" {
		d.problemAt(at, key, `"floor" is no longer a type; use type: integer with a regex, as in Recipes of sites/README.md`)
		return TypeInteger
	}
	return d.oneOf(got, missing, types, at, key)
}

// noPlace is what a source that names no place is told.
const noPlace = "says no place to take the value from; give one of css, xpath, json, jsonld, microdata, meta, label, column, page, value, exists and regex"

func (d *decoder) checkSource(s *Source, f *Field, format, key string) {
	var given []string
	for _, k := range []struct {
		name string
		set  bool
	}{{"css", !s.CSS.IsZero()}, {"xpath", !s.XPath.IsZero()}, {"json", !s.JSON.IsZero() && s.CSS.IsZero() && s.XPath.IsZero()},
		{"jsonld", s.JSONLD != ""}, {"microdata", s.Microdata != ""}, {"meta", s.Meta != ""}, {"label", s.Label != ""},
		{"column", s.Column != ""}, {"page", s.Page != ""}, {"value", s.Value != nil}, {"exists", !s.Exists.IsZero()}} {
		if k.set {
			given = append(given, k.name)
		}
	}
	switch {
	case len(given) == 0 && s.Regex.IsZero() && s.Attr == "" && s.Take == "":
		if !d.failedAt(s.At) {
			d.problemAt(s.At, key, noPlace)
		}
	case len(given) > 1:
		d.problemAt(s.At, key, "has %s in one source; give only one, or list them under any", strings.Join(given, " and "))
	}
	if s.CSS.IsZero() {
		s.CSS, s.XPath = s.XPath.Selector, XPath{}
	}
	if s.CSS.Attr != "" && s.Attr == "" {
		s.Attr = s.CSS.Attr
	}
	if s.Attr != "" && s.Take != "" && s.Take != "attr" {
		d.problemAt(s.At, key+".take", "%q and attr exclude each other", s.Take)
	}
	s.Take = d.oneOf(s.Take, "", []string{TakeText, TakeOwnText, TakeHTML, TakeInnerHTML, TakeImage, "attr"}, s.At, key+".take")
	if s.Take == "" && (f.Type == TypeHTML || f.Of == TypeHTML && f.Type == TypeList) {
		s.Take = TakeInnerHTML
	}
	if s.Page != "" {
		d.oneOf(s.Page, "", pageFacts, s.At, key+".page")
	}
	s.Scope = d.oneOf(s.Scope, "", []string{"record", "page"}, s.At, key+".scope")
	if !s.JSON.IsZero() && format != FormatJSON && s.CSS.IsZero() && len(given) == 1 {
		d.problemAt(s.JSON.At, key+".json", "needs format: json on the page; for JSON that stands in a script element or an attribute give css too")
	}
	if s.Split != "" && s.Join != nil {
		d.problemAt(s.At, key, "split and join exclude each other")
	}
	for name, text := range map[string]string{"jsonld": s.JSONLD, "microdata": s.Microdata} {
		if text == "" {
			continue
		}
		typ, rest, found := strings.Cut(text, ".")
		path, err := ParsePath(rest)
		switch {
		case !found || typ == "" || rest == "" || rest[0] == '.':
			d.problemAt(s.At, key+"."+name, "%q wants a type and a path; write it like Product.offers.price or *.name", text)
		case err != nil:
			d.problemAt(s.At, key+"."+name, "%s", err)
		}
		s.typ, s.path = typ, path
	}
	for _, w := range s.Replace {
		if w.Pattern.IsZero() && !d.failedAt(w.At) {
			d.problemAt(w.At, key+".replace", "pattern is missing")
		}
	}
}

// notInHost tells whether a character cannot stand in the name of a host.
func notInHost(r rune) bool {
	return !unicode.IsLetter(r) && !unicode.IsMark(r) && !unicode.IsDigit(r) && !strings.ContainsRune("-._*", r)
}

func (d *decoder) checkRequest(def *Definition) {
	if def.Encoding != "" {
		if _, err := htmlindex.Get(def.Encoding); err != nil {
			d.problemAt(def.At, "encoding", "%q is no known charset; write it like windows-1251 or utf-8", def.Encoding)
		}
	}
	d.checkCookies(def.Cookies, def.At)
	d.checkHeaders(def.Headers, def.At, "headers")
	if !httpguts.ValidHeaderFieldValue(def.UserAgent) {
		d.problemAt(def.At, "user_agent", "is not a valid HTTP header value")
	}
	for i, s := range def.DependsOn {
		if s == def.Site {
			d.problemAt(def.At, "depends_on", "a site cannot depend on itself")
		}
		if slices.Index(def.DependsOn, s) != i {
			d.problemAt(def.At, "depends_on", "names %q twice", s)
		}
	}
}

// ownHeaders are those that belong to the transport or to another key.
var ownHeaders = map[string]string{
	"Accept-Encoding": "the transport unpacks what it has asked for itself", "Cookie": "write cookies instead", "Connection": "the transport keeps connections itself",
	"Content-Length": "pages are asked for without a body", "Transfer-Encoding": "pages are asked for without a body",
}

func (d *decoder) checkHeaders(headers map[string]string, at Pos, key string) {
	for _, name := range sortedKeys(headers) {
		if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(headers[name]) {
			d.problemAt(at, key+"."+name, "is not a valid HTTP header")
		}
		if why, ok := ownHeaders[http.CanonicalHeaderKey(name)]; ok {
			d.problemAt(at, key+"."+name, "cannot be set: %s", why)
		}
	}
}

// checkSession checks what says how long a visitor lives, and fills in what
// is not said.
func (d *decoder) checkSession(def *Definition, base *url.URL) {
	s := def.Session
	if s == nil {
		return
	}
	fill := func(to *int, missing int, key string) {
		if _, given := d.places["session."+key]; !given {
			*to = missing
		}
		if *to < 1 || *to > 1_000_000 {
			d.problemAt(s.At, "session."+key, "is %d; must be from 1 to 1000000", *to)
		}
	}
	fill(&s.Max, 10, "max")
	fill(&s.MaxUses, 50, "max_uses")
	fill(&s.MaxErrors, 3, "max_errors")
	if s.Max > 1000 {
		d.problemAt(s.At, "session.max", "is %d; must be from 1 to 1000", s.Max)
	}
	if _, given := d.places["session.max_age"]; !given {
		s.MaxAge = 50 * time.Minute
	}
	if s.MaxAge < time.Second || s.MaxAge > 30*24*time.Hour {
		d.problemAt(s.At, "session.max_age", "is %s; must be from 1s to 720h", s.MaxAge)
	}
	if s.Start != "" && base != nil {
		if u, err := base.Parse(s.Start); err != nil || !def.InScope(u) {
			d.problemAt(s.At, "session.start", "%q is no URL of the site; see hosts and scope", s.Start)
		}
	}
	seen := map[string]bool{}
	for i, p := range s.Profiles {
		key := fmt.Sprintf("session.profiles[%d]", i)
		switch {
		case p.Name == "":
			d.problemAt(p.At, key+".name", "is missing; any text that tells it from others")
		case seen[p.Name]:
			d.problemAt(p.At, key+".name", "%q is the name of another profile too", p.Name)
		}
		seen[p.Name] = true
		if len(p.Headers) == 0 {
			d.problemAt(p.At, key+".headers", "is missing; give the headers of the profile, such as User-Agent and Accept-Language")
		}
		d.checkHeaders(p.Headers, p.At, key+".headers")
	}
}

func (d *decoder) checkRender(r *Render) {
	if r.URL == "" {
		if r.At.Line > 0 && !d.failedAt(r.At) {
			d.problemAt(r.At, "render.url", "is missing; give the address of the renderer, such as http://127.0.0.1:3000/render")
		}
		return
	}
	u, err := url.Parse(r.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil {
		d.problemAt(r.At, "render.url", "is not an http or https URL with a host, and without a password")
	}
	if len(r.Kinds) == 0 {
		r.Kinds = slices.Clone(kinds)
	}
	for _, k := range r.Kinds {
		d.oneOf(k, "", kinds, r.At, "render.kinds")
	}
}

func (d *decoder) checkBounds(def *Definition) {
	bound := func(at Pos, key string, got, low, high int64) {
		if got < low || got > high {
			d.problemAt(at, key, "is %d; must be from %d to %d", got, low, high)
		}
	}
	span := func(at Pos, key string, got, low, high time.Duration) {
		if got < low || got > high {
			d.problemAt(at, key, "is %s; must be from %s to %s", got, low, high)
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
	def.Proxy.Fallback = d.oneOf(def.Proxy.Fallback, "", []string{FallbackFail, FallbackWait, FallbackDirect}, def.Proxy.At, "proxy.fallback")
	span(def.Render.At, "render.timeout", def.Render.Timeout, 100*time.Millisecond, time.Hour)
	span(def.Proxy.At, "proxy.wait", def.Proxy.Wait, 0, 24*time.Hour)
}
