package ui

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster/internal/webui"
	"muster/sites"
	"muster/sites/report"
)

const (
	scrapesOnPage = 25
	shownTypes    = 3  // types of records
	shownRecords  = 8  // records per type
	shownColumns  = 10 // columns of records
	shownCell     = 80 // characters
	shownGroups   = 20
)

type scrapesData struct {
	Site  string // "": all
	Jobs  []scrapeRow
	Total int
	Newer string // URL of the previous page; "" on the first one
	Older string
}

// scrapes lists the scrapes of the last week.
func (p sitePages) scrapes(ctx context.Context, r *http.Request) (webui.View, error) {
	q := r.URL.Query()
	from, err := offset(q)
	if err != nil {
		return webui.View{}, err
	}
	began, err := p.cfg.Sites.JobsSince(ctx, time.Time{})
	if err != nil {
		return webui.View{}, err
	}
	d := scrapesData{Site: q.Get("site")}
	if d.Site != "" {
		began = slices.DeleteFunc(began, func(j sites.JobBegan) bool { return j.Site != d.Site })
	}
	d.Total = len(began)
	d.Newer, d.Older = turns(q, from, scrapesOnPage, d.Total)
	began = began[min(from, len(began)):]
	jobs, err := p.scrapesOf(ctx, began[:min(len(began), scrapesOnPage)])
	d.Jobs = jobs
	return webui.View{Name: "Scrapes", Data: d}, err
}

// offset returns the position of a page in its list.
func offset(q url.Values) (int, error) {
	text := q.Get("from")
	if text == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, webui.Invalid("Invalid page position %.20q.", text)
	}
	return n, nil
}

// turns returns the URLs of the previous and the next page of a list, or "".
func turns(q url.Values, from, size, all int) (before, after string) {
	at := func(n int) string {
		to := maps.Clone(q)
		to.Set("from", strconv.Itoa(n))
		return "?" + to.Encode()
	}
	if from > 0 {
		before = at(max(from-size, 0))
	}
	if from+size < all {
		after = at(from + size)
	}
	return before, after
}

type scrapeData struct {
	sites.Job
	Pace    *pace
	Elapsed time.Duration
	Tables  []recordTable
	NoTable string // reason for showing no records, or ""
	More    int    // hidden groups of errors
	// MoreTypes is the number of hidden types of records.
	MoreTypes int
}

// recordTable has some records of a type as strings.
type recordTable struct {
	Type    string
	Columns []string
	Hidden  int // hidden columns
	Rows    [][]string
	More    bool
}

// Waited returns the reasons for waits of pages, most frequent first.
func (d *scrapeData) Waited() string {
	names := slices.SortedFunc(maps.Keys(d.Delays), func(a, b string) int {
		if n := d.Delays[b] - d.Delays[a]; n != 0 {
			return n
		}
		return strings.Compare(a, b)
	})
	var parts []string
	for _, name := range names {
		parts = append(parts, fmt.Sprintf("%s %d", name, d.Delays[name]))
	}
	return strings.Join(parts, ", ")
}

// Retry reports whether the job ended with missing pages.
func (d *scrapeData) Retry() bool {
	return d.Over() && (d.Status != "COMPLETE" || d.Pages.Error > 0 || d.Pages.Open() > 0)
}

func (p sitePages) scrape(ctx context.Context, r *http.Request) (webui.View, error) {
	id := r.PathValue("job")
	j, err := p.cfg.Sites.Job(ctx, id)
	if err != nil {
		return webui.View{}, err
	}
	now := time.Now()
	d := scrapeData{Job: j, Pace: paceOf(&j, now), Elapsed: now.Sub(j.Began)}
	if j.Summary != nil {
		d.Elapsed = time.Duration(j.Summary.Seconds * float64(time.Second))
		sum := *j.Summary // shared with others
		groups := slices.Clone(sum.Groups)
		slices.SortStableFunc(groups, func(a, b report.Group) int { return b.Pages - a.Pages })
		d.More = max(len(groups)-shownGroups, 0)
		sum.Groups = groups[:len(groups)-d.More]
		d.Summary = &sum
	}
	heads, err := sites.Head(ctx, p.cfg.Sites, id, shownRecords)
	if err != nil {
		d.NoTable = err.Error()
	}
	d.MoreTypes = max(len(heads)-shownTypes, 0)
	for _, h := range heads[:len(heads)-d.MoreTypes] {
		d.Tables = append(d.Tables, tableOf(h))
	}
	return webui.View{Name: id, Data: &d}, nil
}

// tableOf converts records to a table. Its columns are the fields of the first record, followed by fields of other records.
func tableOf(h sites.RecordHead) recordTable {
	t := recordTable{Type: h.Type, More: h.More}
	var all []map[string]json.RawMessage
	for _, record := range h.Records {
		var fields map[string]json.RawMessage
		if json.Unmarshal(record, &fields) != nil {
			continue
		}
		all = append(all, fields)
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			if !strings.HasPrefix(name, "_") && !slices.Contains(t.Columns, name) {
				t.Columns = append(t.Columns, name)
			}
		}
	}
	t.Hidden = max(len(t.Columns)-shownColumns, 0)
	t.Columns = t.Columns[:len(t.Columns)-t.Hidden]
	for _, fields := range all {
		row := make([]string, len(t.Columns))
		for i, name := range t.Columns {
			row[i] = line(shownCell, cell(fields[name]))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// cell returns a value of a record as a string.
func cell(value json.RawMessage) string {
	var text string
	if json.Unmarshal(value, &text) == nil {
		return text
	}
	return string(value)
}
