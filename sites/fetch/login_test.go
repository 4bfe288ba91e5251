package fetch

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"muster/internal/testutil"
	"muster/sites/definition"
	"muster/sites/extract"
	"muster/sites/polite"
)

// members is a site with pages for logged-in visitors.
type members struct {
	mu     sync.Mutex
	tokens map[string]bool // of forms that were shown
	logins int             // that were right
	posts  int             // forms that were sent
	open   string          // the cookie of the one login that is open
	bare   bool            // pages, but not the response to the form, lack the link to log out
	form   string          // "": the usual one
}

func (m *members) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c, _ := r.Cookie("sid")
	in := c != nil && c.Value == m.open && m.open != ""
	switch {
	case r.URL.Path == "/login" && r.Method == http.MethodPost:
		m.posts++
		token := r.PostFormValue("csrf")
		pre, err := r.Cookie("pre")
		if err != nil || pre.Value != token || !m.tokens[token] || r.PostFormValue("go") != "Log in" || r.PostFormValue("lang") != "bg" || !strings.HasSuffix(r.Referer(), "/login") {
			http.Error(w, "forged", http.StatusForbidden)
			return
		}
		delete(m.tokens, token)
		if r.PostFormValue("user") != "ann" || r.PostFormValue("password") != "hush & co" {
			fmt.Fprint(w, page, "wrong password")
			return
		}
		m.logins++
		m.open = fmt.Sprint("s", m.logins)
		http.SetCookie(w, &http.Cookie{Name: "sid", Value: m.open, Path: "/"})
		http.Redirect(w, r, "/home", http.StatusSeeOther)
	case r.URL.Path == "/login":
		token := fmt.Sprint("t", len(m.tokens)+m.posts)
		if m.tokens == nil {
			m.tokens = map[string]bool{}
		}
		m.tokens[token] = true
		http.SetCookie(w, &http.Cookie{Name: "pre", Value: token, Path: "/"})
		if m.form != "" {
			fmt.Fprint(w, m.form)
			return
		}
		fmt.Fprintf(w, `<form action=/search><input name=q></form>
<form method=post><input type=hidden name=csrf value=%s><input name=user><input type=password name=password>
<input type=checkbox name=stay><select name=lang><option value=en>English<option value=bg selected>Bulgarian</select>
<button name=go value="Log in">Log in</button><button name=go value=Register>Register</button></form>`, token)
	case !in:
		http.Redirect(w, r, "/login", http.StatusFound)
	case m.bare && r.URL.Path != "/home":
		fmt.Fprint(w, page)
	default:
		fmt.Fprint(w, page, "<a href=/logout>Log out</a>")
	}
}

const memberLogin = `session:
  login: {url: /login, fields: {user: ann, password: hush & co}, signed_in: 'a[href="/logout"]'}
`

// A session logs in once, with the token of the form, and again when a page shows that the login has expired.
func TestLogin(t *testing.T) {
	t.Parallel()
	m := &members{}
	def, base := site(t, m.ServeHTTP, quick+memberLogin)
	c := NewClient(Config{Definition: def, Clock: free{}, Filter: local})
	t.Cleanup(c.Close)
	get := func() {
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				p, err := c.Get(t.Context(), fmt.Sprint(base, "/p", i), definition.KindDetail)
				if err != nil || !strings.Contains(string(p.Body), "Log out") || p.URL.Path != fmt.Sprint("/p", i) {
					t.Errorf("got %v of %s, want the page of a member", err, p.URL)
				}
				if doc, err := extract.Parse(def, p); err != nil || doc != p.Parsed {
					t.Errorf("got a second parse of %s, want the first", p.URL)
				}
			})
		}
		wg.Wait()
	}
	get()
	if m.logins != 1 {
		t.Errorf("got %d logins, want 1", m.logins)
	}
	m.open = "" // the site has ended it
	get()
	if m.logins != 2 || m.posts != 2 {
		t.Errorf("got %d logins of %d forms, want 2 of 2", m.logins, m.posts)
	}
}

// A rejected login returns an error with the reason and without secrets, and is not retried.
func TestLoginIsRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, login, want string
		site              *members
		posts             int
	}{
		{"wrong password", strings.Replace(memberLogin, "hush", "hash", 1), "does not match session.login.signed_in (a[href=\"/logout\"])", &members{}, 1},
		{"no such field", strings.Replace(memberLogin, "user:", "login:", 1), `the form has no field "login"; it has csrf, lang, password, stay, user`, &members{}, 0},
		{"no form", memberLogin, "the page has no form with a password", &members{form: "<p>Welcome"}, 0},
		{"by GET", memberLogin, "would expose the password in URLs", &members{form: "<form><input name=user><input type=password name=password></form>"}, 0},
		{"to another site", memberLogin, "submits to evil.example, which is outside the site", &members{form: "<form method=post action=http://evil.example/><input name=user><input type=password name=password></form>"}, 0},
		{"forbidden", memberLogin, "403", &members{form: "<form method=post><input name=user><input type=password name=password></form>"}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			def, base := site(t, c.site.ServeHTTP, quick+c.login)
			client := NewClient(Config{Definition: def, Clock: free{}, Filter: local})
			defer client.Close()
			for range 3 {
				_, err := client.Get(t.Context(), base+"/p", definition.KindDetail)
				if ClassOf(err) != Login || !strings.Contains(fmt.Sprint(err), c.want) {
					t.Errorf("got %v, want class %s with %q", err, Login, c.want)
				}
				if strings.Contains(fmt.Sprint(err), "hush") {
					t.Errorf("got %v, want no secret in it", err)
				}
			}
			if c.site.posts != c.posts {
				t.Errorf("got %d forms sent, want %d", c.site.posts, c.posts)
			}
		})
	}
}

// If pages never match signed_in, logins stop after one more attempt per session, instead of one per page.
func TestPagesWithoutTheSign(t *testing.T) {
	t.Parallel()
	m := &members{bare: true}
	def, base := site(t, m.ServeHTTP, quick+memberLogin)
	c := NewClient(Config{Definition: def, Clock: free{}, Filter: local})
	t.Cleanup(c.Close)
	for i := range 10 {
		_, err := c.Get(t.Context(), fmt.Sprint(base, "/p", i), definition.KindDetail)
		want := "use a selector that matches all pages"
		if i > 0 {
			want = "after 0 pages"
		}
		if ClassOf(err) != Login || !strings.Contains(err.Error(), want) {
			t.Errorf("page %d: got %v, want class %s with %q", i, err, Login, want)
		}
	}
	if m.logins != 2 {
		t.Errorf("got %d logins, want 2", m.logins)
	}
}

// The response to a page that was requested before a login expired does not change the cookies of the next login.
func TestLateAnswersKeepOutOfALogin(t *testing.T) {
	t.Parallel()
	m := &members{}
	asked, shown := make(chan struct{}), make(chan struct{})
	var again atomic.Bool
	def, base := site(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/late" {
			close(asked)
			<-shown
			http.SetCookie(w, &http.Cookie{Name: "pre", Value: "of another form", Path: "/"})
			fmt.Fprint(w, page, "<a href=/logout>Log out</a>")
			return
		}
		m.ServeHTTP(w, r)
		if again.Load() && r.URL.Path == "/login" && r.Method == http.MethodGet && r.Referer() == "" {
			_ = http.NewResponseController(w).Flush() // its cookie is there first
			again.Store(false)
			close(shown)
		}
	}, "politeness: {delay: 300ms, robots: false}\n"+memberLogin)
	c := NewClient(Config{Definition: def, Filter: local})
	t.Cleanup(c.Close)
	testutil.Must(c.Get(polite.Patient(t.Context()), base+"/p", definition.KindDetail))(t)
	var late sync.WaitGroup
	late.Go(func() {
		if _, err := c.Get(polite.Patient(t.Context()), base+"/late", definition.KindDetail); err != nil {
			t.Error(err)
		}
	})
	<-asked
	m.mu.Lock()
	m.open = ""
	m.mu.Unlock()
	again.Store(true)
	testutil.Must(c.Get(polite.Patient(t.Context()), base+"/p", definition.KindDetail))(t)
	late.Wait()
	if m.logins != 2 || m.posts != 2 {
		t.Errorf("got %d logins of %d forms, want 2 of 2", m.logins, m.posts)
	}
}

// A block page is not evidence about the login: the caller recognizes it, and no login follows.
func TestBlockPagesAreNoLogout(t *testing.T) {
	t.Parallel()
	m := &members{}
	var blocked atomic.Bool
	def, base := site(t, func(w http.ResponseWriter, r *http.Request) {
		if blocked.Load() {
			fmt.Fprint(w, "<p>Go away, visitor")
			return
		}
		m.ServeHTTP(w, r)
	}, quick+"blocks: {text: Go away}\n"+memberLogin)
	c := NewClient(Config{Definition: def, Clock: free{}, Filter: local})
	t.Cleanup(c.Close)
	for i := range 6 {
		blocked.Store(i > 0 && i < 5)
		p, err := c.Get(t.Context(), fmt.Sprint(base, "/p", i), definition.KindDetail)
		if err != nil || strings.Contains(string(p.Body), "Go away") != blocked.Load() {
			t.Errorf("page %d: got %v and %q", i, err, p.Body)
		}
	}
	if m.logins != 1 {
		t.Errorf("got %d logins, want 1", m.logins)
	}
}

// A site that blocks members receives a limited number of logins.
func TestLoginsAreBounded(t *testing.T) {
	t.Parallel()
	never := func(int) bool { return false }
	for name, row := range map[string]struct {
		blocks, logsOut func(page int) bool
		logins          int   // at most
		last            Class // of the last page
	}{
		"every page is forbidden":         {func(int) bool { return true }, never, 2, Blocked},
		"every other page is":             {func(i int) bool { return i%2 == 0 }, never, 1 + 100/pagesPerLogin, OK},
		"a page of fifty is forbidden":    {func(i int) bool { return i%50 == 0 }, never, 1 + 200/50, OK},
		"the site ends each login":        {never, func(int) bool { return true }, 2, Login},
		"the site ends it after 20 pages": {never, func(i int) bool { return i%20 == 0 }, 1 + 200/20, OK},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := &members{}
			def, base := site(t, func(w http.ResponseWriter, r *http.Request) {
				var i int
				if n, _ := fmt.Sscanf(r.URL.Path, "/p%d", &i); n == 1 && row.blocks(i) {
					http.Error(w, "not for you", http.StatusForbidden)
					return
				}
				m.ServeHTTP(w, r)
			}, quick+memberLogin)
			c := NewClient(Config{Definition: def, Clock: free{}, Filter: local})
			t.Cleanup(c.Close)
			var last error
			fetched := 0
			for i := range 200 {
				if row.logsOut(i) {
					m.mu.Lock()
					m.open = ""
					m.mu.Unlock()
				}
				if _, last = c.Get(t.Context(), fmt.Sprint(base, "/p", i), definition.KindDetail); last == nil {
					fetched++
				}
			}
			if m.posts > row.logins {
				t.Errorf("got %d logins for %d fetched pages, want at most %d", m.posts, fetched, row.logins)
			}
			if got := ClassOf(last); got != row.last {
				t.Errorf("the last page: got %v, want class %s", last, row.last)
			}
		})
	}
}

// A blocked page of a login is reported once.
func TestBlockedLoginIsReportedOnce(t *testing.T) {
	t.Parallel()
	def, base := site(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<p>Go away, visitor") }, quick+"blocks: {text: Go away}\n"+memberLogin)
	reports := 0
	c := NewClient(Config{Definition: def, Clock: free{}, Filter: local, OnBlocked: func(*http.Response) { reports++ }})
	defer c.Close()
	if _, err := c.Get(t.Context(), base+"/p", definition.KindDetail); ClassOf(err) != SoftBlock {
		t.Fatalf("got %v, want class %s", err, SoftBlock)
	}
	if reports != 1 {
		t.Errorf("reported %d times, want once", reports)
	}
}
