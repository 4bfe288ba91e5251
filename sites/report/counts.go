package report

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"muster/internal/clip"
	"muster/sites/extract"
	"muster/sites/fetch"
	"muster/tasks/workqueue"
)

// Counts are totals of pages. The zero value has no pages.
type Counts struct {
	Pages   int                 `json:"pages"`             // fetched and read, or known
	Known   int                 `json:"known,omitempty"`   // of Pages: unchanged since an earlier job, so their records are those of that job
	Skipped int                 `json:"skipped"`           // gone, forbidden by robots.txt, or beyond the limits of the job
	Errors  int                 `json:"errors"`            // not fetched
	Ends    int                 `json:"ends,omitempty"`    // of Skipped: numbered listing pages after the last one
	Invalid int                 `json:"invalid"`           // records that failed their checks
	Outside int                 `json:"outside,omitempty"` // URLs in sitemaps that are outside the site
	ByClass map[fetch.Class]int `json:"by_class,omitempty"`
	Samples []Failure           `json:"samples,omitempty"`
	Groups  []Group             `json:"groups,omitempty"` // failed pages by reason
	// Extracted counts the valid records of the pages, including duplicates.
	Extracted int   `json:"extracted"`
	Bytes     int64 `json:"bytes"` // of the decompressed pages
	// Duplicates counts detail pages whose rel=canonical is another page. DuplicateExample has the addresses of such a pair.
	Duplicates       int    `json:"duplicates,omitempty"`
	DuplicateExample string `json:"duplicate_example,omitempty"`
	// Fields counts for type.field the hits of each alternative: "0" is the first, "none" means no value.
	Fields map[string]map[string]int `json:"fields,omitempty"`
	// Faults has the faults by type.field, including pages that failed because all their records are invalid.
	Faults extract.Faults `json:"faults,omitempty"`

	took []time.Duration // response times of pages
}

// Failure is a failed page.
type Failure struct {
	URL      string      `json:"url"`
	Class    fetch.Class `json:"class"`
	Attempts int         `json:"attempts"`
	Error    string      `json:"error"`
}

// Group is a group of pages that failed for the same reason.
type Group struct {
	Class   fetch.Class `json:"class"`
	Error   string      `json:"error"` // with # for numbers other than a status
	Pages   int         `json:"pages"`
	Example string      `json:"example"` // URL of one page
}

const (
	maxSamples = 10 // failures in a summary; failed.jsonl has all
	maxGroups  = 50
)

// Page is a fetched, skipped or failed page.
type Page struct {
	URL      string
	State    workqueue.State
	Attempts int
	Note     string // reason of a failure or skip
	End      bool   // see Counts.Ends
	Yield
}

// Yield is the result of a page.
type Yield struct {
	Class   fetch.Class    `json:"class"`
	Records map[string]int `json:"records,omitempty"` // valid records by type
	Invalid int            `json:"invalid,omitempty"` // records
	Took    int64          `json:"took,omitempty"`    // response time in milliseconds; 0 without a response
	// Hits and Faults are the field coverage of the page; see extract.Result.
	Hits      map[string]map[string]int `json:"hits,omitempty"`
	Faults    extract.Faults            `json:"faults,omitempty"`
	Bytes     int                       `json:"bytes,omitempty"`     // of the decompressed page
	Outside   int                       `json:"outside,omitempty"`   // of a sitemap; see extract.Result
	Known     bool                      `json:"known,omitempty"`     // see Counts.Known
	Duplicate string                    `json:"duplicate,omitempty"` // canonical address, if that is another page of the job, or ""
}

// Add counts a page.
func (c *Counts) Add(p Page) {
	if c.ByClass == nil {
		c.ByClass = map[fetch.Class]int{}
	}
	switch p.State {
	case workqueue.StateDone:
		c.Pages++
	case workqueue.StateSkipped:
		c.Skipped++
	default:
		c.Errors++
	}
	if p.Known {
		c.Known++
	}
	c.ByClass[p.Class]++
	if p.End {
		c.Ends++
	}
	c.Invalid += p.Invalid
	c.Outside += p.Outside
	c.Bytes += int64(p.Bytes)
	if p.Duplicate != "" {
		c.Duplicates++
		c.DuplicateExample = cmp.Or(c.DuplicateExample, p.URL+" and "+p.Duplicate)
	}
	c.addFields(p.Hits, p.Faults)
	for _, n := range p.Records {
		c.Extracted += n
	}
	if p.Took > 0 {
		c.took = append(c.took, time.Duration(p.Took)*time.Millisecond)
	}
	if p.State == workqueue.StateError {
		c.group(Group{Class: p.Class, Error: strings.TrimPrefix(p.Note, string(p.Class)+": "), Pages: 1, Example: p.URL})
	}
	if p.State != workqueue.StateDone && len(c.Samples) < maxSamples {
		c.Samples = append(c.Samples, Failure{URL: p.URL, Class: p.Class, Attempts: p.Attempts, Error: p.Note})
	}
}

func (c *Counts) addFields(hits map[string]map[string]int, faults extract.Faults) {
	for _, field := range slices.Sorted(maps.Keys(faults)) {
		c.Faults.Add(field, faults[field])
	}
	for field, by := range hits {
		if c.Fields == nil {
			c.Fields = map[string]map[string]int{}
		}
		if c.Fields[field] == nil {
			c.Fields[field] = map[string]int{}
		}
		for hit, n := range by {
			c.Fields[field][hit] += n
		}
	}
}

var digits = regexp.MustCompile(`[0-9]+`)

// group adds failed pages to the group with their reason.
func (c *Counts) group(g Group) {
	g.Error = digits.ReplaceAllStringFunc(g.Error, func(n string) string {
		if len(n) == 3 && n[0] >= '1' && n[0] <= '5' {
			return n // an HTTP status
		}
		return "#"
	})
	g.Error = clip.Ellipsis(g.Error, 200)
	for i := range c.Groups {
		if o := &c.Groups[i]; o.Class == g.Class && o.Error == g.Error {
			o.Pages += g.Pages
			return
		}
	}
	if len(c.Groups) < maxGroups {
		c.Groups = append(c.Groups, g)
	}
}

// FirstFailure describes a failed page, for an error message.
func (c *Counts) FirstFailure() string {
	if len(c.Samples) == 0 {
		return "unknown reason"
	}
	return fmt.Sprintf("%s: %s", c.Samples[0].URL, c.Samples[0].Error)
}

// Coverage returns for each type.field the share of records that have it.
func (c *Counts) Coverage() map[string]float64 {
	shares := map[string]float64{}
	for field, by := range c.Fields {
		all := 0
		for _, n := range by {
			all += n
		}
		if all > 0 {
			shares[field] = float64(all-by["none"]) / float64(all)
		}
	}
	return shares
}

// Drifted returns the fields whose first alternative hit in less than half of the records that have the field, which indicates a
// redesigned site.
func (c *Counts) Drifted() []string {
	var fields []string
	for field, by := range c.Fields {
		found := 0
		for hit, n := range by {
			if hit != "none" && hit != "default" {
				found += n
			}
		}
		if found >= 10 && by["0"]*2 < found {
			fields = append(fields, field)
		}
	}
	slices.Sort(fields)
	return fields
}

// Percentiles returns the percentiles of the response times, or nil if there are none.
func (c *Counts) Percentiles() *Percentiles {
	n := len(c.took)
	if n == 0 {
		return nil
	}
	slices.Sort(c.took)
	sum := 0.0
	for _, d := range c.took {
		sum += d.Seconds()
	}
	rounded := func(seconds float64) float64 { return math.Round(seconds*1000) / 1000 }
	at := func(percent int) float64 { return rounded(c.took[(percent*n-1)/100].Seconds()) }
	return &Percentiles{rounded(sum / float64(n)), at(50), at(95), at(99)}
}

// ProxyUsage counts the responses of a job by proxy. The pool counts requests without a response.
type ProxyUsage struct {
	Proxies   int     `json:"proxies"`
	Responses int     `json:"responses"`
	Failures  int     `json:"failures"`
	Worst     []Proxy `json:"worst,omitempty"` // up to five proxies with the most failures
}

// Proxy counts the responses of a job through a proxy.
type Proxy struct {
	Proxy     string `json:"proxy"`
	Responses int    `json:"responses"`
	Failures  int    `json:"failures"` // blocked, limited, truncated or empty responses
}

const maxWorst = 5

// UsageOf sums up the usage of proxies, or returns nil if there are none. good and bad are numbers of responses with and without a
// page, by proxy.
func UsageOf(good, bad map[string]int) *ProxyUsage {
	proxies := map[string]Proxy{}
	for proxy, n := range good {
		proxies[proxy] = Proxy{Proxy: proxy, Responses: n}
	}
	for proxy, n := range bad {
		proxies[proxy] = Proxy{proxy, good[proxy] + n, n}
	}
	if len(proxies) == 0 {
		return nil
	}
	u := &ProxyUsage{Proxies: len(proxies)}
	for _, p := range proxies {
		u.Responses += p.Responses
		u.Failures += p.Failures
		if p.Failures > 0 {
			u.Worst = append(u.Worst, p)
		}
	}
	slices.SortFunc(u.Worst, func(a, b Proxy) int {
		return cmp.Or(b.Failures-a.Failures, a.Responses-b.Responses, strings.Compare(a.Proxy, b.Proxy))
	})
	u.Worst = u.Worst[:min(len(u.Worst), maxWorst)]
	return u
}

// String formats the usage in one line.
func (u *ProxyUsage) String() string {
	worst := ""
	if len(u.Worst) > 0 {
		worst = fmt.Sprintf("; worst %s with %d of %d", u.Worst[0].Proxy, u.Worst[0].Failures, u.Worst[0].Responses)
	}
	return fmt.Sprintf("%d used, %d responses, %d of them failed%s", u.Proxies, u.Responses, u.Failures, worst)
}
