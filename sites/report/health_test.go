package report

import (
	"strings"
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/sites/definition"
	"muster/sites/extract"
	"muster/sites/fetch"
)

// judged returns a job of a site with two types of records that equals its earlier jobs.
func judged(t *testing.T) (*definition.Definition, *Summary, []Health) {
	t.Helper()
	def, err := definition.Parse("s.yaml", []byte(`site: shop.example
base_url: http://shop.example
start: [/]
listing: {links: a}
records:
  item: {fields: {name: {css: h1, required: true}, price: b}}
  teaser: {from: listing, each: li, fields: {name: a}}
`))
	testutil.Ok(t, err)
	before := []Health{
		{Records: 100, Success: 1, Mean: 200, Fields: map[string]float64{"item.price": 1, "item.name": 1}},
		{Records: 120, Success: 1, Mean: 400, Fields: map[string]float64{"item.price": 0.9, "item.name": 1, "teaser.name": 1}},
		{Records: 3, Success: 1, Mean: 300, Limited: true},
	}
	s := &Summary{Site: "shop.example", Status: StatusComplete, Records: 110, ByType: map[string]int{"item": 100, "teaser": 10}}
	s.Pages = 100
	s.Response = &Percentiles{Mean: 0.3}
	s.Fields = map[string]map[string]int{"item.price": {"0": 95, "none": 5}, "item.name": {"0": 100}, "teaser.name": {"0": 10}}
	return def, s, before
}

// verdict is the expected health of a job: its status, which is also the status of its data, and parts of its alerts and notices;
// "" means none.
type verdict struct {
	status        HealthStatus
	alert, notice string
}

// judgeEach judges a job after each change to it.
func judgeEach(t *testing.T, cases map[string]struct {
	change func(*Summary)
	want   verdict
}) {
	t.Helper()
	for name, c := range cases {
		def, s, before := judged(t)
		c.change(s)
		h := Judge(def, s, false, time.Now(), before)
		if h.Status != c.want.status || h.Data != c.want.status {
			t.Errorf("%s: got %s, data %s, want %s", name, h.Status, h.Data, c.want.status)
		}
		if got := strings.Join(h.Alerts, "; "); !strings.Contains(got, c.want.alert) || (c.want.alert == "") != (got == "") {
			t.Errorf("%s: got alerts %q, want %q", name, got, c.want.alert)
		}
		if got := strings.Join(h.Notices, "; "); !strings.Contains(got, c.want.notice) || (c.want.notice == "") != (got == "") {
			t.Errorf("%s: got notices %q, want %q", name, got, c.want.notice)
		}
	}
}

const lookHint = "check current pages with muster sites check --live shop.example"

func TestHealthOfPages(t *testing.T) {
	t.Parallel()
	blocked := func(s *Summary) {
		s.Errors, s.ByClass = 4, map[fetch.Class]int{fetch.SoftBlock: 2, fetch.Blocked: 2}
	}
	judgeEach(t, map[string]struct {
		change func(*Summary)
		want   verdict
	}{
		"as always":                    {func(*Summary) {}, verdict{Healthy, "", ""}},
		"few gone":                     {func(s *Summary) { s.Pages, s.Skipped, s.ByClass = 90, 10, map[fetch.Class]int{fetch.Gone: 10} }, verdict{Healthy, "", ""}},
		"many gone":                    {func(s *Summary) { s.Pages, s.Skipped, s.ByClass = 89, 11, map[fetch.Class]int{fetch.Gone: 11} }, verdict{Degraded, "gone: 11 %; the healthy maximum is 10 %", ""}},
		"ends of counts":               {func(s *Summary) { s.Pages, s.Skipped, s.Ends, s.ByClass = 8, 2, 2, map[fetch.Class]int{fetch.Gone: 2} }, verdict{Healthy, "", ""}},
		"few errors":                   {func(s *Summary) { s.Pages, s.Errors = 96, 4 }, verdict{Healthy, "", ""}},
		"some errors":                  {func(s *Summary) { s.Pages, s.Errors = 92, 8 }, verdict{Degraded, "errors: 8 %; the healthy maximum is 5 %", ""}},
		"many errors":                  {func(s *Summary) { s.Pages, s.Errors = 84, 16 }, verdict{Critical, "errors: 16 %", ""}},
		"missing pages are not errors": {func(s *Summary) { s.Pages, s.Skipped = 50, 50 }, verdict{Healthy, "", ""}},
		"blocked":                      {blocked, verdict{Degraded, "blocked: 4 %", ""}},
		"worse than before":            {func(s *Summary) { s.Pages, s.Errors = 78, 22 }, verdict{Critical, "78 % of the pages were fetched; mean of the last seven days: 100 %", ""}},
		"incomplete":                   {func(s *Summary) { s.Status = StatusIncomplete }, verdict{Degraded, "INCOMPLETE", ""}},
		"nothing is fetched":           {func(s *Summary) { s.Records, s.Pages = 0, 0 }, verdict{Critical, "no records (pages: 0 fetched", ""}},
	})
}

func TestHealthOfRecords(t *testing.T) {
	t.Parallel()
	types := func(item, teaser int) func(*Summary) {
		return func(s *Summary) { s.ByType["item"], s.ByType["teaser"] = item, teaser }
	}
	judgeEach(t, map[string]struct {
		change func(*Summary)
		want   verdict
	}{
		"few records": {func(s *Summary) { s.Records = 40 }, verdict{Critical, "40 records; mean of the last seven days: 110", ""}},
		"no records":  {func(s *Summary) { s.Records = 0 }, verdict{Critical, "no records (pages: 100 fetched, 0 skipped, 0 errors); " + lookHint, ""}},
		"no records of a type that each page has":   {types(0, 10), verdict{Degraded, "no item records; every detail page should yield one; " + lookHint, ""}},
		"no records of a type with earlier records": {types(100, 0), verdict{Degraded, "no teaser records, unlike in the last seven days; " + lookHint, ""}},
		"a limit ended it before":                   {func(s *Summary) { types(0, 10)(s); s.Limits = []string{"limits.max_records"} }, verdict{Healthy, "", ""}},
	})
}

func TestHealthOfFields(t *testing.T) {
	t.Parallel()
	fault := func(f extract.Fault) func(*Summary) {
		return func(s *Summary) { s.Faults = extract.Faults{"item.name": f} }
	}
	invalid := func(n int) func(*Summary) { return fault(extract.Fault{Invalid: n, Example: "is missing"}) }
	unparsed := func(n int) func(*Summary) { return fault(extract.Fault{Unparsed: n, Example: `no number in "x"`}) }
	judgeEach(t, map[string]struct {
		change func(*Summary)
		want   verdict
	}{
		"an optional field is lost on many pages": {func(s *Summary) { s.Fields["item.price"] = map[string]int{"0": 60, "none": 40} },
			verdict{Degraded, "field item.price: found in 60 % of the records; earlier jobs: 95 %", ""}},
		"a required field is lost on most pages": {invalid(72), verdict{Critical, "field item.name: invalid in 72 of 100 records (is missing); " + lookHint, ""}},
		"on some pages":                          {invalid(6), verdict{Degraded, "field item.name: invalid in 6 of 100 records", ""}},
		"on few pages":                           {invalid(5), verdict{Healthy, "", "field item.name: invalid in 5 of 100 records (is missing); " + lookHint}},
		"half of the texts are not parsed":       {unparsed(50), verdict{Healthy, "", `field item.name: unparsable text dropped in 50 of 100 records (no number in "x"); ` + lookHint}},
		"most texts are not parsed":              {unparsed(51), verdict{Degraded, `field item.name: unparsable text dropped in 51 of 100 records`, ""}},
	})
}

// A slow site is not healthy, but its data is.
func TestHealthOfResponseTimes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		response time.Duration
		want     HealthStatus
		alert    string
	}{
		"slow":          {3 * time.Second, Degraded, "mean response: 3"},
		"very slow":     {9 * time.Second, Critical, "mean response: 9"},
		"slower":        {time.Second, Degraded, "mean response: 1.0 s; mean of the last seven days: 0.3 s"},
		"a little slow": {600 * time.Millisecond, Healthy, ""},
	} {
		def, s, before := judged(t)
		s.Response.Mean = c.response.Seconds()
		h := Judge(def, s, false, time.Now(), before)
		if h.Status != c.want || h.Data != Healthy {
			t.Errorf("%s: got %s, data %s, want %s, data healthy", name, h.Status, h.Data, c.want)
		}
		if got := strings.Join(h.Alerts, "; "); !strings.Contains(got, c.alert) || (c.alert == "") != (got == "") {
			t.Errorf("%s: got alerts %q, want %q", name, got, c.alert)
		}
	}
}

func TestPercentiles(t *testing.T) {
	t.Parallel()
	var c Counts
	if p := c.Percentiles(); p != nil {
		t.Errorf("of no pages: got %+v, want nil", *p)
	}
	for i := range 100 {
		c.Add(Page{Yield: Yield{Took: int64(100-i) * 10}})
	}
	if p := c.Percentiles(); *p != (Percentiles{0.505, 0.5, 0.95, 0.99}) {
		t.Errorf("got %+v, want the mean and the quantiles", *p)
	}
}
