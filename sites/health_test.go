package sites

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster/sites/fetch"
	"muster/tasks/redistest"
)

func TestHealthJudges(t *testing.T) {
	t.Parallel()
	before := []Health{
		{Records: 100, Success: 1, Mean: 200, Fields: map[string]float64{"item.price": 1, "item.name": 1}},
		{Records: 120, Success: 1, Mean: 400, Fields: map[string]float64{"item.price": 0.9, "item.name": 1}},
		{Records: 3, Success: 1, Mean: 300, Limited: true},
	}
	good := func() *Summary {
		s := &Summary{Status: StatusComplete, Records: 110}
		s.Pages = 100
		s.Times.add(300 * time.Millisecond)
		s.Fields = map[string]map[string]int{"item.price": {"0": 95, "none": 5}, "item.name": {"0": 100}}
		return s
	}
	for name, c := range map[string]struct {
		change func(*Summary)
		want   HealthStatus
		alert  string
	}{
		"as always":      {func(*Summary) {}, Healthy, ""},
		"few errors":     {func(s *Summary) { s.Pages, s.Errors = 96, 4 }, Healthy, ""},
		"some errors":    {func(s *Summary) { s.Pages, s.Errors = 92, 8 }, Degraded, "errors: 8 %; up to 5 %"},
		"many errors":    {func(s *Summary) { s.Pages, s.Errors = 70, 30 }, Critical, "pages that were not had: 30 %"},
		"gone is no one": {func(s *Summary) { s.Pages, s.Skipped = 50, 50 }, Healthy, ""},
		"refusals":       {func(s *Summary) { s.Errors, s.ByClass = 4, map[fetch.Class]int{fetch.SoftBlock: 2, fetch.Blocked: 2} }, Degraded, "refusals: 4 %"},
		"slow":           {func(s *Summary) { s.Times = nil; s.Times.add(3 * time.Second) }, Degraded, "mean response: 3"},
		"slower":         {func(s *Summary) { s.Times = nil; s.Times.add(time.Second) }, Degraded, "mean response: 1.1 s, where the last seven days had 0.3 s in the mean"},
		"a little slow":  {func(s *Summary) { s.Times = nil; s.Times.add(600 * time.Millisecond) }, Healthy, ""},
		"worse":          {func(s *Summary) { s.Pages, s.Errors = 78, 22 }, Critical, "78 % of the pages were had, where the last seven days had 100 %"},
		"incomplete":     {func(s *Summary) { s.Status = StatusIncomplete }, Degraded, "INCOMPLETE"},
		"few records":    {func(s *Summary) { s.Records = 40 }, Critical, "40 records, where the last seven days had 110"},
		"a field is lost": {func(s *Summary) { s.Fields["item.price"] = map[string]int{"0": 60, "none": 40} }, Degraded,
			"field item.price: found in 60 % of the records, before in 95 %"},
	} {
		s := good()
		c.change(s)
		h := measure(s, false, time.Now())
		h.judge(s.Status, before)
		if h.Status != c.want || !strings.Contains(strings.Join(h.Alerts, "; "), c.alert) || (c.alert == "") != (len(h.Alerts) == 0) {
			t.Errorf("%s: got %s %q, want %s %q", name, h.Status, h.Alerts, c.want, c.alert)
		}
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
