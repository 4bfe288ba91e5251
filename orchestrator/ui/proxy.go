package ui

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"muster/internal/webui"
	"muster/proxies"
)

// mostBanSites limits the sites from which a proxy can be banned on a page.
const mostBanSites = 200

// lookup returns the proxy of a request.
func (p poolPages) lookup(ctx context.Context, r *http.Request) (proxies.Member, error) {
	found, err := p.cfg.Proxies.Find(ctx, r.PathValue("proxy"))
	if err == nil && len(found) != 1 {
		err = webui.NotFound("This proxy is not in the pool.")
	}
	if err != nil {
		return proxies.Member{}, err
	}
	return found[0], nil
}

// banTimes are the durations of bans.
var banTimes = []webui.Option{{Value: "1h", Text: "an hour"}, {Value: "24h", Text: "a day"}, {Value: "168h", Text: "a week"}, {Value: "0s", Text: "until it is lifted"}}

// proxyActions returns the actions on the pool and its proxies by path.
func (p poolPages) proxyActions() map[string]webui.Action {
	return map[string]webui.Action{
		"/proxies/refresh": p.ofPool("Refresh the pool", "Refresh it now", "Reads all sources and checks the listed proxies. Working proxies join the pool immediately. If a refresh is running, it is shown instead.",
			func(ctx context.Context) (string, error) { return p.cfg.Proxies.StartRefresh(ctx) }),
		"/proxies/recheck": p.ofPool("Check the pool again", "Check it now", "Checks up to 1,000 proxies whose check is due. A proxy that fails rests until its next check.",
			func(ctx context.Context) (string, error) { return p.cfg.Proxies.StartRecheck(ctx) }),
		"/proxies/{proxy}/ban":     {Class: webui.Operate, Confirm: p.askBan, Do: p.ban},
		"/proxies/{proxy}/unban":   {Class: webui.Operate, Confirm: p.askUnban, Do: p.unban},
		"/proxies/{proxy}/recheck": {Class: webui.Operate, Confirm: p.askRecheck, Do: p.recheck},
	}
}

// ofPool returns an action on the pool that starts a workflow and opens its page. start returns the ID of the workflow.
func (p poolPages) ofPool(title, button, text string, start func(context.Context) (string, error)) webui.Action {
	return webui.Action{
		Class: webui.Operate,
		Confirm: func(context.Context, *http.Request) (webui.Question, error) {
			return webui.Question{Title: title, Button: button, Text: text, Back: poolURL, At: poolURL}, nil
		},
		Do: func(ctx context.Context, _ *http.Request) (webui.Result, error) {
			id, err := start(ctx)
			return webui.Result{To: flowURL(id)}, p.refused(ctx, err)
		},
	}
}

// flowURL returns the URL of the page of a workflow.
func flowURL(id string) string { return fleet + "workflows/" + url.PathEscape(id) }

// askOne returns a question about a proxy.
func (p poolPages) askOne(ctx context.Context, r *http.Request, q webui.Question) (webui.Question, error) {
	m, err := p.lookup(ctx, r)
	q.Title, q.Back, q.At = q.Title+" "+m.Proxy.String(), proxyURL(m), poolURL
	return q, err
}

// sitesField returns the field for the site of a ban.
func (p poolPages) sitesField(ctx context.Context) (webui.Field, error) {
	f := webui.Field{Name: "site", Type: "select", Label: "From", Options: []webui.Option{{Text: "all sites"}}}
	if p.cfg.Sites == nil {
		return f, nil
	}
	names, err := p.cfg.Sites.Names(ctx)
	for _, name := range names[:min(len(names), mostBanSites)] {
		f.Options = append(f.Options, webui.Option{Value: name, Text: name})
	}
	return f, err
}

func (p poolPages) askBan(ctx context.Context, r *http.Request) (webui.Question, error) {
	from, err := p.sitesField(ctx)
	if err != nil {
		return webui.Question{}, err
	}
	return p.askOne(ctx, r, webui.Question{
		Title: "Ban", Button: "Ban it", Text: "The proxy stays in the pool but is not used, regardless of the results of checks and requests.",
		Fields: []webui.Field{from, {Name: "for", Type: "select", Label: "For", Options: banTimes}},
	})
}

func (p poolPages) ban(ctx context.Context, r *http.Request) (webui.Result, error) {
	d, err := time.ParseDuration(r.PostFormValue("for"))
	if err != nil || d < 0 {
		return webui.Result{}, webui.Invalid("Choose a duration.")
	}
	m, site, err := p.changed(ctx, r)
	if err != nil {
		return webui.Result{}, err
	}
	return webui.Result{To: proxyURL(m)}, p.cfg.Proxies.Ban(ctx, site, d, m.ID)
}

// changed returns the proxy of an action and the site in the form, "" for all.
func (p poolPages) changed(ctx context.Context, r *http.Request) (m proxies.Member, site string, err error) {
	if m, err = p.lookup(ctx, r); err != nil {
		return m, "", err
	}
	if site = r.PostFormValue("site"); site == "" {
		return m, "", nil
	}
	if p.cfg.Sites == nil {
		return m, "", webui.Invalid("No sites are configured.")
	}
	return m, site, p.cfg.Sites.Site(ctx, site)
}

func (p poolPages) askUnban(ctx context.Context, r *http.Request) (webui.Question, error) {
	from, err := p.sitesField(ctx)
	if err != nil {
		return webui.Question{}, err
	}
	return p.askOne(ctx, r, webui.Question{Title: "Lift a ban of", Button: "Lift the ban", Text: "The proxy can be used again immediately.", Fields: []webui.Field{from}})
}

func (p poolPages) unban(ctx context.Context, r *http.Request) (webui.Result, error) {
	m, site, err := p.changed(ctx, r)
	if err != nil {
		return webui.Result{}, err
	}
	n, err := p.cfg.Proxies.Unban(ctx, site, m.ID)
	if err == nil && n == 0 {
		err = webui.Invalid("There is no such ban.")
	}
	return webui.Result{To: proxyURL(m)}, err
}

func (p poolPages) askRecheck(ctx context.Context, r *http.Request) (webui.Question, error) {
	return p.askOne(ctx, r, webui.Question{
		Title: "Check again", Button: "Check it now", Text: "A worker checks it. If it fails, that counts against it.",
	})
}

func (p poolPages) recheck(ctx context.Context, r *http.Request) (webui.Result, error) {
	m, err := p.lookup(ctx, r)
	if err != nil {
		return webui.Result{}, err
	}
	id, err := p.cfg.Proxies.RecheckProxy(ctx, m)
	return webui.Result{To: flowURL(id)}, p.refused(ctx, err)
}
