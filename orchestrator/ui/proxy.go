package ui

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"muster/internal/webui"
	"muster/proxies"
)

// mostVerdicts limits the sites that are checked for a proxy.
const mostVerdicts = 200

type proxyData struct {
	Row    memberRow
	Known  proxies.Detail
	Barred bool // a ban can be ended
}

// errNoProxy is the error of an unknown proxy ID.
var errNoProxy = webui.NotFound("This proxy is not in the pool, and was not within the last day.")

// lookup reads the proxy of a request with its verdicts at some sites.
func (p poolPages) lookup(ctx context.Context, r *http.Request, sites bool) (k proxies.Detail, err error) {
	var names []string
	if sites && p.cfg.Sites != nil {
		if names, err = p.cfg.Sites.Names(ctx); err != nil {
			return k, err
		}
		names = names[:min(len(names), mostVerdicts)]
	}
	k, found, err := p.cfg.Proxies.Lookup(ctx, r.PathValue("proxy"), names)
	if err == nil && !found {
		err = errNoProxy
	}
	return k, err
}

func (p poolPages) proxy(ctx context.Context, r *http.Request) (webui.View, error) {
	k, err := p.lookup(ctx, r, true)
	if err != nil {
		return webui.View{}, err
	}
	now := time.Now()
	for i := range k.Sites {
		if h := k.Sites[i].Health; h != nil && !now.Before(h.Until) {
			h.Until = time.Time{}
		}
	}
	return webui.View{Name: k.Proxy.String(), At: poolURL, Data: proxyData{memberOf(k.Member, now), k, len(bansOf(k)) > 0}}, nil
}

// banTimes are the durations of bans.
var banTimes = []webui.Option{{Value: "1h", Text: "an hour"}, {Value: "24h", Text: "a day"}, {Value: "168h", Text: "a week"}, {Value: "0s", Text: "until it is lifted"}}

// proxyActions returns the actions on the pool and its proxies by path.
func (p poolPages) proxyActions() map[string]webui.Action {
	return map[string]webui.Action{
		"/proxies/refresh": p.ofPool("Refresh the pool", "Refresh it now", "Reads all sources and checks the listed proxies. Working proxies join the pool immediately. If a refresh is running, it is shown instead.",
			func(ctx context.Context) (string, error) { return p.cfg.Proxies.StartRefresh(ctx) }),
		"/proxies/recheck": p.ofPool("Check the pool again", "Check it now", "Checks up to 1,000 proxies whose check is due, and proxies removed within the last day. A proxy that fails rests until its next check.",
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
func (p poolPages) askOne(ctx context.Context, r *http.Request, q webui.Question) (webui.Question, proxies.Detail, error) {
	k, err := p.lookup(ctx, r, true)
	q.Title, q.Back, q.At = q.Title+" "+k.Proxy.String(), proxyURL(r.PathValue("proxy")), poolURL
	return q, k, err
}

func (p poolPages) askBan(ctx context.Context, r *http.Request) (webui.Question, error) {
	from := []webui.Option{{Text: "all sites"}}
	if p.cfg.Sites != nil {
		names, err := p.cfg.Sites.Names(ctx)
		if err != nil {
			return webui.Question{}, err
		}
		for _, name := range names[:min(len(names), mostVerdicts)] {
			from = append(from, webui.Option{Value: name, Text: name})
		}
	}
	q, _, err := p.askOne(ctx, r, webui.Question{
		Title: "Ban", Button: "Ban it", Text: "The proxy stays in the pool but is not used, regardless of the results of checks and requests.",
		Fields: []webui.Field{{Name: "site", Type: "select", Label: "From", Options: from}, {Name: "for", Type: "select", Label: "For", Options: banTimes}},
	})
	return q, err
}

func (p poolPages) ban(ctx context.Context, r *http.Request) (webui.Result, error) {
	d, err := time.ParseDuration(r.PostFormValue("for"))
	if err != nil || d < 0 {
		return webui.Result{}, webui.Invalid("Choose a duration.")
	}
	k, site, err := p.changed(ctx, r)
	if err != nil {
		return webui.Result{}, err
	}
	return webui.Result{To: proxyURL(k.ID)}, p.cfg.Proxies.Ban(ctx, site, d, k.ID)
}

// changed returns the proxy of an action and the site in the form, "" for all.
func (p poolPages) changed(ctx context.Context, r *http.Request) (k proxies.Detail, site string, err error) {
	if k, err = p.lookup(ctx, r, false); err != nil {
		return k, "", err
	}
	if site = r.PostFormValue("site"); site == "" {
		return k, "", nil
	}
	if p.cfg.Sites == nil {
		return k, "", webui.Invalid("No sites are configured.")
	}
	return k, site, p.cfg.Sites.Site(ctx, site)
}

// bansOf returns the sites that have banned a proxy.
func bansOf(k proxies.Detail) []webui.Option {
	var from []webui.Option
	if k.Banned {
		from = append(from, webui.Option{Text: "all sites"})
	}
	for _, v := range k.Sites {
		if v.Ban != nil {
			from = append(from, webui.Option{Value: v.Site, Text: v.Site})
		}
	}
	return from
}

func (p poolPages) askUnban(ctx context.Context, r *http.Request) (webui.Question, error) {
	q, k, err := p.askOne(ctx, r, webui.Question{Title: "Lift a ban of", Button: "Lift the ban", Text: "The proxy can be used again immediately."})
	if err != nil {
		return q, err
	}
	from := bansOf(k)
	if len(from) == 0 {
		return q, webui.Invalid("It is not banned.")
	}
	q.Fields = []webui.Field{{Name: "site", Type: "select", Label: "From", Options: from}}
	return q, nil
}

func (p poolPages) unban(ctx context.Context, r *http.Request) (webui.Result, error) {
	k, site, err := p.changed(ctx, r)
	if err != nil {
		return webui.Result{}, err
	}
	_, err = p.cfg.Proxies.Unban(ctx, site, k.ID)
	return webui.Result{To: proxyURL(k.ID)}, err
}

func (p poolPages) askRecheck(ctx context.Context, r *http.Request) (webui.Question, error) {
	q, _, err := p.askOne(ctx, r, webui.Question{
		Title: "Check again", Button: "Check it now", Text: "A worker checks it. If it fails, that counts against it; one that was removed returns to the pool if it works.",
	})
	return q, err
}

func (p poolPages) recheck(ctx context.Context, r *http.Request) (webui.Result, error) {
	k, err := p.lookup(ctx, r, false)
	if err != nil {
		return webui.Result{}, err
	}
	id, err := p.cfg.Proxies.RecheckProxy(ctx, k)
	return webui.Result{To: flowURL(id)}, p.refused(ctx, err)
}
