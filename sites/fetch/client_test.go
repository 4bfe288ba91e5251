package fetch

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/sites/definition"
	"muster/sites/polite"
)

const page = "<html><title>t</title><body>a page with some words in it</body></html>"

// site starts a loopback site and returns its definition and base URL.
func site(t *testing.T, h http.HandlerFunc, rest string) (*definition.Definition, string) {
	t.Helper()
	srv := testutil.Serve(t, h)
	def, err := definition.Parse("s.yaml", []byte("site: s.example\nbase_url: "+srv.URL+"\nstart: [/]\nrecords: {r: {fields: {v: b}}}\n"+rest))
	testutil.Ok(t, err)
	return def, srv.URL
}

const quick = "politeness: {delay: 0, robots: false}\n"

// wall is a block page that is recognizable only by the target of its refresh.
const wall = `<meta http-equiv=refresh content="0; url=http://validate.elsewhere.example/captcha?for=shop">`

// faulty is a site with a page for each class of failure.
func faulty() http.Handler {
	mux := http.NewServeMux()
	status := func(code int, retryAfter string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			if retryAfter != "" {
				w.Header().Set("Retry-After", retryAfter)
			}
			w.WriteHeader(code)
		}
	}
	body := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) }
	}
	for _, code := range []int{503, 500, 403, 401, 404, 410, 418, 204, 407, 304} {
		mux.Handle(fmt.Sprint("/", code), status(code, ""))
	}
	mux.Handle("/429", status(429, "7"))
	mux.Handle("/429bare", status(429, ""))
	mux.Handle("/503ra", status(503, time.Now().Add(10*time.Minute).UTC().Format(http.TimeFormat)))
	mux.Handle("/ok", body(page))
	mux.Handle("/empty", body(""))
	mux.Handle("/blank", body(" \n\t "))
	mux.Handle("/big", body(strings.Repeat("x", 5000)))
	mux.Handle("/moved", http.RedirectHandler("/ok", http.StatusMovedPermanently))
	mux.Handle("/loop", http.RedirectHandler("/loop", http.StatusFound))
	mux.Handle("/away", http.RedirectHandler("http://elsewhere.example/", http.StatusFound))
	mux.Handle("/refreshed", body(`<meta http-equiv=refresh content="0; url=/moved">`))
	mux.Handle("/refreshed-away", body(`<meta http-equiv=refresh content="0; url=http://elsewhere.example/">`))
	mux.Handle("/refreshed-wall", body(wall))
	mux.HandleFunc("/refreshed-loop", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `<meta http-equiv=refresh content="0; url=?n=%s1">`, r.URL.Query().Get("n"))
	})
	mux.HandleFunc("/cookie", func(w http.ResponseWriter, r *http.Request) { // a page that reloads itself until the cookie returns
		if _, err := r.Cookie("seen"); err == nil {
			fmt.Fprint(w, page)
			return
		}
		http.SetCookie(w, &http.Cookie{Name: "seen", Value: "1"})
		fmt.Fprint(w, `<meta http-equiv=refresh content="1; url=/cookie">`)
	})
	mux.HandleFunc("/image", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "image/png")
		fmt.Fprint(w, "png")
	})
	mux.HandleFunc("/slow", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	broken(mux)
	return mux
}

// broken adds pages that are incomplete or contradict their header.
func broken(mux *http.ServeMux) {
	mux.HandleFunc("/bomb", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		_, _ = z.Write(make([]byte, 1<<20))
		_ = z.Close()
	})
	mux.HandleFunc("/cut", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		fmt.Fprint(w, "short")
		_ = http.NewResponseController(w).Flush()
		if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
			_ = conn.Close()
		}
	})
	mux.HandleFunc("/cut-gzip", func(w http.ResponseWriter, _ *http.Request) {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		fmt.Fprint(z, page, strings.Repeat("<p>x", 300))
		_ = z.Close()
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(b.Bytes()[:b.Len()-9])
	})
	mux.HandleFunc("/cut-chunks", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, page)
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
}

// Each failure has a class. Retry-After sets the delay in an error; 429 without it means one minute.
// A redirect carries no validators: they are of the first URL, and the version of another page would count as unchanged.
func TestValidatorsStayWithTheirURL(t *testing.T) {
	t.Parallel()
	def, base := site(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"1"`)
		switch {
		case r.URL.Path == "/moved":
			http.Redirect(w, r, "/page", http.StatusFound)
		case r.Header.Get("If-None-Match") != "":
			w.WriteHeader(http.StatusNotModified)
		default:
			fmt.Fprint(w, "<h1>whole</h1>"+strings.Repeat("words ", 20))
		}
	}, quick)
	c := NewClient(Config{Definition: def})
	t.Cleanup(c.Close)
	for path, want := range map[string]int{"/page": http.StatusNotModified, "/moved": http.StatusOK} {
		page, err := c.FetchChanged(t.Context(), base+path, definition.KindDetail, definition.Post{}, Validators{ETag: `"1"`})
		if err != nil || page.Status != want {
			t.Errorf("%s: got %d, %v, want %d", path, page.Status, err, want)
		}
		if v := ValidatorsOf(page); (v.ETag == "") != (path == "/moved") {
			t.Errorf("%s: got validators %v", path, v)
		}
	}
	if _, err := c.Get(t.Context(), base+"/page", definition.KindDetail); err != nil {
		t.Errorf("without validators: got %v", err)
	}
}

func TestResponsesAreClassified(t *testing.T) {
	t.Parallel()
	def, base := site(t, faulty().ServeHTTP, quick+"limits: {page_timeout: 8s, max_bytes: 4096, redirects: 3}\n")
	c := NewClient(Config{Definition: def, Clock: free{}})
	after := map[string]time.Duration{"/429": 7 * time.Second, "/429bare": time.Minute, "/503ra": 10 * time.Minute}
	for path, want := range map[string]Class{
		"/ok": OK, "/moved": OK, "/429": RateLimited, "/429bare": RateLimited, "/503ra": RateLimited, "/503": Server, "/500": Server, "/403": Blocked, "/401": Blocked,
		"/404": Gone, "/410": Gone, "/418": ClientError, "/204": Empty, "/407": ClientError, "/304": Redirect, "/empty": Empty, "/blank": Empty, "/image": BadType,
		"/big": TooBig, "/bomb": TooBig, "/cut": Truncated, "/cut-gzip": Truncated, "/cut-chunks": Truncated, "/slow": Timeout, "/loop": Redirect, "/away": Redirect,
		"/refreshed": OK, "/refreshed-loop": Redirect, "/refreshed-away": Redirect, "/refreshed-wall": OK, "/cookie": OK,
	} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			_, err := c.Get(t.Context(), base+path, definition.KindDetail)
			if ClassOf(err) != want {
				t.Errorf("got %s (%v), want %s", ClassOf(err), err, want)
			}
			if e, ok := errors.AsType[*Error](err); ok && (e.After > after[path]+time.Second || e.After < after[path]/2) {
				t.Errorf("got a delay of %s, want about %s", e.After, after[path])
			}
		})
	}
}

// Get returns the target of redirects and refreshes, in a session also of a refresh that checks cookies. For a challenge it returns the page itself, which Inspect recognizes.
func TestGetFollowsRedirectsAndRefreshes(t *testing.T) {
	t.Parallel()
	def, base := site(t, faulty().ServeHTTP, quick+"session: {}\n")
	c := NewClient(Config{Definition: def, Clock: free{}})
	for path, want := range map[string]struct{ at, body string }{
		"/ok": {"/ok", page}, "/moved": {"/ok", page}, "/refreshed": {"/ok", page}, "/refreshed-wall": {"/refreshed-wall", wall}, "/cookie": {"/cookie", page},
	} {
		got, err := c.Get(t.Context(), base+path, definition.KindDetail)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if string(got.Body) != want.body || got.URL.Path != want.at || got.Requested != base+path {
			t.Errorf("%s: got %q of %s, requested %s; want %q of %s", path, got.Body, got.URL, got.Requested, want.body, want.at)
		}
	}
}

// free is a clock that never waits.
type free struct{}

func (free) Take(context.Context, string, time.Duration) (time.Duration, error) { return 0, nil }
func (free) Hold(context.Context, string, time.Duration) error                  { return nil }

func TestRobotsIsObeyed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		robots http.HandlerFunc
		want   Class
	}{
		{"allowed", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "user-agent: *\ndisallow: /no\n") }, OK},
		{"forbidden", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "user-agent: muster\ndisallow: /yes\n") }, Robots},
		{"404", http.NotFound, OK},
		{"403", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(403) }, OK},
		{"401", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) }, OK},
		{"410", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(410) }, OK},
		{"503", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }, Server},
		{"a rule before 500 KiB", func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, strings.Repeat("# filler\n", 55_000), "user-agent: *\ndisallow: /\n")
		}, Robots},
		{"moved five times", func(w http.ResponseWriter, r *http.Request) {
			n := len(r.URL.RawQuery)
			if n < 5 {
				http.Redirect(w, r, "/robots.txt?"+strings.Repeat("x", n+1), http.StatusMovedPermanently)
				return
			}
			fmt.Fprint(w, "user-agent: *\ndisallow: /yes\n")
		}, Robots},
		{"304", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(304) }, OK},
		{"UTF-16", func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, "\xfe\xff\x00"+strings.Join(strings.Split("user-agent: *\ndisallow: /yes\n", ""), "\x00"))
		}, Robots},
		{"429", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(429) }, RateLimited},
		{"500", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, Server},
		{"moved", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/other.txt", http.StatusFound) }, Robots},
		{"loop", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/robots.txt", http.StatusFound) }, OK},
		{"HTML", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, page) }, OK},
		{"10 MB", func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, strings.Repeat("# filler\n", 1_200_000), "user-agent: *\ndisallow: /\n")
		}, OK},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int32
			def, base := site(t, func(w http.ResponseWriter, r *http.Request) {
				switch r.URL.Path {
				case "/robots.txt":
					asked.Add(1)
					c.robots(w, r)
				case "/other.txt":
					fmt.Fprint(w, "user-agent: *\ndisallow: /yes\n")
				default:
					fmt.Fprint(w, page)
				}
			}, "politeness: {delay: 0}\n")
			client := NewClient(Config{Definition: def, Clock: free{}})
			for range 2 {
				if _, err := client.Get(t.Context(), base+"/yes", definition.KindDetail); ClassOf(err) != c.want {
					t.Errorf("got %v, want %s", err, c.want)
				}
			}
			if n := asked.Load(); n != 1 && c.want != RateLimited && c.want != Server && c.name != "loop" && c.name != "moved five times" {
				t.Errorf("got %d requests for robots.txt, want 1", n)
			}
		})
	}
}

// A response that does not end in time is a time-out that names its limit, also of robots.txt.
func TestTimeoutNamesItsLimit(t *testing.T) {
	t.Parallel()
	for _, slow := range []string{"/", "/robots.txt"} {
		for _, head := range []bool{false, true} {
			def, base := site(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != slow {
					fmt.Fprint(w, page)
					return
				}
				if head {
					fmt.Fprint(w, "User-agent")
					_ = http.NewResponseController(w).Flush()
				}
				<-r.Context().Done()
			}, "politeness: {delay: 0}\nlimits: {page_timeout: 300ms}\n")
			_, err := NewClient(Config{Definition: def, Clock: free{}}).Get(t.Context(), base+"/", definition.KindDetail)
			if ClassOf(err) != Timeout || !strings.Contains(err.Error(), "limits.page_timeout (300ms)") || strings.Count(err.Error(), "robots.txt") > 1 {
				t.Errorf("%s, with a head: %v: got %v, want class %s and the limit", slow, head, err, Timeout)
			}
		}
	}
}

// pace records the longest interval of a turn.
type pace struct {
	free
	longest atomic.Int64
}

func (p *pace) Take(_ context.Context, _ string, interval time.Duration) (time.Duration, error) {
	p.longest.Store(max(p.longest.Load(), int64(interval)))
	return 0, nil
}

// Autothrottle increases the interval between requests to a slow site.
func TestSlowSiteIsThrottled(t *testing.T) {
	t.Parallel()
	for autothrottle, want := range map[bool]time.Duration{true: 100 * time.Millisecond, false: time.Millisecond / 2} {
		def, base := site(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/slow" {
				<-time.After(300 * time.Millisecond)
			}
			fmt.Fprint(w, page)
		}, fmt.Sprintf("politeness: {delay: 1ms, robots: false, autothrottle: %v}\n", autothrottle))
		p := &pace{}
		c := NewClient(Config{Definition: def, Clock: p, Throttle: polite.NewThrottle(redistest.New(t), "s", autothrottle)})
		for _, path := range []string{"/", "/slow", "/"} {
			testutil.Must(c.Get(t.Context(), base+path, definition.KindDetail))(t)
		}
		if got := time.Duration(p.longest.Load()); got < want || !autothrottle && got > 3*want {
			t.Errorf("autothrottle %v: got an interval of %s, want %s", autothrottle, got, want)
		}
	}
}

var errNone = errors.New("no proxy")

type failing struct{}

func (failing) RoundTrip(*http.Request) (*http.Response, error) { return nil, errNone }

func TestRequestsGoDirectlyOnlyIfAllowed(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	h := func(w http.ResponseWriter, _ *http.Request) { asked.Add(1); fmt.Fprint(w, page) }
	def, base := site(t, h, quick)
	if _, err := NewClient(Config{Definition: def, Transport: failing{}, NoProxy: errNone}).Get(t.Context(), base, definition.KindDetail); ClassOf(err) != NoProxy {
		t.Errorf("got %v, want no_proxy", err)
	}
	if asked.Load() != 0 {
		t.Errorf("got %d requests, want none: the definition does not allow them", asked.Load())
	}
	def, base = site(t, h, quick+"proxy: {fallback: direct}\n")
	testutil.Must(NewClient(Config{Definition: def, Transport: failing{}, NoProxy: errNone}).Get(t.Context(), base, definition.KindDetail))(t)
}

func TestPolicyBoundsRetriesAndWaits(t *testing.T) {
	t.Parallel()
	r := definition.Retries{Attempts: 3, Base: time.Second, Cap: time.Minute}
	for class, want := range map[Class]Policy{
		Proxy: {Retries: 5}, Server: {Retries: 3, Base: time.Second}, Connect: {Retries: 3, Base: time.Second}, Truncated: {Retries: 3, Base: time.Second}, NoProxy: {Retries: 5, Base: time.Second},
		RateLimited: {Free: true}, Gone: {}, TooBig: {}, SoftBlock: {Retries: 3, Base: 2 * time.Second}, Validate: {Retries: 2, Base: 2 * time.Second}, Parse: {},
	} {
		if got := PolicyFor(class, r); got != want {
			t.Errorf("%s: got %+v, want %+v", class, got, want)
		}
	}
	p := Policy{Base: time.Second}
	for n, most := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 3: 4 * time.Second, 60: time.Minute} {
		for range 50 {
			if w := p.Wait(n, time.Minute); w < most/2 || w > most {
				t.Errorf("retry %d: got a wait of %s, want from half of %[3]s to %[3]s", n, w, most)
			}
		}
	}
}

func TestNeedsScriptOnlyForEmptyApplications(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]bool{
		`<div id="root"></div><script src="/app.js"></script>`:                                      true,
		`<div id="root">` + strings.Repeat("words ", 100) + `</div><script src="/app.js"></script>`: false,
		page: false,
	} {
		_, d := docOf(t, "", body, http.Header{})
		if got := NeedsScript(d); got != want {
			t.Errorf("%.40s: got %v, want %v", body, got, want)
		}
	}
}

// Pages of the kinds in render.kinds are rendered; robots.txt never is, even if it is redirected.
func TestPagesAreRenderedByKind(t *testing.T) {
	t.Parallel()
	var asked []string
	end := testutil.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q struct {
			URL     string
			Headers map[string]string
			Timeout int `json:"timeout_ms"`
		}
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil || q.Timeout != 5000 || !strings.HasPrefix(q.Headers["User-Agent"], "muster") {
			t.Errorf("got the request %+v, %v, want a timeout of 5000 ms and the User-Agent of muster", q, err)
		}
		asked = append(asked, q.URL)
		switch {
		case strings.HasSuffix(q.URL, "/gone"):
			w.Header().Set("X-Page-Status", "404")
		case strings.HasSuffix(q.URL, "/moved"):
			w.Header().Set("X-Page-URL", "/here")
		case strings.HasSuffix(q.URL, "/away"):
			w.Header().Set("X-Page-URL", "http://elsewhere.example/")
		case strings.HasSuffix(q.URL, "/broken"):
			w.WriteHeader(http.StatusInternalServerError)
		case strings.HasSuffix(q.URL, "/big"):
			fmt.Fprint(w, strings.Repeat("x", 5000))
		}
		fmt.Fprint(w, "<h1>rendered by a browser, with enough words to be a page</h1>")
	}))
	def, base := site(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/robots.txt":
			http.Redirect(w, r, "/other.txt", http.StatusFound)
			return
		case "/other.txt":
			fmt.Fprint(w, "user-agent: *\ndisallow: /secret\n")
			return
		}
		fmt.Fprint(w, `<div id=root></div><script src=/a.js></script> plain, as the site sends it`)
	}, "politeness: {delay: 0}\nlimits: {max_bytes: 4kB}\nrender: {url: '"+end.URL+"/render', kinds: [detail], timeout: 5s}\n")
	c := NewClient(Config{Definition: def})

	page, err := c.Get(t.Context(), base+"/p", definition.KindDetail)
	if err != nil || !strings.Contains(string(page.Body), "rendered by a browser") {
		t.Errorf("got %q, %v, want the rendered page", page.Body, err)
	}
	if page, err = c.Get(t.Context(), base+"/l", definition.KindListing); err != nil || !strings.Contains(string(page.Body), "as the site sends it") {
		t.Errorf("a page of another kind: got %q, %v, want the page of the site", page.Body, err)
	}
	if page, err = c.Get(t.Context(), base+"/moved", definition.KindDetail); err != nil || page.URL.Path != "/here" {
		t.Errorf("a page that has moved: got %v, %v, want /here", page.URL, err)
	}
	for path, want := range map[string]Class{"/gone": Gone, "/away": Redirect, "/broken": Renderer, "/big": TooBig, "/secret": Robots} {
		if _, err := c.Get(t.Context(), base+path, definition.KindDetail); ClassOf(err) != want {
			t.Errorf("%s: got %v, want %s", path, err, want)
		}
	}
	for _, url := range asked {
		if strings.Contains(url, ".txt") || strings.Contains(url, "secret") || strings.Contains(url, "/l") {
			t.Errorf("got a request to the renderer for %s, want none", url)
		}
	}
}

// FuzzBody checks that a body is read completely or not at all, for any declared length.
func FuzzBody(f *testing.F) {
	f.Add([]byte("hello"), int64(5), int64(10))
	f.Add([]byte("hello"), int64(-1), int64(4))
	f.Add([]byte{}, int64(1<<40), int64(1<<40))
	f.Add(bytes.Repeat([]byte("x"), 1000), int64(3), int64(1000))
	f.Fuzz(func(t *testing.T, body []byte, declared, limit int64) {
		limit &= 0xffff
		got, err := readAll(&http.Response{StatusCode: 200, ContentLength: declared, Body: io.NopCloser(bytes.NewReader(body))}, limit)
		if err == nil && (!bytes.Equal(got, body) || int64(len(got)) > limit) {
			t.Errorf("%d bytes, declared %d, limit %d: got %d", len(body), declared, limit, len(got))
		}
		if err != nil && int64(len(body)) < limit && declared <= limit {
			t.Errorf("%d bytes, declared %d, limit %d: %v", len(body), declared, limit, err)
		}
	})
}
