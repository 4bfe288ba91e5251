package ui

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"muster/internal/counts"
	"muster/internal/webui"
	"muster/sites"
	"muster/sites/report"
)

const (
	scrapesOnPage = 25
	shownRecords  = 8  // records per type
	shownColumns  = 10 // columns of records
	shownCell     = 80 // characters
)

type scrapesData struct {
	webui.Part
	Site string // "": all
	Jobs []sites.Job
}

// scrapes lists the scrapes of the last week.
func (p *pages) scrapes(ctx context.Context, r *http.Request) (webui.View, error) {
	q := r.URL.Query()
	began, err := p.Sites.JobsSince(ctx, time.Time{})
	if err != nil {
		return webui.View{}, err
	}
	d := scrapesData{Site: q.Get("site")}
	began = slices.DeleteFunc(began, func(j sites.JobBegan) bool { return d.Site != "" && j.Site != d.Site })
	if d.Part, err = webui.NewPart(q, scrapesOnPage, len(began)); err != nil {
		return webui.View{}, err
	}
	for _, b := range began[d.From:d.To] {
		j, err := p.Sites.Job(ctx, b.ID)
		if errors.Is(err, sites.ErrNoJob) {
			continue
		}
		if err != nil {
			return webui.View{}, err
		}
		d.Jobs = append(d.Jobs, j)
	}
	return webui.View{Name: "Scrapes", Data: d}, nil
}

type scrapeData struct {
	sites.Job
	Groups  []report.Group // of errors, the most frequent first
	Tables  []recordTable
	NoTable string // reason for showing no records, or ""
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
func (d *scrapeData) Waited() string { return counts.Text(d.Delays) }

// Retry reports whether the job ended with missing pages.
func (d *scrapeData) Retry() bool {
	return d.Over() && (d.Status != "COMPLETE" || d.Pages.Error > 0 || d.Pages.Open() > 0)
}

func (p *pages) scrape(ctx context.Context, r *http.Request) (webui.View, error) {
	id := r.PathValue("job")
	j, err := p.Sites.Job(ctx, id)
	if err != nil {
		return webui.View{}, err
	}
	d := &scrapeData{Job: j}
	if j.Summary != nil {
		d.Groups = slices.Clone(j.Summary.Groups)
		slices.SortStableFunc(d.Groups, func(a, b report.Group) int { return b.Pages - a.Pages })
	}
	heads, err := sites.Head(ctx, p.Sites, id, shownRecords)
	if err != nil {
		d.NoTable = err.Error()
	}
	for _, h := range heads {
		d.Tables = append(d.Tables, tableOf(h))
	}
	return webui.View{Name: id, Data: d}, nil
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
