package sites

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster/sites/definition"
	"muster/sites/extract"
	"muster/sites/fetch"
	"muster/tasks/redistest"
)

func TestHealthJudges(t *testing.T) {
	t.Parallel()
	def, err := definition.Parse("s.yaml", []byte(`site: shop.example
base_url: http://shop.example
start: [/]
listing: {links: a}
records:
  item: {fields: {name: {css: h1, required: true}, price: b}}
  teaser: {from: listing, each: li, fields: {name: a}}
`))
	if err != nil {
		t.Fatal(err)
	}
	before := []Health{
		{Records: 100, Success: 1, Mean: 200, Fields: map[string]float64{"item.price": 1, "item.name": 1}},
		{Records: 120, Success: 1, Mean: 400, Fields: map[string]float64{"item.price": 0.9, "item.name": 1, "teaser.name": 1}},
		{Records: 3, Success: 1, Mean: 300, Limited: true},
	}
	good := func() *Summary {
		s := &Summary{Site: "shop.example", Status: StatusComplete, Records: 110, ByType: map[string]int{"item": 100, "teaser": 10}}
		s.Pages = 100
		s.Times.add(300 * time.Millisecond)
		s.Fields = map[string]map[string]int{"item.price": {"0": 95, "none": 5}, "item.name": {"0": 100}, "teaser.name": {"0": 10}}
		return s
	}
	fault := func(f extract.Fault) func(*Summary) {
		return func(s *Summary) { s.Faults = extract.Faults{"item.name": f} }
	}
	types := func(item, teaser int) func(*Summary) {
		return func(s *Summary) { s.ByType["item"], s.ByType["teaser"] = item, teaser }
	}
	const look = "see what pages yield now with muster sites check --live shop.example"
	for name, c := range map[string]struct {
		change func(*Summary)
		want   HealthStatus // Status and Data
		alert  string
		notice string
	}{
		"as always":                          {func(*Summary) {}, Healthy, "", ""},
		"few errors":                         {func(s *Summary) { s.Pages, s.Errors = 96, 4 }, Healthy, "", ""},
		"some errors":                        {func(s *Summary) { s.Pages, s.Errors = 92, 8 }, Degraded, "errors: 8 %; up to 5 %", ""},
		"many errors":                        {func(s *Summary) { s.Pages, s.Errors = 84, 16 }, Critical, "errors: 16 %", ""},
		"gone is no one":                     {func(s *Summary) { s.Pages, s.Skipped = 50, 50 }, Healthy, "", ""},
		"refusals":                           {func(s *Summary) { s.Errors, s.ByClass = 4, map[fetch.Class]int{fetch.SoftBlock: 2, fetch.Blocked: 2} }, Degraded, "refusals: 4 %", ""},
		"worse":                              {func(s *Summary) { s.Pages, s.Errors = 78, 22 }, Critical, "78 % of the pages were had, where the last seven days had 100 %", ""},
		"incomplete":                         {func(s *Summary) { s.Status = StatusIncomplete }, Degraded, "INCOMPLETE", ""},
		"few records":                        {func(s *Summary) { s.Records = 40 }, Critical, "40 records, where the last seven days had 110", ""},
		"no records":                         {func(s *Summary) { s.Records = 0 }, Critical, "no records (pages: 100 fetched, 0 skipped, 0 errors); " + look, ""},
		"no records, as nothing was fetched": {func(s *Summary) { s.Records, s.Pages = 0, 0 }, Critical, "no records (pages: 0 fetched", ""},
		"no records of a type that each page has": {types(0, 10), Degraded, "no item records; every detail page should yield one; " + look, ""},
		"of a type that there was":                {types(100, 0), Degraded, "no teaser records, where the last seven days had some; " + look, ""},
		"a limit ended it before":                 {func(s *Summary) { types(0, 10)(s); s.Limits = []string{"limits.max_records"} }, Healthy, "", ""},
		"a field is lost": {func(s *Summary) { s.Fields["item.price"] = map[string]int{"0": 60, "none": 40} }, Degraded,
			"field item.price: found in 60 % of the records, before in 95 %", ""},
		"a required field is lost on most pages": {fault(extract.Fault{Invalid: 72, Example: "is missing"}), Critical,
			"field item.name: 72 of 100 records are invalid by it (is missing); " + look, ""},
		"on some pages":        {fault(extract.Fault{Invalid: 6, Example: "is missing"}), Degraded, "field item.name: 6 of 100 records are invalid by it", ""},
		"on few pages":         {fault(extract.Fault{Invalid: 5, Example: "is missing"}), Healthy, "", "field item.name: 5 of 100 records are invalid by it (is missing); " + look},
		"texts are not parsed": {fault(extract.Fault{Unparsed: 50, Example: `no number in "x"`}), Healthy, "", `field item.name: in 50 of 100 records its text cannot be read and is left out (no number in "x"); ` + look},
		"most are not":         {fault(extract.Fault{Unparsed: 51, Example: `no number in "x"`}), Degraded, `field item.name: in 51 of 100 records its text cannot be read`, ""},
	} {
		s := good()
		c.change(s)
		h := measure(s, len(s.Limits) > 0, time.Now())
		h.judge(def, s, before)
		alerts, notices := strings.Join(h.Alerts, "; "), strings.Join(h.Notices, "; ")
		if h.Status != c.want || h.Data != c.want || !strings.Contains(alerts, c.alert) || (c.alert == "") != (len(h.Alerts) == 0) {
			t.Errorf("%s: got %s, data %s, %q, want %s %q", name, h.Status, h.Data, alerts, c.want, c.alert)
		}
		if !strings.Contains(notices, c.notice) || (c.notice == "") != (len(h.Notices) == 0) {
			t.Errorf("%s: got notices %q, want %q", name, notices, c.notice)
		}
	}
	for name, c := range map[string]struct {
		response time.Duration
		want     HealthStatus
		alert    string
	}{
		"slow":          {3 * time.Second, Degraded, "mean response: 3"},
		"very slow":     {9 * time.Second, Critical, "mean response: 9"},
		"slower":        {time.Second, Degraded, "mean response: 1.1 s, where the last seven days had 0.3 s in the mean"},
		"a little slow": {600 * time.Millisecond, Healthy, ""},
	} {
		s := good()
		s.Times = nil
		s.Times.add(c.response)
		h := measure(s, false, time.Now())
		h.judge(def, s, before)
		if h.Status != c.want || h.Data != Healthy || !strings.Contains(strings.Join(h.Alerts, "; "), c.alert) || (c.alert == "") != (len(h.Alerts) == 0) {
			t.Errorf("%s: got %s, data %s, %q, want %s, data healthy, %q", name, h.Status, h.Data, h.Alerts, c.want, c.alert)
		}
	}
}

// The first job of a site has nothing to be compared with.
func TestHealthOfTheFirstJob(t *testing.T) {
	t.Parallel()
	site := newShop(t, 3, 10)
	s := newService(t, redistest.New(t))
	edits := 0
	edit := func(oldTo ...string) *definition.Definition {
		t.Helper()
		edits++
		oldTo = append(oldTo, "site: shop.example", fmt.Sprintf("site: shop%d.example", edits)) // without a history
		yaml := string(site.definition(t, "").YAML())
		for i := 0; i < len(oldTo); i += 2 {
			if strings.Count(yaml, oldTo[i]) != 1 {
				t.Fatalf("%q is not once in the definition", oldTo[i])
			}
		}
		def, err := definition.Parse("shop.yaml", []byte(strings.NewReplacer(oldTo...).Replace(yaml)))
		if err != nil {
			t.Fatal(err)
		}
		return def
	}
	teasers := "  teaser:\n    from: listing\n    each: li.item\n    fields:\n      name: {css: a, required: true}\n"
	for i, c := range []struct {
		name   string
		def    *definition.Definition
		want   HealthStatus
		alert  string
		fields string
	}{
		{"all is there", site.definition(t, ""), Healthy, "", "map[item.name:1 item.price:1 teaser.name:1]"},
		{"each matches nothing on listing pages", edit(teasers, strings.Replace(teasers, "li.item", "li.card", 1)), Healthy, "", "map[item.name:1 item.price:1]"},
		{"links match nothing", edit("links: .item a", "links: .card a"), Degraded, "no item records; every detail page should yield one", "map[teaser.name:1]"},
		{"a required field is on no listing page", edit("name: {css: a, required: true}", "name: {css: i, required: true}"), Critical,
			"field teaser.name: 30 of 30 records are invalid by it (is missing)", "map[item.name:1 item.price:1 teaser.name:0]"},
		{"a required field is on no detail page", edit("css: .price,", "css: .cost,"), Critical,
			"field item.price: 30 of 30 records are invalid by it (is missing)", "map[item.name:1 item.price:0 teaser.name:1]"},
		{"likewise, and it fails the page", edit("css: .price,", "css: .cost,", "    key: [name]\n", "    key: [name]\n    on_invalid: fail\n"), Critical,
			"field item.price: 30 of 30 records are invalid by it (is missing)", "map[item.name:1 item.price:0 teaser.name:1]"},
		{"neither links nor records", edit("links: .item a", "links: .card a", teasers, ""), Critical, "no records (pages: 3 fetched, 0 skipped, 0 errors)", "map[]"},
	} {
		sum := run(t, begin(t, s, fmt.Sprint("j", i), c.def, ScrapeOptions{BaseURL: site.URL}))
		if sum.Health.Status != c.want || !strings.Contains(strings.Join(sum.Health.Alerts, "; "), c.alert) || c.alert == "" && len(sum.Health.Alerts) > 0 {
			t.Errorf("%s: got %s %q, want %s %q", c.name, sum.Health.Status, sum.Health.Alerts, c.want, c.alert)
		}
		if got := fmt.Sprint(sum.Health.Fields); got != c.fields {
			t.Errorf("%s: got fields %s, want %s", c.name, got, c.fields)
		}
	}
}

// A job that goes on with another is judged by what both have, and records
// that did not change are records.
func TestHealthOfResumedAndUnchangedJobs(t *testing.T) {
	t.Parallel()
	site := newShop(t, 1, 20)
	for i := range 19 {
		site.faults[fmt.Sprint("/item/", i)] = strings.Fields("empty empty empty empty")
	}
	s := newService(t, redistest.New(t))
	def := site.definition(t, "")
	sum := run(t, begin(t, s, "j1", def, ScrapeOptions{BaseURL: site.URL}))
	if sum.Health.Data != Critical || sum.Errors != 19 {
		t.Errorf("19 of 20 pages failed: got data %s, %d errors, want critical", sum.Health.Data, sum.Errors)
	}
	site.mu.Lock()
	clear(site.faults)
	site.mu.Unlock()
	home, err := homeOf(s.cfg.OutDir)
	if err != nil {
		t.Fatal(err)
	}
	resume, err := s.begin(t.Context(), "j2", Request{Home: home, Site: def.Site, File: def.File(), YAML: string(def.YAML()), BaseURL: site.URL, OutDir: s.cfg.OutDir, Resume: "j1"})
	if err != nil {
		t.Fatal(err)
	}
	sum = run(t, resume)
	if sum.Health.Data != Healthy || sum.Health.Records != 40 {
		t.Errorf("resumed: got data %s %q, %d records, want healthy, 40", sum.Health.Data, sum.Health.Alerts, sum.Health.Records)
	}
	sum = run(t, begin(t, s, "j3", def, ScrapeOptions{BaseURL: site.URL}))
	if sum.Health.Data != Healthy || sum.Changes.Unchanged != 40 {
		t.Errorf("nothing changed: got data %s %q, %d unchanged records, want healthy, 40", sum.Health.Data, sum.Health.Alerts, sum.Changes.Unchanged)
	}
}

func TestTimes(t *testing.T) {
	t.Parallel()
	var a times
	for i := range 100 {
		a.add(time.Duration(i+1) * 10 * time.Millisecond)
	}
	for q, want := range map[float64]time.Duration{0.5: 500 * time.Millisecond, 0.95: 950 * time.Millisecond, 0.99: 990 * time.Millisecond} {
		if got := a.quantile(q); got < want || got > want*11/10 {
			t.Errorf("p%v: got %s, want %s and at most a tenth more", q*100, got, want)
		}
	}
	if m := a.mean(); m < 500*time.Millisecond || m > 560*time.Millisecond {
		t.Errorf("mean: got %s", m)
	}
	if (times)(nil).quantile(0.5) != 0 || (times)(nil).mean() != 0 {
		t.Error("of no pages: got a time")
	}
}

func TestReport(t *testing.T) {
	t.Parallel()
	site := newShop(t, 1, 20)
	forever := strings.Fields(strings.Repeat("500 ", 50))
	site.faults = map[string][]string{"/item/1": forever, "/item/2": forever, "/item/3": strings.Fields(strings.Repeat("soft ", 50))}
	s := newService(t, redistest.New(t))
	sum := run(t, begin(t, s, "j1", site.definition(t, ""), ScrapeOptions{BaseURL: site.URL}))
	if len(sum.Groups) != 2 || sum.Groups[0].Pages+sum.Groups[1].Pages != 3 || sum.Extracted != 37 || len(sum.Times) == 0 {
		t.Errorf("got %+v, %d extracted, times %v", sum.Groups, sum.Extracted, sum.Times)
	}
	text, err := os.ReadFile(filepath.Join(filepath.Dir(sum.Files[0]), "report.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"18 had (0.0 MB), 0 skipped, 3 errors", "37 extracted, 0 invalid, 0 twice, 37 written: 37 new", "ALERT", "item.price   100 %", "answered 500", "/item/", "muster jobs retry j1", "p95"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the report lacks %q:\n%s", want, text)
		}
	}
	health, err := s.Health(t.Context())
	if err != nil || len(health) != 1 || health[0].JobID != "j1" || health[0].Status == Healthy {
		t.Errorf("got %+v, %v", health, err)
	}
	site.faults = nil
	sum = run(t, begin(t, s, "j2", site.definition(t, ""), ScrapeOptions{BaseURL: site.URL}))
	if sum.Health.Status != Healthy || fmt.Sprint(sum.Health.Before["item.price"]) != "1" {
		t.Errorf("got %+v", sum.Health)
	}
}

// How long a site has pages wait for their turn is not how long it takes to
// answer.
func TestResponseIsWithoutDelays(t *testing.T) {
	t.Parallel()
	site := newShop(t, 1, 1)
	def, err := definition.Parse("shop.yaml", []byte(strings.Replace(string(site.definition(t, "").YAML()), "delay: 0", "delay: 1s", 1)))
	if err != nil {
		t.Fatal(err)
	}
	sum := run(t, begin(t, newService(t, redistest.New(t)), "j1", def, ScrapeOptions{BaseURL: site.URL}))
	if got := sum.Times.mean(); sum.Pages != 2 || got <= 0 || got >= 500*time.Millisecond { // a turn is at least that
		t.Errorf("got a mean response of %s in %d pages, want that of the server", got, sum.Pages)
	}
}
