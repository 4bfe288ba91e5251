package render

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/target"

	"muster/internal/addressfilter"
	"muster/internal/testutil"
)

// newBrowser returns a browser, or skips the test if there is none.
func newBrowser(t *testing.T) *Browser {
	t.Helper()
	path, _, err := Find(os.Getenv("MUSTER_TEST_BROWSER"))
	if err != nil || os.Getenv("MUSTER_TEST_BROWSER") == "" {
		t.Skip("NOT CHECKED: make render runs it in a browser: ", err)
	}
	filter := testutil.Must(addressfilter.New("127.0.0.1"))(t)
	b := New(Config{Browser: path, Tabs: 2, Filter: filter})
	t.Cleanup(b.Close)
	return b
}

// asked are the requests that a site has received.
type asked struct {
	mu  sync.Mutex
	all []*http.Request
}

// of returns the requests for a path.
func (a *asked) of(path string) (all []*http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.all {
		if r.URL.Path == path {
			all = append(all, r)
		}
	}
	return all
}

// site serves pages by path. The path /json/… is JSON.
func site(t *testing.T, pages map[string]string) (*httptest.Server, *asked) {
	t.Helper()
	a := &asked{}
	s := testutil.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		a.all = append(a.all, r.Clone(context.Background()))
		a.mu.Unlock()
		switch r.URL.Path {
		case "/moved":
			http.Redirect(w, r, "/built", http.StatusFound)
		case "/internal":
			http.Redirect(w, r, "http://127.0.0.2:8099/", http.StatusFound)
		case "/gone":
			w.WriteHeader(http.StatusGone)
		case "/busy":
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(http.StatusTooManyRequests)
			fmt.Fprint(w, "<h1>busy</h1>")
		case "/feed":
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"name": "фенер"}`)
		case "/file":
			w.Header().Set("Content-Type", "application/zip")
			fmt.Fprint(w, "zip")
		case "/hangs":
			<-r.Context().Done()
		case "/large":
			fmt.Fprint(w, "<h1>large</h1>")
			for range 200_000 {
				if _, err := io.WriteString(w, strings.Repeat("large ", 170)); err != nil {
					return
				}
			}
		default:
			http.SetCookie(w, &http.Cookie{Name: "seen", Value: strings.Trim(r.URL.Path, "/"), Path: "/"})
			fmt.Fprint(w, pages[r.URL.Path])
		}
	}))
	return s, a
}

// body renders a page and returns its body.
func body(t *testing.T, b *Browser, r Request) (*http.Response, string) {
	t.Helper()
	res, err := b.Render(t.Context(), r)
	if err != nil {
		t.Fatalf("%s: %v", r.URL, err)
	}
	text := testutil.Must(io.ReadAll(res.Body))(t)
	return res, string(text)
}

const built = `<div id=root></div><script>fetch("/data").then(r => r.text()).then(name => setTimeout(() => root.innerHTML = "<h1>" + name + "</h1>", 100))</script>`

func TestBrowserBuildsPages(t *testing.T) {
	t.Parallel()
	other, othersAsked := site(t, nil)
	s, a := site(t, map[string]string{
		"/built":     built,
		"/data":      "Lamp",
		"/forwards":  `<script>location.href = "/built"</script>`,
		"/polls":     `<h1>Polls</h1><script>setInterval(() => fetch("/tick"), 50)</script>`,
		"/late":      `<script>setTimeout(() => document.body.innerHTML = "<h1 class=late>Late</h1>", 1500)</script>`,
		"/dialogs":   `<script>alert(1); confirm(2); prompt(3); onbeforeunload = e => e.preventDefault(); document.write("<h1>Asked</h1>")</script>`,
		"/windows":   `<h1>Opened</h1><a href=/window target=_blank></a><script>open("/window"); open("/window", "", "noopener"); document.querySelector("a").click()</script>`,
		"/resources": fmt.Sprintf(`<style>@font-face{font-family:f;src:url(/font.woff2)}*{font-family:f}</style><h1>Text</h1><img src=/image.png onerror="this.src='/none.png'"><video src=/film.mp4></video><script>fetch(%q, {mode: "no-cors"})</script>`, other.URL+"/api"),
	})
	b := newBrowser(t)
	for name, c := range map[string]struct {
		path, wait, want, at string
		status               int
		milli                int64
	}{
		"built by a script": {path: "/built", want: "<h1>Lamp</h1>"},
		"redirect":          {path: "/moved", want: "<h1>Lamp</h1>", at: "/built"},
		"of a script":       {path: "/forwards", want: "<h1>Lamp</h1>", at: "/built"},
		"never quiet":       {path: "/polls", want: "<h1>Polls</h1>", milli: 16_000},
		"wait":              {path: "/late", wait: "h1.late", want: "Late</h1>"},
		"wait in vain":      {path: "/polls", wait: "h2", want: "<h1>Polls</h1>", milli: 16_000},
		"dialogs":           {path: "/dialogs", want: "<h1>Asked</h1>"},
		"windows":           {path: "/windows", want: "<h1>Opened</h1>"},
		"resources":         {path: "/resources", want: `<img src="/image.png"`},
		"JSON":              {path: "/feed", want: `{"name": "фенер"}`},
		"error page":        {path: "/busy", want: "<h1>busy</h1>", status: 429},
		"error":             {path: "/gone", status: 410},
	} {
		r := Request{URL: s.URL + c.path, Wait: c.wait, Milliseconds: cmp.Or(c.milli, 240_000), Session: "s", Headers: map[string]string{"X-Secret": "s", "User-Agent": "muster/1.0", "Cookie": "given=1"}}
		res, text := body(t, b, r)
		c.at, c.status = cmp.Or(c.at, c.path), cmp.Or(c.status, 200)
		if res.StatusCode != c.status || !strings.Contains(text, c.want) || res.Header.Get("X-Page-URL") != s.URL+c.at {
			t.Errorf("%s: got %d, %s and %q, want %d, %s and …%s…", name, res.StatusCode, res.Header.Get("X-Page-URL"), text, c.status, c.at, c.want)
		}
		if c.status == 429 && res.Header.Get("Retry-After") != "7" {
			t.Errorf("%s: got the header %v, want the Retry-After of the site", name, res.Header)
		}
	}
	for _, path := range []string{"/font.woff2", "/image.png", "/none.png", "/film.mp4", "/favicon.ico", "/window"} {
		if len(a.of(path)) > 0 {
			t.Errorf("got a request for %s, want none", path)
		}
	}
	for _, r := range a.of("/data") {
		if r.Header.Get("X-Secret") != "s" || r.UserAgent() != "muster/1.0" || !strings.Contains(r.Header.Get("Cookie"), "given=1") {
			t.Fatalf("got a request with %v, want the headers of the page", r.Header)
		}
	}
	if got := othersAsked.of("/api"); len(got) != 1 || got[0].Header.Get("X-Secret") != "" {
		t.Errorf("got the requests %v to another host, want one without the header of the page", got)
	}
	if n := tabs(t, b); n > 1 {
		t.Errorf("got %d tabs, want at most the first", n)
	}
}

// running returns the process of a browser, which may be nil.
func running(b *Browser) *process {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.now
}

// tabs returns the number of open tabs.
func tabs(t *testing.T, b *Browser) (n int) {
	t.Helper()
	p := running(b)
	if p == nil {
		return 0
	}
	all := testutil.Must(cdp.Call(p.ctx, p.browser, target.GetTargets, target.GetTargetsParams{}))(t)
	for _, i := range all.TargetInfos {
		if i.Type == "page" {
			n++
		}
	}
	return n
}

// A page that fails has an error of a class, closes its tab, and leaves the browser usable.
func TestPageFails(t *testing.T) {
	t.Parallel()
	s, _ := site(t, map[string]string{
		"/good":    "<h1>Good</h1>",
		"/endless": `<h1>Endless</h1><script>for (;;);</script>`,
		"/hungry":  `<script>const all = []; for (;;) all.push(new Array(1e5).fill(1.5))</script>`,
	})
	free := httptest.NewServer(nil)
	free.Close()
	b := newBrowser(t)
	for name, c := range map[string]struct {
		url, class string
		milli      int64
	}{
		"no server":      {url: free.URL, class: Connect},
		"no such host":   {url: "http://nowhere.invalid/", class: Connect},
		"download":       {url: s.URL + "/file", class: BadType},
		"200 MB":         {url: s.URL + "/large", class: TooBig, milli: 120_000},
		"slow":           {url: s.URL + "/hangs", class: Timeout, milli: 2000},
		"endless script": {url: s.URL + "/endless", class: Timeout, milli: 3000},
		"much memory":    {url: s.URL + "/hungry", class: Failed, milli: 120_000},
		"address":        {url: s.URL + "/internal", class: Connect},
		"not http":       {url: "file:///etc/passwd", class: Failed},
	} {
		_, err := b.Render(t.Context(), Request{URL: c.url, Milliseconds: c.milli, MaxBytes: 1 << 20})
		if e, ok := errors.AsType[*Error](err); !ok || e.Class != c.class {
			t.Errorf("%s: got %v, want an error of class %s", name, err, c.class)
		}
		if name == "address" && !addressfilter.Is(err) {
			t.Errorf("%s: got %v, want an error of the filter", name, err)
		}
	}
	if _, text := body(t, b, Request{URL: s.URL + "/good"}); !strings.Contains(text, "Good") {
		t.Errorf("got %q, want the next page", text)
	}
	testutil.Eventually(t, "all tabs but the first are closed", func() bool { return tabs(t, b) <= 1 })
}

// If the browser dies, its pages fail, and the next page starts another.
func TestBrowserDies(t *testing.T) {
	t.Parallel()
	s, a := site(t, map[string]string{"/good": "<h1>Good</h1>"})
	b := newBrowser(t)
	failed := make(chan error, 1)
	go func() {
		_, err := b.Render(t.Context(), Request{URL: s.URL + "/hangs", Milliseconds: 300_000})
		failed <- err
	}()
	testutil.Eventually(t, "the page is requested", func() bool { return len(a.of("/hangs")) > 0 })
	testutil.Ok(t, running(b).browser.Process().Kill())
	if e, ok := errors.AsType[*Error](<-failed); !ok || e.Class != Failed {
		t.Errorf("got %v, want an error of class %s", e, Failed)
	}
	if _, text := body(t, b, Request{URL: s.URL + "/good"}); !strings.Contains(text, "Good") {
		t.Errorf("got %q, want the next page", text)
	}
}

// A browser that is closed leaves no files, and none of a killed process.
func TestBrowserLeavesNoFiles(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	killed := exec.Command("true")
	testutil.Ok(t, killed.Run())
	host := testutil.Must(os.Hostname())(t)
	used := fmt.Sprintf("muster-chromium-%s-%d-2", host, os.Getppid())
	for _, name := range []string{used, fmt.Sprintf("muster-chromium-%s-%d-1/Default", host, killed.Process.Pid)} {
		testutil.Ok(t, os.MkdirAll(filepath.Join(dir, name), 0o700))
	}
	s, _ := site(t, map[string]string{"/good": "<h1>Good</h1>"})
	b := newBrowser(t)
	body(t, b, Request{URL: s.URL + "/good"})
	b.Close()
	if left := testutil.Must(os.ReadDir(dir))(t); len(left) != 1 || left[0].Name() != used {
		t.Errorf("got %v, want only the profile of a running process", left)
	}
}

// A browser is replaced after a number of pages, while others continue.
func TestBrowserIsReplaced(t *testing.T) {
	t.Parallel()
	s, _ := site(t, map[string]string{"/good": "<h1>Good</h1>"})
	b := newBrowser(t)
	b.maxPages = 2
	var all sync.WaitGroup
	var mu sync.Mutex
	processes := map[*process]bool{}
	for range 6 {
		all.Go(func() {
			if _, err := b.Render(t.Context(), Request{URL: s.URL + "/good"}); err != nil {
				t.Error(err)
			}
			if p := running(b); p != nil {
				mu.Lock()
				defer mu.Unlock()
				processes[p] = true
			}
		})
	}
	all.Wait()
	for p := range processes {
		if p != running(b) {
			<-p.ctx.Done()
		}
	}
	if p, err := b.take(); err != nil || p.pages > 2 || runtime.GOOS == "linux" && p.memory() <= 0 {
		t.Errorf("got %v, %v, want a new browser with a size", p, err)
	}
}

// Pages of a session share cookies; others have none of them.
func TestSessionsHaveTheirCookies(t *testing.T) {
	t.Parallel()
	s, a := site(t, map[string]string{})
	b := newBrowser(t)
	for i, c := range []struct{ path, session, want string }{
		{"/a", "one", "given=1"}, {"/b", "one", "given=1; seen=a"}, {"/c", "two", "given=1"}, {"/d", "", "given=1"}, {"/e", "", "given=1"}, {"/f", "one", "given=1; seen=b"},
	} {
		res, _ := body(t, b, Request{URL: s.URL + c.path, Session: c.session, Headers: map[string]string{"Cookie": "given=1"}})
		if got := a.of(c.path)[0].Header.Get("Cookie"); got != c.want {
			t.Errorf("page %d: got the cookies %q, want %q", i, got, c.want)
		}
		if got := strings.Join(res.Header["Set-Cookie"], ", "); !strings.Contains(got, "seen="+c.path[1:]) {
			t.Errorf("page %d: got the new cookies %q, want that of the page", i, got)
		}
	}
}

// A page is fetched through the proxy of its request, which may need a password and reach any address.
func TestBrowserUsesAProxy(t *testing.T) {
	t.Parallel()
	s, a := site(t, map[string]string{"/good": built, "/data": "Lamp"})
	there := testutil.Must(url.Parse(s.URL))(t)
	forward := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(there) }}
	proxy := testutil.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Header.Get("Proxy-Authorization") {
		case "Basic " + base64.StdEncoding.EncodeToString([]byte("me:secret")):
			forward.ServeHTTP(w, r)
		case "Basic " + base64.StdEncoding.EncodeToString([]byte("me:empty")):
			w.Header().Set("Proxy-Status", "muster; error=proxy_unavailable")
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			w.Header().Set("Proxy-Authenticate", `Basic realm="proxy"`)
			w.WriteHeader(http.StatusProxyAuthRequired)
		}
	}))
	b := newBrowser(t)
	with := func(login string) string { return strings.Replace(proxy.URL, "http://", "http://"+login+"@", 1) }
	if _, text := body(t, b, Request{URL: "http://shop.example/good", Proxy: with("me:secret")}); !strings.Contains(text, "<h1>Lamp</h1>") || len(a.of("/data")) != 1 {
		t.Errorf("got %q, want the page", text)
	}
	if _, err := b.Render(t.Context(), Request{URL: "http://shop.example/good", Proxy: with("me:empty")}); err == nil || err.(*Error).Class != Proxy {
		t.Errorf("got %v, want an error of class %s", err, Proxy)
	}
	closed := httptest.NewServer(nil)
	closed.Close()
	if _, err := b.Render(t.Context(), Request{URL: s.URL + "/good", Proxy: closed.URL}); err == nil || err.(*Error).Class != Proxy {
		t.Errorf("got %v, want an error of class %s", err, Proxy)
	}
}

// A machine without Chromium says how to install it.
func TestNoBrowser(t *testing.T) {
	t.Parallel()
	b := New(Config{Browser: t.TempDir() + "/chromium"})
	if err := b.Check(); !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "/chromium; install it (Debian, Ubuntu: apt-get install chromium") {
		t.Errorf("got %v, want ErrUnavailable, the path and the remedy", err)
	}
	b.Close()
	if _, err := b.Render(t.Context(), Request{URL: "http://shop.example/"}); !errors.Is(err, ErrUnavailable) {
		t.Errorf("closed: got %v, want ErrUnavailable", err)
	}
}
