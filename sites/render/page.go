package render

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/fetch"
	"github.com/chromedp/cdproto/inspector"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

const (
	quietTime = 500 * time.Millisecond // without a request that begins or ends, before a page is complete
	lookEvery = 50 * time.Millisecond
)

// Render implements Renderer.
func (b *Browser) Render(ctx context.Context, r Request) (*http.Response, error) {
	at, err := r.check()
	if err != nil {
		return nil, &Error{Failed, err}
	}
	free := time.NewTimer(r.timeout())
	defer free.Stop()
	select {
	case b.tabs <- struct{}{}:
		defer func() { <-b.tabs }()
	case <-free.C:
		return nil, &Error{Failed, fmt.Errorf("no free tab within %s", r.timeout())}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	p, err := b.take()
	if err != nil {
		return nil, &Error{Failed, err}
	}
	if r.Filter == nil {
		r.Filter = b.cfg.Filter
	}
	defer b.leave(p)
	return p.render(ctx, &tab{r: &r, at: at, pending: map[network.RequestID]bool{}})
}

// render renders a page in a new tab.
func (p *process) render(ctx context.Context, t *tab) (res *http.Response, err error) {
	ended, cancel := context.WithCancelCause(p.ctx)
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })()
	t.fail = func(class string, err error) { cancel(&Error{class, err}) }
	timed, stop := context.WithTimeoutCause(ended, t.r.timeout(), &Error{Timeout, fmt.Errorf("the page is not complete within %s", t.r.timeout())})
	defer stop()

	t.ctx = timed
	if t.session, err = p.open(timed, t.r); err == nil {
		defer p.release(t.r, t.session)
		var closeTab context.CancelFunc
		t.ctx, closeTab = chromedp.NewContext(timed, chromedp.WithExistingBrowserContext(t.session.id), chromedp.WithListener(t.on))
		defer closeTab()
		res, err = t.render()
	}
	return res, t.explain(p, err)
}

// explain returns the error of a page that could not be rendered.
func (t *tab) explain(p *process, err error) error {
	if err == nil || errors.As(err, new(*Error)) {
		return err
	}
	cause := context.Cause(t.ctx)
	switch {
	case errors.As(cause, new(*Error)):
		return cause
	case p.ctx.Err() != nil:
		return &Error{Failed, errors.New("the browser has ended")}
	case cause != nil:
		return cause
	}
	return &Error{Failed, err}
}

// tab renders one page.
type tab struct {
	r       *Request
	at      *url.URL // of the request
	session *session
	ctx     context.Context
	target  *chromedp.Target
	fail    func(class string, err error) // ends ctx

	mu       sync.Mutex // guards the fields below
	pending  map[network.RequestID]bool
	changed  time.Time // when a request began or ended
	loaded   bool
	bytes    int64
	main     network.RequestID // of the document
	host     string            // of main
	response *network.Response // to main; nil before it
}

func (t *tab) render() (*http.Response, error) {
	if err := chromedp.Do(t.ctx); err != nil { // opens the tab
		return nil, err
	}
	t.target = chromedp.FromContext(t.ctx).Target
	yes := true
	if agent := t.r.Headers["User-Agent"]; agent != "" {
		if _, err := cdp.Call(t.ctx, t.target, emulation.SetUserAgentOverride, emulation.SetUserAgentOverrideParams{UserAgent: agent, AcceptLanguage: t.r.Headers["Accept-Language"]}); err != nil {
			return nil, err
		}
	}
	if _, err := cdp.Call(t.ctx, t.target, network.SetBypassServiceWorker, network.SetBypassServiceWorkerParams{Bypass: true}); err != nil {
		return nil, err // service workers send requests that the tab does not see
	}
	if _, err := cdp.Call(t.ctx, t.target, fetch.Enable, fetch.EnableParams{HandleAuthRequests: &yes}); err != nil {
		return nil, err
	}
	began, err := cdp.Call(t.ctx, t.target, page.Navigate, page.NavigateParams{URL: t.r.URL})
	if err != nil {
		return nil, err
	}
	if began.ErrorText != "" {
		return t.unloaded(began.ErrorText)
	}
	if err := t.wait(); err != nil {
		return nil, err
	}
	return t.read()
}

// unloaded returns the response or the error of a page without a document.
func (t *tab) unloaded(reason string) (*http.Response, error) {
	t.mu.Lock()
	response, host := t.response, t.host
	t.mu.Unlock()
	if response != nil && (response.Status >= 400 || response.Status == http.StatusNoContent) { // without a body
		return t.answer(t.r.URL, response, nil)
	}
	if err := t.session.outlet.failure(host); err != nil {
		return nil, &Error{Connect, err}
	}
	class, err := Connect, errors.New(reason)
	switch {
	case strings.Contains(reason, "PROXY"), strings.Contains(reason, "TUNNEL"):
		class = Proxy
	case strings.Contains(reason, "TIMED_OUT"):
		class = Timeout
	case strings.Contains(reason, "ERR_ABORTED"):
		class, err = BadType, errors.New("the page is a download")
	}
	return nil, &Error{class, err}
}

// wait waits until an element matches Request.Wait or, without one, until the page has been loaded and is quiet. After half of the
// time it takes the page as it is, if its document has been received.
func (t *tab) wait() error {
	late := time.Now().Add(t.r.timeout() / 2)
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-t.ctx.Done():
			return t.ctx.Err()
		case <-tick.C:
		}
		t.mu.Lock()
		isQuiet := t.loaded && len(t.pending) == 0 && time.Since(t.changed) > quietTime
		received := t.response != nil && !t.pending[t.main]
		good := received && t.response.Status < 400
		t.mu.Unlock()
		if t.r.Wait != "" && good {
			selector, _ := json.Marshal(t.r.Wait) // never fails
			found, err := evaluate[bool](t, "!!document.querySelector("+string(selector)+")")
			if err != nil || found {
				return err
			}
			isQuiet = false
		}
		if isQuiet || received && time.Now().After(late) {
			return nil
		}
	}
}

// evaluate runs an expression beside the scripts of the page, which cannot change its meaning.
func evaluate[T any](t *tab, expression string) (value T, err error) {
	world, err := cdp.Call(t.ctx, t.target, page.CreateIsolatedWorld, page.CreateIsolatedWorldParams{FrameID: cdp.FrameID(t.target.TargetID)})
	if err != nil {
		return value, err
	}
	yes := true
	got, err := cdp.Call(t.ctx, t.target, runtime.Evaluate, runtime.EvaluateParams{Expression: expression, ContextID: world.ExecutionContextID, ReturnByValue: &yes})
	if err != nil {
		return value, err
	}
	if e := got.ExceptionDetails; e != nil {
		return value, errors.New(cmp.Or(e.Exception.Description, e.Text))
	}
	return value, json.Unmarshal(got.Result.Value, &value)
}

// read returns the page.
func (t *tab) read() (*http.Response, error) {
	t.mu.Lock()
	response, main := t.response, t.main
	t.mu.Unlock()
	if response == nil {
		return nil, errors.New("the page has no response")
	}
	type document struct {
		URL  string
		HTML *string
	}
	now, err := evaluate[document](t, fmt.Sprintf(`(max => {
		const html = document.documentElement?.outerHTML ?? ""
		return {URL: location.href, HTML: html.length > max ? null : html}
	})(%d)`, t.r.maxBytes()))
	if err != nil {
		return nil, err
	}
	if now.HTML == nil {
		return nil, t.tooBig()
	}
	if strings.Contains(response.MimeType, "html") {
		response.MimeType, response.Charset = "text/html", "utf-8"
		return t.answer(now.URL, response, []byte(*now.HTML))
	}
	body, err := cdp.Call(t.ctx, t.target, network.GetResponseBody, network.GetResponseBodyParams{RequestID: main})
	if err != nil {
		return nil, err
	}
	return t.answer(now.URL, response, body.Body)
}

func (t *tab) tooBig() *Error {
	return &Error{TooBig, fmt.Errorf("the page and what it loads exceed %d bytes", t.r.maxBytes())}
}

// answer returns a response with the cookies of the session for its URL.
func (t *tab) answer(at string, of *network.Response, body []byte) (*http.Response, error) {
	res := &http.Response{StatusCode: int(of.Status), Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body))}
	for name, value := range of.Headers {
		if text, ok := value.(string); ok && !slices.Contains(rewritten, http.CanonicalHeaderKey(name)) {
			for line := range strings.SplitSeq(text, "\n") {
				res.Header.Add(name, line)
			}
		}
	}
	kind := of.MimeType
	if of.Charset != "" {
		kind += "; charset=" + of.Charset
	}
	res.Header.Set("Content-Type", kind)
	res.Header.Set(urlHeader, at)
	if t.r.Proxy != "" && strings.Contains(res.Header.Get("Proxy-Status"), "error=") { // of plain http
		return nil, &Error{Proxy, fmt.Errorf("%s: %.200s", res.Header.Get("Proxy-Status"), bytes.TrimSpace(body))}
	}
	jar, err := cdp.Call(t.ctx, t.target, network.GetCookies, network.GetCookiesParams{URLs: []string{at}})
	if err != nil {
		return nil, err
	}
	for _, c := range jar.Cookies {
		set := http.Cookie{Name: c.Name, Value: c.Value, Path: c.Path, Secure: c.Secure, HttpOnly: c.HTTPOnly}
		if strings.HasPrefix(c.Domain, ".") {
			set.Domain = c.Domain[1:]
		}
		if c.Expires > 0 {
			set.Expires = time.Unix(int64(c.Expires), 0)
		}
		res.Header.Add("Set-Cookie", set.String())
	}
	return res, nil
}

// rewritten are the headers of a page that do not describe its HTML.
var rewritten = []string{"Content-Length", "Content-Encoding", "Transfer-Encoding", "Connection", "Set-Cookie", statusHeader, urlHeader}

// on receives the events of the tab. It must not block.
func (t *tab) on(event any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	ended := func(id network.RequestID) {
		if t.pending[id] {
			delete(t.pending, id)
			t.changed = time.Now()
		}
	}
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		t.pending[e.RequestID] = true
		t.changed = time.Now()
		if e.Type == network.ResourceTypeDocument && t.isMain(e.FrameID) {
			t.main, t.response, t.loaded = e.RequestID, nil, false
			if u, err := url.Parse(e.Request.URL); err == nil {
				t.host = u.Host
			}
		}
	case *network.EventResponseReceived:
		if e.RequestID == t.main {
			t.response = e.Response
		}
		if e.Type == network.ResourceTypeEventSource { // never ends
			ended(e.RequestID)
		}
	case *network.EventDataReceived:
		if t.bytes += max(e.DataLength, e.EncodedDataLength); t.bytes > t.r.maxBytes() {
			t.fail(TooBig, t.tooBig().Err)
		}
	case *network.EventLoadingFinished:
		ended(e.RequestID)
	case *network.EventLoadingFailed:
		ended(e.RequestID)
	case *page.EventLoadEventFired:
		t.loaded, t.changed = true, time.Now()
	case *page.EventJavascriptDialogOpening:
		go send(t, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{Accept: e.Type == page.DialogTypeBeforeunload})
	case *inspector.EventTargetCrashed:
		t.fail(Failed, errors.New("the tab crashed"))
	case *fetch.EventRequestPaused:
		go t.pass(e)
	case *fetch.EventAuthRequired:
		answer := &fetch.AuthChallengeResponse{Response: fetch.AuthChallengeResponseResponseCancelAuth}
		if login := t.session.login; login != nil && e.AuthChallenge.Source == fetch.AuthChallengeSourceProxy {
			answer.Response, answer.Username = fetch.AuthChallengeResponseResponseProvideCredentials, login.Username()
			answer.Password, _ = login.Password()
		}
		go send(t, fetch.ContinueWithAuth, fetch.ContinueWithAuthParams{RequestID: e.RequestID, AuthChallengeResponse: answer})
	}
}

// isMain reports whether a frame is the page itself.
func (t *tab) isMain(frame cdp.FrameID) bool {
	return t.target != nil && string(frame) == string(t.target.TargetID)
}

// send sends a command whose failure ends the page anyway.
func send[P, R any](t *tab, command cdp.Command[P, R], params P) {
	_, _ = cdp.Call(t.ctx, t.target, command, params)
}

// pass decides on a request of the page: it blocks what no record needs, and adds the headers of the request to requests to its host.
func (t *tab) pass(e *fetch.EventRequestPaused) {
	u, err := url.Parse(e.Request.URL)
	switch {
	case e.ResourceType == network.ResourceTypeImage: // an error would make scripts replace its URL
		send(t, fetch.FulfillRequest, fetch.FulfillRequestParams{RequestID: e.RequestID, ResponseCode: http.StatusOK, ResponseHeaders: []*fetch.HeaderEntry{{Name: "Content-Type", Value: "image/gif"}}, Body: pixel})
		return
	case err != nil, slices.Contains(blocked, e.ResourceType), u.Path == "/favicon.ico", isTracker(u.Hostname()):
		send(t, fetch.FailRequest, fetch.FailRequestParams{RequestID: e.RequestID, ErrorReason: network.ErrorReasonBlockedByClient})
		return
	}
	with := fetch.ContinueRequestParams{RequestID: e.RequestID}
	if own := t.ownHeaders(); len(own) > 0 && u.Host == t.at.Host && u.Scheme == t.at.Scheme { // they may be secret
		for name, value := range e.Request.Headers {
			if text, ok := value.(string); ok && own.Get(name) == "" {
				with.Headers = append(with.Headers, &fetch.HeaderEntry{Name: name, Value: text})
			}
		}
		for name := range own {
			with.Headers = append(with.Headers, &fetch.HeaderEntry{Name: name, Value: own.Get(name)})
		}
	}
	send(t, fetch.ContinueRequest, with)
}

// ownHeaders returns the headers of the request that the browser does not set.
func (t *tab) ownHeaders() http.Header {
	own := http.Header{}
	for name, value := range t.r.Headers {
		switch name = http.CanonicalHeaderKey(name); name {
		case "Accept", "Accept-Encoding", "Accept-Language", "User-Agent", "Cookie", "Host":
		default:
			own.Set(name, value)
		}
	}
	return own
}

var blocked = []network.ResourceType{network.ResourceTypeFont, network.ResourceTypeMedia, network.ResourceTypePing, network.ResourceTypeCSPViolationReport}

// pixel is a transparent GIF.
var pixel = []byte("GIF89a\x01\x00\x01\x00\x80\x00\x00\x00\x00\x00\x00\x00\x00!\xf9\x04\x01\x00\x00\x00\x00,\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x02D\x01\x00;")

// trackers are domains of which no page needs a script.
var trackers = []string{
	"google-analytics.com", "googletagmanager.com", "googlesyndication.com", "doubleclick.net", "facebook.net", "hotjar.com", "clarity.ms", "segment.io",
	"mixpanel.com", "criteo.com", "taboola.com", "outbrain.com", "scorecardresearch.com", "adnxs.com", "mc.yandex.ru", "nr-data.net",
}

func isTracker(host string) bool {
	return slices.ContainsFunc(trackers, func(t string) bool { return host == t || strings.HasSuffix(host, "."+t) })
}
