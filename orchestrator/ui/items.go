package ui

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"muster/internal/webui"
	"muster/jobs"
	taskui "muster/tasks/ui"
)

const (
	itemsShown     = 50
	itemsLooked    = 2000     // items searched for a state
	itemTextShown  = 20 << 10 // bytes
	listShown      = 100      // citations, and other lists of an item
	historyRead    = 500      // events of a job searched for an item
	comparedMost   = 20_000   // items of both jobs
	comparedShown  = 200      // that differ
	differenceText = 200      // bytes
)

// itemRow is an item of a list.
type itemRow struct{ jobs.Item }

// Summary returns the subject of the item, or the reason of its failure.
func (it itemRow) Summary() string {
	text := cmp.Or(it.Name, it.Text)
	switch it.Status {
	case jobs.ItemRejected:
		text = cmp.Or(it.RejectionReason, text)
	case jobs.ItemFailed, jobs.ItemReview:
		text = cmp.Or(it.LastError, text)
	}
	return text
}

// Bad reports whether the summary is the error of a failed item.
func (it itemRow) Bad() bool { return it.Status == jobs.ItemFailed && it.LastError != "" }

func rowsOf(items []jobs.Item) []itemRow {
	rows := make([]itemRow, len(items))
	for i, it := range items {
		rows[i] = itemRow{it}
	}
	return rows
}

type itemsData struct {
	Job    jobs.Job
	State  jobs.ItemStatus
	Filter *webui.Filter
	Rows   []itemRow
	First  bool
	Next   string // "" on the last page
}

// items lists the items of a job, by state.
func (c jobPages) items(ctx context.Context, r *http.Request) (webui.View, error) {
	id, q := r.PathValue("job"), r.URL.Query()
	d := itemsData{State: jobs.ItemStatus(q.Get("state")), First: q.Get("after") == ""}
	after := q.Get("after")
	if err := checkLength(maxCursor+2*jobs.MaxKey, after); err != nil {
		return webui.View{}, err
	}
	var err error
	if d.Job, err = c.Jobs.Summary(ctx, id); err != nil {
		return webui.View{}, noJob(id, err)
	}
	var items []jobs.Item
	var next string
	if d.State == jobs.ItemFailed || d.State == jobs.ItemReview {
		items, next, err = c.failures(ctx, id, d.State, after)
	} else {
		var page jobs.ItemPage
		page, err = c.Jobs.Items(ctx, id, jobs.ItemFilter{Status: d.State, Cursor: after, Limit: itemsShown, Looks: itemsLooked})
		items, next = page.Items, page.Next
	}
	if err != nil {
		return webui.View{}, noJob(id, err)
	}
	n := d.Job.Items
	d.Filter = webui.NewFilter(q)
	d.Filter.AddTab(q, "state", "", "All", n.Total)
	for _, p := range []part{
		{State: "pending", N: n.Pending}, {State: "validating", N: n.Validating}, {State: "integrated", N: n.Integrated},
		{State: "rejected", N: n.Rejected}, {State: "failed", N: n.Failed}, {State: "review", N: n.Review},
	} {
		d.Filter.AddTab(q, "state", p.State, "", p.N)
	}
	d.Rows = rowsOf(items)
	if next != "" {
		d.Next = "?" + url.Values{"state": {string(d.State)}, "after": {next}}.Encode()
	}
	return webui.View{Name: "Items of " + webui.Plain(d.Job.Name), Data: d}, nil
}

// failures returns a page of items that failed or are in review.
func (c jobPages) failures(ctx context.Context, id string, state jobs.ItemStatus, after string) ([]jobs.Item, string, error) {
	offset := 0
	if after != "" {
		var err error
		if offset, err = strconv.Atoi(after); err != nil || offset < 0 {
			return nil, "", webui.Invalid("Invalid page address; start with the first page.")
		}
	}
	items, next, err := c.Jobs.Failures(ctx, id, state, offset, itemsShown)
	if next == 0 {
		return items, "", err
	}
	return items, strconv.Itoa(next), err
}

// field is a named string of an item.
type field struct{ Name, Text string }

// texts is a list of an item.
type texts struct {
	Name string
	List []string
	More int
}

// decideLink is a choice for an item in review.
type decideLink struct {
	taskui.Choice
	URL string
}

type itemData struct {
	Job     string
	Item    jobs.Item
	Key     string
	Text    webui.Document
	Notes   webui.Document
	Data    webui.Document
	Error   webui.Document
	Reason  webui.Document
	Fields  []field
	Lists   []texts
	History []eventRow
	Whole   string       // URL of the item as JSON
	Decide  []decideLink // of an item in review
}

// item shows an item of a job with its history.
func (c jobPages) item(ctx context.Context, r *http.Request) (webui.View, error) {
	id, key := r.PathValue("job"), r.URL.Query().Get("key")
	it, err := c.Jobs.Item(ctx, id, key)
	if errors.Is(err, jobs.ErrNoItem) {
		return webui.View{}, webui.NotFound("Item not found.")
	}
	if err != nil {
		return webui.View{}, noJob(id, err)
	}
	d := itemData{
		Job: id, Item: it, Key: it.Key, Text: webui.NewDocument(it.Text, itemTextShown), Notes: webui.NewDocument(it.ResearchNotes, itemTextShown), Data: indented(it.Data),
		Error: webui.NewDocument(it.LastError, itemTextShown), Reason: webui.NewDocument(it.RejectionReason, itemTextShown),
		Whole: "/v1/jobs/" + url.PathEscape(id) + "/items/" + url.PathEscape(it.Key),
	}
	for _, choice := range itemChoices {
		if it.Status == jobs.ItemReview {
			d.Decide = append(d.Decide, decideLink{choice, decideURL(choice.Label, id, it.Key)})
		}
	}
	confidence := ""
	if it.Confidence != nil {
		confidence = strconv.FormatFloat(*it.Confidence, 'g', 3, 64)
	}
	for _, f := range []field{
		{"Name", it.Name}, {"Type", it.Type}, {"Priority", it.Priority}, {"Source", it.SourceDocument}, {"Place in the source", it.SourceLocation},
		{"Confidence", confidence}, {"External id", it.ExternalID},
	} {
		if f.Text != "" {
			d.Fields = append(d.Fields, f)
		}
	}
	var labels []string
	for _, label := range slices.Sorted(maps.Keys(it.Labels)) {
		labels = append(labels, label+": "+map[bool]string{true: "yes", false: "no"}[it.Labels[label]])
	}
	for _, l := range []texts{{"Labels", labels, 0}, {"Citations", it.Citations, 0}, {"Objects", it.MentionedObjects, 0}, {"Messages", it.MentionedMessages, 0}} {
		if len(l.List) > listShown {
			l.List, l.More = l.List[:listShown], len(l.List)-listShown
		}
		if len(l.List) > 0 {
			d.Lists = append(d.Lists, l)
		}
	}
	if c.Events != nil {
		list, err := c.Events.Last(ctx, id, historyRead)
		if err != nil {
			return webui.View{}, err
		}
		for _, e := range list {
			var of struct{ Key string }
			if json.Unmarshal(e.Data, &of) == nil && of.Key == it.Key {
				d.History = append(d.History, rowOf(e))
			}
		}
	}
	return webui.View{Name: "Item", Data: d}, nil
}

type compareData struct {
	Before             string // ID of the other job
	New, Gone, Changed int
	Same               int
	Rows               []differenceRow
	Partial            bool // not all items were compared
}

// differenceRow is a difference of an item.
type differenceRow struct{ Key, Change, Before, After string }

// errEnough stops a comparison at its limit.
var errEnough = errors.New("enough was compared")

// compare returns the differences between the items of two jobs.
func (c jobPages) compare(ctx context.Context, before, id string) (*compareData, error) {
	d := &compareData{Before: before}
	looked := 0
	err := c.Jobs.Compare(ctx, before, id, func(diff jobs.Difference) error {
		if looked++; looked > comparedMost {
			return errEnough
		}
		switch diff.Change {
		case jobs.ChangeSame:
			d.Same++
			return nil
		case jobs.ChangeNew:
			d.New++
		case jobs.ChangeGone:
			d.Gone++
		case jobs.ChangeChanged:
			d.Changed++
		}
		if len(d.Rows) < comparedShown {
			d.Rows = append(d.Rows, differenceRow{diff.Key, diff.Change, textOf(diff.A), textOf(diff.B)})
		}
		return nil
	})
	if d.Partial = errors.Is(err, errEnough); err != nil && !d.Partial {
		return nil, noJob(before, err)
	}
	return d, nil
}

// textOf returns the text of an item for a comparison.
func textOf(it *jobs.Item) string {
	if it == nil {
		return ""
	}
	return string(it.Status) + ": " + webui.NewDocument(it.Text, differenceText).Text
}
