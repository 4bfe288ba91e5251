// Package definition reads site definitions: YAML files that describe how to scrape a site.
//
// A definition lists the start pages, the links to follow, the records to extract from each kind of page, and the limits on
// requests. Parsing is strict: unknown keys, invalid selectors and regular expressions, and other mistakes are errors with file,
// line, column and a remedy, and all are reported at once. example.yaml in this directory explains every key.
package definition

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"

	"muster/internal/yamlstrict"
)

//go:generate go test -run TestKeysPage -update .

// A Definition describes one site. It is immutable once loaded and may be shared.
type Definition struct {
	At          Pos
	Site        string            `yaml:"site"`
	Description string            `yaml:"description"`
	BaseURL     string            `yaml:"base_url"`
	Hosts       []string          `yaml:"hosts"`
	Addresses   []string          `yaml:"allow_addresses"`
	Scope       Scope             `yaml:"scope"`
	Schedule    string            `yaml:"schedule"`
	Start       []Start           `yaml:"start"`
	Listing     Listing           `yaml:"listing"`
	Detail      Detail            `yaml:"detail"`
	Records     Records           `yaml:"records"`
	Locale      string            `yaml:"locale"`
	Timezone    string            `yaml:"timezone"`
	Encoding    string            `yaml:"encoding"`
	UserAgent   string            `yaml:"user_agent"`
	Headers     map[string]string `yaml:"headers"`
	Cookies     Cookies           `yaml:"cookies"`
	Session     *Session          `yaml:"session"`
	Politeness  Politeness        `yaml:"politeness"`
	Limits      Limits            `yaml:"limits"`
	Retries     Retries           `yaml:"retries"`
	Blocks      Blocks            `yaml:"blocks"`
	Proxy       Proxy             `yaml:"proxy"`
	Render      Render            `yaml:"render"`
	Refetch     Refetch           `yaml:"refetch"`
	Extractor   External          `yaml:"extractor"`
	DependsOn   []string          `yaml:"depends_on"`

	file    string
	source  []byte
	places  map[string]yamlstrict.Place
	shipped bool
	rebase  *url.URL // replaces BaseURL
	zone    *time.Location
}

// Scope restricts the URLs of the site, in addition to its hosts. It applies to every link and again after every redirect.
type Scope struct {
	At         Pos
	Allow      []Pattern `yaml:"allow"`
	Deny       []Pattern `yaml:"deny"`
	DropParams []string  `yaml:"drop_params"`
}

// Start is a start page, a template of start pages, or a sitemap.
type Start struct {
	At       Pos
	URL      string  `yaml:"url"`
	Template string  `yaml:"template"`
	Sitemap  string  `yaml:"sitemap"`
	Allow    Pattern `yaml:"allow"`
	From     int     `yaml:"from"`
	To       int     `yaml:"to"`
	Step     int     `yaml:"step"`
	As       string  `yaml:"as" oneof:"listing detail"`

	// Method and the body are for pages that are fetched by POST.
	Method string            `yaml:"method" oneof:"GET POST"`
	Form   map[string]string `yaml:"form"`
	JSON   JSONText          `yaml:"json"`
}

// Listing describes pages that link to other pages.
type Listing struct {
	Next *Next `yaml:"next"`
	Detail
}

// Detail describes pages with the data of one item. HTML is the path of the HTML in a page that is JSON.
type Detail struct {
	At       Pos
	Links    []Link     `yaml:"links"`
	MustHave []Selector `yaml:"must_have"`
	Format   string     `yaml:"format" oneof:"html json"`
	HTML     Path       `yaml:"html"`
}

// Kinds of page.
const (
	KindListing = "listing"
	KindDetail  = "detail"
	KindSitemap = "sitemap" // lists detail pages and other sitemaps
	KindFile    = "file"    // the value of a field of type file
)

// IsRaw reports whether the pages of a kind are read as they are: any content type, no redirects in markup.
func IsRaw(kind string) bool { return kind == KindSitemap || kind == KindFile }

// Formats of a page.
const (
	FormatHTML = "html"
	FormatJSON = "json"
)

// Link selects pages to fetch.
type Link struct {
	At       Pos
	CSS      Selector `yaml:"css"`
	Attr     string   `yaml:"attr"`
	JSON     Path     `yaml:"json"`
	Template string   `yaml:"template"`
	Allow    Pattern  `yaml:"allow"`
	Deny     Pattern  `yaml:"deny"`
	As       string   `yaml:"as" oneof:"listing detail"`

	// Carry has strings that the link passes to sources with Carry on the linked page. Like the link, they are searched in each
	// element of Each or value of EachJSON.
	Each     Selector `yaml:"each"`
	EachJSON Path     `yaml:"each_json"`
	Carry    Fields   `yaml:"carry"`
}

// Next finds the next listing page. Exactly one of CSS, Rel, JSON, Template and Param is set.
type Next struct {
	At       Pos
	CSS      Selector `yaml:"css"`
	Attr     string   `yaml:"attr"`
	Rel      string   `yaml:"rel"`
	JSON     Path     `yaml:"json"`
	Template string   `yaml:"template"`
	Param    string   `yaml:"param"`
	Cursor   Path     `yaml:"cursor"`
	From     *int     `yaml:"from"`
	To       int      `yaml:"to"`
	Step     int      `yaml:"step"`
	While    Path     `yaml:"while"`
}

// Records are kinds of record, in the order of the file.
type Records []Record

// Record is a kind of record. Each and EachJSON together mean JSON inside elements.
type Record struct {
	At        Pos
	Name      string
	From      string   `yaml:"from" oneof:"listing detail"`
	Each      Selector `yaml:"each"`
	EachJSON  Path     `yaml:"each_json"`
	Key       []string `yaml:"key"`
	Watch     []string `yaml:"watch"`
	Fields    Fields   `yaml:"fields"`
	OnInvalid string   `yaml:"on_invalid" oneof:"drop fail"`
}

// Ways to handle a record that fails its checks.
const (
	OnInvalidDrop = "drop"
	OnInvalidFail = "fail"
)

// Fields are the fields of a record, in the order of the file.
type Fields []Field

// Field is a value of a record: its sources, its type and its validation rules.
type Field struct {
	At       Pos
	Name     string
	Type     string   `yaml:"type" oneof:"text html number integer price bool date url file list object"`
	Of       string   `yaml:"of" oneof:"text html number integer price bool date url file list object"`
	Locale   string   `yaml:"locale"`
	Currency string   `yaml:"currency"`
	Layout   []string `yaml:"layout"`
	Required bool     `yaml:"required"`
	Default  *string  `yaml:"default"`
	Min      *float64 `yaml:"min"`
	Max      *float64 `yaml:"max"`
	Match    Pattern  `yaml:"match"`
	OneOf    []string `yaml:"one_of"`
	Any      []Source `yaml:"any"`
	Fields   Fields   `yaml:"fields"`
}

// Source selects a value. Exactly one of CSS, JSON, JSONLD, Microdata, Meta, Label, Column, Page, Carry, Value and Exists is set,
// or only Regex, which then searches the whole page. CSS and JSON together mean JSON inside an element.
type Source struct {
	At        Pos
	CSS       Selector `yaml:"css"`
	Attr      string   `yaml:"attr"`
	Take      string   `yaml:"take" oneof:"text own_text html inner_html image attr"`
	JSON      Path     `yaml:"json"`
	JSONLD    string   `yaml:"jsonld"`
	Microdata string   `yaml:"microdata"`
	Meta      string   `yaml:"meta"`
	Label     string   `yaml:"label"`
	Column    string   `yaml:"column"`
	Page      string   `yaml:"page" oneof:"url requested_url title status fetched_at html site"`
	Carry     string   `yaml:"carry"` // of the link to the page
	Value     *string  `yaml:"value"`
	Exists    Selector `yaml:"exists"`
	Regex     Pattern  `yaml:"regex"`
	Replace   []Swap   `yaml:"replace"`
	Scope     string   `yaml:"scope" oneof:"record page"`
	Split     string   `yaml:"split"`
	Join      *string  `yaml:"join"`

	typ  string // of JSONLD or Microdata
	path Path
}

// Swap replaces the matches of a pattern.
type Swap struct {
	At      Pos
	Pattern Pattern `yaml:"pattern"`
	With    string  `yaml:"with"`
}

// Embedded reports whether the source is JSON inside an element.
func (s *Source) Embedded() bool { return !s.JSON.IsZero() && !s.CSS.IsZero() }

// TypePath returns the schema.org type of JSONLD or Microdata, and the path below it.
func (s *Source) TypePath() (typ string, path Path) { return s.typ, s.path }

// Values of Take: the part of an element to return.
const (
	TakeOwnText   = "own_text"
	TakeHTML      = "html"
	TakeInnerHTML = "inner_html"
	TakeImage     = "image"
)

// Types of a field.
const (
	TypeText    = "text"
	TypeHTML    = "html"
	TypeNumber  = "number"
	TypeInteger = "integer"
	TypePrice   = "price"
	TypeBool    = "bool"
	TypeDate    = "date"
	TypeURL     = "url"
	TypeFile    = "file" // downloads what the URL names
	TypeList    = "list"
	TypeObject  = "object"
)

// Maximum delays that a site may ask for.
const (
	MaxCrawlDelay = time.Minute
	MaxRetryAfter = 10 * time.Minute
)

// Politeness limits the requests to a site.
type Politeness struct {
	At           Pos
	Delay        time.Duration `yaml:"delay" range:"0s 1h"`
	MaxPerDomain int           `yaml:"max_per_domain" range:"1 1000"`
	Robots       bool          `yaml:"robots"`
	AutoThrottle bool          `yaml:"autothrottle"`
}

// Limits bound a page and a job.
type Limits struct {
	At            Pos
	MaxPages      int           `yaml:"max_pages" range:"1 100000000"`
	MaxDepth      int           `yaml:"max_depth" range:"0 1000000"`
	MaxDuration   time.Duration `yaml:"max_duration" range:"0s 720h"`
	MaxBytes      Size          `yaml:"max_bytes" range:"1KiB 1GiB"`
	MaxRecords    int           `yaml:"max_records" range:"0 1000000000"`
	MaxTotalBytes Size          `yaml:"max_total_bytes" range:"0 32768GiB"`
	PageTimeout   time.Duration `yaml:"page_timeout" range:"100ms 1h"`
	Redirects     int           `yaml:"redirects" range:"0 20"`
}

// Retries limits the attempts to fetch a page and sets the delays between them.
type Retries struct {
	At       Pos
	Attempts int           `yaml:"attempts" range:"0 100"`
	Base     time.Duration `yaml:"base" range:"0s 1h"`
	Cap      time.Duration `yaml:"cap" range:"0s 24h"`
	StallMax time.Duration `yaml:"stall_max" range:"0s 168h"`
}

// Blocks recognizes block pages that no signature of a known vendor matches.
type Blocks struct {
	At      Pos
	CSS     []Selector `yaml:"css"`
	Text    []Pattern  `yaml:"text"`
	MinText int        `yaml:"min_text" range:"0 1048576"`
	Off     bool       `yaml:"off"`
}

// Proxy sets the behaviour when no proxy is available.
type Proxy struct {
	At       Pos
	Fallback string        `yaml:"fallback" oneof:"fail wait direct"`
	Wait     time.Duration `yaml:"wait" range:"0s 24h"`
}

// Cookies are the first cookies of a visitor. Off means that no cookies are kept.
type Cookies struct {
	Off    bool
	Values map[string]string
}

func (c *Cookies) decodeNode(d *yamlstrict.Decoder, n ast.Node, key string) {
	*c = Cookies{} // replaces defaults
	if d.IsMapping(n) {
		d.Into(n, &c.Values, key)
	} else if s, ok := d.Scalar(n, key, "off, or a mapping of names to texts"); ok {
		if c.Off = s == "off" || s == "false"; !c.Off {
			d.Fail(n, key, "want off, or a mapping of names to texts, got %q", s)
		}
	}
}

// Session describes the visitor of a site: cookies, a proxy and a login that are used together and end together. Without a session
// the proxy may change with each request.
type Session struct {
	At    Pos
	Start string `yaml:"start"`
	Login *Login `yaml:"login"`
}

// Render selects the pages whose JavaScript a browser runs. URL is the HTTP endpoint of a renderer, which gets Key.
type Render struct {
	At      Pos
	When    string        `yaml:"when" oneof:"never always auto"`
	Kinds   []string      `yaml:"kinds" oneof:"listing detail"`
	Wait    string        `yaml:"wait"`
	Timeout time.Duration `yaml:"timeout" range:"100ms 1h"`
	URL     string        `yaml:"url"`
	Key     string        `yaml:"key"`
}

// Values of Render.When.
const (
	RenderNever  = "never"
	RenderAlways = "always"
	RenderAuto   = "auto" // if the page without JavaScript lacks its required parts
)

// decodeNode reads a value of When or the full form.
func (r *Render) decodeNode(d *yamlstrict.Decoder, n ast.Node, key string) {
	if d.IsMapping(n) {
		d.Full(n, r, key)
	} else if s, ok := d.Scalar(n, key, "never, always, auto, or a mapping"); ok {
		r.At, r.When = Pos(yamlstrict.At(n)), s
	}
}

// NeedsBrowser reports whether a browser of this program may render pages.
func (d *Definition) NeedsBrowser() bool { return d.Render.When != RenderNever && d.Render.URL == "" }

// External is an extractor outside of this program: it gets a page and returns JSON, which replaces the page. Exactly one of URL and
// Command is set; Command is a name in the settings, because definitions must not run commands. Key is for URL.
type External struct {
	At      Pos
	Kinds   []string      `yaml:"kinds" oneof:"listing detail"`
	URL     string        `yaml:"url"`
	Key     string        `yaml:"key"`
	Command string        `yaml:"command"`
	Timeout time.Duration `yaml:"timeout" range:"100ms 1h"`
}

// IsSet reports whether there is an extractor.
func (e *External) IsSet() bool { return e.URL+e.Command != "" }

// Handles reports whether the pages of a kind are extracted outside of this program.
func (e *External) Handles(kind string) bool {
	return e.IsSet() && slices.Contains(e.Kinds, kind)
}

// Refetch limits requests for detail pages that an earlier job has fetched. The zero value fetches them in every job.
type Refetch struct {
	After     time.Duration // time without requests for a page
	IfChanged bool          // ask the site in every job whether a page has changed
}

// IsZero reports whether every job fetches all pages.
func (r Refetch) IsZero() bool { return r == Refetch{} }

func (r *Refetch) decodeNode(d *yamlstrict.Decoder, n ast.Node, key string) {
	if v, ok := parsed(d, n, key, "always, if-changed or a time such as 7d", parseRefetch); ok {
		*r = v
	}
}

func parseRefetch(text string) (Refetch, error) {
	switch text {
	case "always":
		return Refetch{}, nil
	case "if-changed":
		return Refetch{IfChanged: true}, nil
	}
	after, err := time.ParseDuration(text)
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, derr := strconv.ParseUint(days, 10, 16)
		after, err = time.Duration(n)*24*time.Hour, derr
	}
	if err != nil || after <= 0 || after > maxRefetch {
		return Refetch{}, fmt.Errorf("want always, if-changed or a time from 1s to 3650d, such as 7d or 12h, got %q", text)
	}
	return Refetch{After: after}, nil
}

const maxRefetch = 3650 * 24 * time.Hour

// extraction are the keys that determine the records and links of a detail page.
var extraction = []string{"detail", "records", "locale", "timezone", "encoding", "headers", "cookies", "render", "extractor"}

// Extraction returns a fingerprint of the keys in extraction.
func (d *Definition) Extraction() string {
	h := sha256.New()
	own, below := split(d.source)
	texts := [][]byte{own}
	if below != nil {
		texts = append(texts, below.data)
	}
	for _, data := range texts {
		var keys map[string]any
		_ = yaml.Unmarshal(data, &keys) // parsed before
		for _, name := range extraction {
			text, _ := json.Marshal(keys[name])
			fmt.Fprintf(h, "%s %s\n", name, text)
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// Values of Fallback. The default is a setting of the program.
const (
	FallbackFail   = "fail"
	FallbackWait   = "wait"
	FallbackDirect = "direct"
)

// DefaultUserAgent is the default user agent. A definition's user_agent should add a contact address.
const DefaultUserAgent = "muster/1.0"

// defaults returns a definition with every default set.
func defaults() *Definition {
	return &Definition{
		Locale:    "auto",
		Timezone:  "UTC",
		UserAgent: DefaultUserAgent,
		Politeness: Politeness{
			Delay:        2 * time.Second,
			MaxPerDomain: 2,
			Robots:       true,
		},
		Limits: Limits{
			MaxPages:    100_000,
			MaxDepth:    0,
			MaxBytes:    16 << 20,
			PageTimeout: time.Minute,
			Redirects:   5,
		},
		Retries: Retries{
			Attempts: 3,
			Base:     time.Second,
			Cap:      time.Minute,
			StallMax: 15 * time.Minute,
		},
		Proxy:     Proxy{Wait: 5 * time.Minute},
		Render:    Render{Timeout: 30 * time.Second},
		Extractor: External{Kinds: []string{KindDetail}, Timeout: 30 * time.Second},
	}
}

// Zone returns the time zone for dates without one.
func (d *Definition) Zone() *time.Location { return d.zone }

// File returns the file that the definition was read from.
func (d *Definition) File() string { return d.file }

// Problem returns a problem of a key, at the position of the key in the file if it is there.
func (d *Definition) Problem(key, text string) *Problem {
	at, file := d.At, d.file
	if w, ok := d.places[key]; ok {
		at, file = w.At, w.File
	}
	return &Problem{File: file, At: at, Key: key, Text: text}
}

// IsShipped reports whether the definition is part of the program.
func (d *Definition) IsShipped() bool { return d.shipped }

// YAML returns the source of the definition and its defaults. Parsing it returns an equal definition.
func (d *Definition) YAML() []byte { return slices.Clone(d.source) }

// Page returns the options for a kind of page.
func (d *Definition) Page(kind string) *Detail {
	if kind == KindListing {
		return &d.Listing.Detail
	}
	return &d.Detail
}

// recordFormat returns the format of the pages of a kind from which records are extracted.
func (d *Definition) recordFormat(kind string) string {
	if d.Extractor.Handles(kind) {
		return FormatJSON
	}
	return d.Page(kind).Format
}

// RecordsFrom returns the kinds of record of a kind of page.
func (d *Definition) RecordsFrom(kind string) []*Record {
	var rs []*Record
	for i := range d.Records {
		if d.Records[i].From == kind {
			rs = append(rs, &d.Records[i])
		}
	}
	return rs
}
