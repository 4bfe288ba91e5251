package ui

import (
	"context"
	"net/http"
	"net/url"

	"muster/internal/webui"
	"muster/proxies"
)

// mostBanSites limits the sites from which a proxy can be banned on a page.
const mostBanSites = 200

// banTimes are the durations of bans.
var banTimes = []webui.Option{{Value: "1h", Text: "an hour"}, {Value: "24h", Text: "a day"}, {Value: "168h", Text: "a week"}, {Value: "0s", Text: "until it is lifted"}}

// proxyActions returns the actions on the pool and its proxies by path.
func (p *pages) proxyActions() map[string]webui.Action {
	bans := func(q webui.Question, do func(ctx context.Context, m proxies.Member, site string, f webui.Form) error) webui.Action {
		return p.ofProxy(q, true, func(ctx context.Context, m proxies.Member, f webui.Form) (webui.Result, error) {
			return webui.Result{}, do(ctx, m, f["site"], f)
		})
	}
	return map[string]webui.Action{
		"/proxies/refresh": p.ofPool("Refresh the pool", "Refresh it now", "Reads all sources and checks the listed proxies. Working proxies join the pool immediately. If a refresh is running, it is shown instead.",
			p.Proxies.StartRefresh),
		"/proxies/recheck": p.ofPool("Check the pool again", "Check it now", "Checks up to 1,000 proxies whose check is due. A proxy that fails rests until its next check.",
			p.Proxies.StartRecheck),
		"/proxies/{proxy}/ban": bans(webui.Question{
			Title: "Ban", Button: "Ban it", Text: "The proxy stays in the pool but is not used, regardless of the results of checks and requests.",
			Fields: []webui.Field{{Name: "for", Type: "select", Label: "For", Options: banTimes}},
		}, func(ctx context.Context, m proxies.Member, site string, f webui.Form) error {
			return p.Proxies.Ban(ctx, site, f.Duration("for"), m.ID)
		}),
		"/proxies/{proxy}/unban": bans(webui.Question{Title: "Lift a ban of", Button: "Lift the ban", Text: "The proxy can be used again immediately."},
			func(ctx context.Context, m proxies.Member, site string, _ webui.Form) error {
				n, err := p.Proxies.Unban(ctx, site, m.ID)
				if err == nil && n == 0 {
					err = webui.Invalid("There is no such ban.")
				}
				return err
			}),
		"/proxies/{proxy}/recheck": p.ofProxy(webui.Question{Title: "Check again", Button: "Check it now", Text: "A worker checks it. If it fails, that counts against it."}, false,
			func(ctx context.Context, m proxies.Member, _ webui.Form) (webui.Result, error) {
				id, err := p.Proxies.RecheckProxy(ctx, m)
				return webui.Result{To: flowURL(id)}, p.refused(ctx, err)
			}),
	}
}

// ofPool returns an action on the pool that starts a workflow and opens its page. start returns the ID of the workflow.
func (p *pages) ofPool(title, button, text string, start func(context.Context) (string, error)) webui.Action {
	return func(context.Context, *http.Request) (webui.Question, error) {
		return webui.Question{Title: title, Button: button, Text: text, Back: poolURL, Do: func(ctx context.Context, _ webui.Form) (webui.Result, error) {
			id, err := start(ctx)
			return webui.Result{To: flowURL(id)}, p.refused(ctx, err)
		}}, nil
	}
}

// flowURL returns the URL of the page of a workflow.
func flowURL(id string) string { return fleet + "workflows/" + url.PathEscape(id) }

// ofProxy returns an action on the proxy of a request. With ofSite it has a field for a site, or all of them.
func (p *pages) ofProxy(q webui.Question, ofSite bool, do func(context.Context, proxies.Member, webui.Form) (webui.Result, error)) webui.Action {
	return func(ctx context.Context, r *http.Request) (webui.Question, error) {
		found, err := p.Proxies.Find(ctx, r.PathValue("proxy"))
		if err == nil && len(found) != 1 {
			err = webui.NotFound("This proxy is not in the pool.")
		}
		if err != nil {
			return webui.Question{}, err
		}
		m, q := found[0], q
		q.Title, q.Back = q.Title+" "+m.Proxy.String(), proxyURL(m)
		q.Do = func(ctx context.Context, f webui.Form) (webui.Result, error) { return do(ctx, m, f) }
		if !ofSite {
			return q, nil
		}
		from := webui.Field{Name: "site", Type: "select", Label: "From", Options: []webui.Option{{Text: "all sites"}}}
		if p.Sites != nil {
			names, err := p.Sites.Names(ctx)
			if err != nil {
				return q, err
			}
			for _, name := range names[:min(len(names), mostBanSites)] {
				from.Options = append(from.Options, webui.Option{Value: name, Text: name})
			}
		}
		q.Fields = append([]webui.Field{from}, q.Fields...)
		return q, nil
	}
}
