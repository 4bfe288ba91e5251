package ui

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster/internal/webui"
	"muster/orchestrator/access"
)

const (
	keysURL    = prefix + "/keys"
	auditURL   = prefix + "/audit"
	accessArea = keysURL // URL of the menu area for admins
	auditLines = 50      // lines of the audit log per page
	keyLines   = 100     // keys per page
	maxKeyDays = 36_500
)

// accessAreas returns the menu areas of keys and the audit log.
func (c Config) accessAreas() []webui.Area {
	a := webui.Area{Link: webui.Link{Text: "Access", URL: accessArea}}
	if c.Keys != nil {
		a.Pages = append(a.Pages, webui.Link{Text: "Keys", URL: keysURL})
	}
	if c.Audit != nil {
		a.Pages = append(a.Pages, webui.Link{Text: "Audit", URL: auditURL})
	}
	if c.Keys == nil {
		return nil
	}
	return []webui.Area{a}
}

// accessPages are the pages of keys and of the audit log, for admins.
type accessPages struct{ *pages }

func (p accessPages) serve() {
	if p.cfg.Audit != nil {
		p.add("GET "+prefix+"/audit", p.site.Page("audit", p.audit))
	}
	if p.cfg.Keys == nil {
		return
	}
	p.add("GET "+prefix+"/keys", p.site.Page("keys", p.keys))
	p.action("/keys/create", webui.Action{Class: webui.Administer, Confirm: askKey, Do: p.createKey})
	p.action("/keys/{key}/revoke", webui.Action{Class: webui.Administer, Confirm: p.askRevoke, Do: p.revokeKey})
}

// keyRow is a key and its state.
type keyRow struct {
	access.Key
	State string
}

type keysData struct {
	Keys []keyRow
	More int
}

// keys lists the keys, usable ones first, newest first.
func (p accessPages) keys(ctx context.Context, _ *http.Request) (webui.View, error) {
	list, err := p.cfg.Keys.List(ctx)
	if err != nil {
		return webui.View{}, err
	}
	now := time.Now()
	rows := make([]keyRow, len(list))
	for i, k := range list {
		rows[i] = keyRow{k, k.State(now)}
	}
	slices.SortStableFunc(rows, func(a, b keyRow) int {
		if x, y := a.State == "active", b.State == "active"; x != y {
			if x {
				return -1
			}
			return 1
		}
		return b.Created.Compare(a.Created)
	})
	more := max(len(rows)-keyLines, 0)
	return webui.View{Name: "Keys", At: keysURL, Data: keysData{rows[:len(rows)-more], more}, Every: 5 * time.Second}, nil
}

// roleTexts describes the permissions of each role.
var roleTexts = map[access.Role]string{
	access.Viewer: "reads", access.Operator: "reads, and changes jobs, agents, sites and proxies",
	access.Admin: "everything, keys and the audit log too", access.Agent: "does the work of agents, nothing else",
}

func askKey(context.Context, *http.Request) (webui.Question, error) {
	var roles []webui.Option
	for _, r := range access.Roles {
		roles = append(roles, webui.Option{Value: string(r), Text: string(r) + ": " + roleTexts[r]})
	}
	return webui.Question{
		Title: "Create a key", Button: "Create the key", Back: keysURL, At: keysURL,
		Text: "Its text is shown once. Where no key was needed so far, each request needs one from now on.",
		Fields: []webui.Field{
			{Name: "name", Type: "text", Label: "Name", Hint: "For people. Keys of the same name are the same owner of agents.", Max: 60, Required: true},
			{Name: "role", Type: "select", Label: "Role", Value: string(access.Viewer), Options: roles},
			{Name: "days", Type: "number", Label: "Expires after (days, 0 for never)", Value: "0", Max: maxKeyDays, Required: true},
		},
	}, nil
}

func (p accessPages) createKey(ctx context.Context, r *http.Request) (webui.Result, error) {
	days, err := strconv.Atoi(r.PostFormValue("days"))
	if err != nil || days < 0 || days > maxKeyDays {
		return webui.Result{}, webui.Invalid("Give a number of days from 0 to %d.", maxKeyDays)
	}
	role, err := access.ParseRole(r.PostFormValue("role"))
	if err != nil {
		return webui.Result{}, webui.Invalid("%v", err)
	}
	n := access.NewKey{Name: strings.TrimSpace(r.PostFormValue("name")), Role: role}
	if days > 0 {
		n.Expires = time.Now().AddDate(0, 0, days)
	}
	k, text, err := p.cfg.Keys.Create(ctx, n)
	if err != nil {
		return webui.Result{}, err
	}
	return webui.Result{
		Title: "Key " + k.Name, Text: "This is the key. It is not stored, and not shown again: copy it now. It is the password of the login of these pages, or the text after Authorization: Bearer.",
		Secret: text, To: keysURL, Created: "/keys/" + k.ID,
	}, nil
}

func (p accessPages) askRevoke(ctx context.Context, r *http.Request) (webui.Question, error) {
	list, err := p.cfg.Keys.List(ctx)
	if err != nil {
		return webui.Question{}, err
	}
	i := slices.IndexFunc(list, func(k access.Key) bool { return k.ID == r.PathValue("key") })
	if i < 0 {
		return webui.Question{}, access.ErrNoKey
	}
	q := webui.Question{
		Title: "Revoke the key " + list[i].Name, Button: "Revoke the key", Danger: true, Back: keysURL, At: keysURL,
		Text: "Within seconds, all processes reject requests with this key. It stays in the list. This cannot be undone.",
	}
	if access.CallerOf(r.Context()).ID == list[i].ID {
		q.Text += " It is the key that you use now."
	}
	return q, nil
}

func (p accessPages) revokeKey(ctx context.Context, r *http.Request) (webui.Result, error) {
	_, err := p.cfg.Keys.Revoke(ctx, r.PathValue("key"))
	return webui.Result{To: keysURL}, err
}

type auditData struct {
	Caller, Operation, Since, Until string // of the filter; times in the format of the form
	Entries                         []access.Entry
	Next                            string // URL of the next page; "" on the last one
}

// auditDay is the time format of the form, in UTC.
const auditDay = "2006-01-02T15:04"

// auditTime parses a time of the form; "" is the zero time.
func auditTime(text string) (at time.Time, err error) {
	if text == "" {
		return at, nil
	}
	if at, err = time.Parse(auditDay, text); err != nil {
		return at, webui.Invalid("%.40q is not a time; write it as %s, in UTC.", text, auditDay)
	}
	return at, nil
}

func (p accessPages) audit(ctx context.Context, r *http.Request) (webui.View, error) {
	q := r.URL.Query()
	d := auditData{Caller: strings.TrimSpace(q.Get("caller")), Operation: strings.TrimSpace(q.Get("operation")), Since: q.Get("since"), Until: q.Get("until")}
	if len(d.Caller)+len(d.Operation) > 400 {
		return webui.View{}, webui.Invalid("It is too long.")
	}
	f := access.AuditFilter{Caller: d.Caller, Operation: d.Operation, Before: q.Get("before"), Limit: auditLines}
	var err error
	if f.Since, err = auditTime(d.Since); err != nil {
		return webui.View{}, err
	}
	if f.Until, err = auditTime(d.Until); err != nil {
		return webui.View{}, err
	}
	page, err := p.cfg.Audit.List(ctx, f)
	if err != nil {
		return webui.View{}, err
	}
	d.Entries = page.Entries
	if page.Next != "" {
		q.Set("before", page.Next)
		d.Next = "?" + q.Encode()
	}
	return webui.View{Name: "Audit", At: auditURL, Data: d}, nil
}
