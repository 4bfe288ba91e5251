package source

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"muster/internal/addressfilter"
	"muster/internal/dnstest"
	"muster/internal/testutil"
)

// TestMain resolves names below .test to loopback.
func TestMain(m *testing.M) {
	net.DefaultResolver = dnstest.Resolver(dnstest.Loopback)
	goleak.VerifyTestMain(m)
}

// newFetcher returns a Fetcher whose idle connections are closed after the test.
func newFetcher(t *testing.T) *Fetcher {
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &Fetcher{Client: &http.Client{Transport: transport, CheckRedirect: checkRedirect}}
}

func TestFetchValidSources(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "list.txt")
	testutil.Ok(t, os.WriteFile(file, []byte("8.8.8.8:80\n"), 0o600))
	server := testutil.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer sesame" || r.URL.Query().Get("key") != "k1" {
			http.Error(w, "who?", http.StatusUnauthorized)
			return
		}
		_, _ = io.WriteString(w, "8.8.8.8:80\n10.0.0.1:1\n")
	}))
	f := newFetcher(t)
	f.Stdin = strings.NewReader("8.8.8.8:80")
	f.Getenv = func(name string) (string, bool) {
		v, ok := map[string]string{"TOKEN": "sesame", "KEY": "k1"}[name]
		return v, ok
	}
	for _, s := range []Source{
		{URL: file}, {URL: "file://" + file}, {URL: "-"},
		{URL: server.URL + "/list?key=${KEY}", Headers: map[string]string{"Authorization": "Bearer ${TOKEN}"}},
	} {
		list, err := f.Fetch(t.Context(), s)
		if err != nil || len(list.Candidates) != 1 || list.Candidates[0].Sources[0] != s.Label() {
			t.Errorf("%s: got %+v %v", s.URL, list, err)
		}
		if strings.Contains(list.Source, "KEY") || strings.Contains(list.Source, "k1") {
			t.Errorf("label %q contains the key", list.Source)
		}
	}
}

// Each invalid source has a specific error, without delay and within the limits.
func TestFetchInvalidSources(t *testing.T) {
	t.Parallel()
	hang := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("/empty", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/html", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "<!DOCTYPE html><html><body>Please log in</body></html>")
	})
	mux.HandleFunc("/missing", http.NotFound)
	mux.HandleFunc("/loop", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/loop", http.StatusFound) })
	mux.HandleFunc("/hang", func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-hang:
		case <-r.Context().Done():
		}
	})
	mux.HandleFunc("/private", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "10.0.0.1:80\n10.0.0.2:80") })
	mux.HandleFunc("/text", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "hello\n# 1.2.3.4:5\nu:a b@8.8.8.8:80\n[::1]\nx\nhttp://gate:80\n")
	})
	mux.HandleFunc("/binary", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(strings.Repeat("\x00\x01\x02\xff\n\xfe", 10000)))
	})
	server := testutil.Serve(t, mux)
	t.Cleanup(func() { close(hang) })

	folder := t.TempDir()
	for name, test := range map[string]struct {
		source Source
		want   string
	}{
		"empty":        {Source{URL: server.URL + "/empty"}, "list is empty"},
		"web page":     {Source{URL: server.URL + "/html"}, "a web page instead of a list"},
		"404":          {Source{URL: server.URL + "/missing"}, "status 404"},
		"redirects":    {Source{URL: server.URL + "/loop"}, "more than 5 redirects"},
		"hangs":        {Source{URL: server.URL + "/hang", Timeout: 200 * time.Millisecond}, "deadline"},
		"unreachable":  {Source{URL: "http://127.0.0.1:1/x?key=secret"}, "refused"},
		"only private": {Source{URL: server.URL + "/private"}, "rejected private 2 (lines 1, 2); private addresses need proxies.allow_local"},
		"only text":    {Source{URL: server.URL + "/text"}, "rejected single_label 1 (line 6), unparsed 4 (lines 1, 3, 4, …); use lines with protocol://host:port, JSON or CSV"},
		"binary":       {Source{URL: server.URL + "/binary"}, "no proxies found"},
		"no file":      {Source{URL: filepath.Join(folder, "none")}, "no such file"},
		"directory":    {Source{URL: folder}, "is a directory"},
		"scheme":       {Source{URL: "gopher://x"}, "use http, https or file"},
		"variable":     {Source{URL: "http://x/${NOT_SET_HERE}"}, "NOT_SET_HERE is not set"},
		"brace":        {Source{URL: "http://x/${"}, "${ without }"},
		"protocol":     {Source{URL: "-", Protocol: "gopher"}, "use one of http"},
		"missing URL":  {Source{}, "missing URL"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFetcher(t)
			f.Getenv = func(string) (string, bool) { return "", false }
			begin := time.Now()
			_, err := f.Fetch(t.Context(), test.source)
			if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "secret") {
				t.Errorf("got %v, want …%s…", err, test.want)
			}
			if took := time.Since(begin); took > 20*time.Second {
				t.Errorf("took %s", took)
			}
		})
	}
}

// A list larger than MaxBytes is rejected with an error that names the limit, compressed or not. A list of exactly
// that size is accepted.
func TestMaxBytes(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.HandleFunc("/bomb", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		_, _ = io.WriteString(z, "8.8.8.8:80\n")
		for line := []byte(strings.Repeat(" ", 1<<16) + "\n"); ; {
			if _, err := z.Write(line); err != nil {
				return
			}
		}
	})
	mux.HandleFunc("/plain", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "8.8.8.8:80\n"+strings.Repeat("x", 1<<20)+"\n9.9.9.9:80\n")
	})
	server := testutil.Serve(t, mux)
	const size = 11 + 1<<20 + 1 + 11 // of /plain
	for name, test := range map[string]struct {
		path  string
		limit int64
		want  string
	}{
		"compressed":     {"/bomb", 2 << 20, "list is larger than 2.0 MiB"},
		"one byte more":  {"/plain", size - 1, "list is larger than 1.0 MiB"},
		"equal to limit": {"/plain", size, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFetcher(t)
			f.MaxBytes = test.limit
			list, err := f.Fetch(t.Context(), Source{URL: server.URL + test.path})
			if test.want == "" {
				if err != nil || len(list.Candidates) != 2 || list.Rejects[Unparsed] != 1 || list.Bytes != test.limit {
					t.Errorf("got %v %v %d bytes %v, want 2 candidates and %d bytes", list.Candidates, list.Rejects, list.Bytes, err, test.limit)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), test.want) || len(list.Candidates) != 0 {
				t.Errorf("got %v and %d candidates, want …%s…", err, len(list.Candidates), test.want)
			}
		})
	}
}

// A truncated list is an error without candidates: a body shorter than its Content-Length, a truncated chunked or
// compressed body, and a source that stops sending.
func TestTruncatedListIsRejected(t *testing.T) {
	t.Parallel()
	var whole bytes.Buffer
	z := gzip.NewWriter(&whole)
	_, _ = io.WriteString(z, strings.Repeat("8.8.8.8:80\n9.9.9.9:80\n", 1000))
	z.Close()
	answers := map[string]string{
		"content-length": "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n8.8.8.8:80\n9.9.9.9:80\n",
		"chunked":        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n16\r\n8.8.8.8:80\n9.9.9.9:80\n\r\n",
		"compressed":     fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s", whole.Len()-9, whole.String()[:whole.Len()-9]),
	}
	mux := http.NewServeMux()
	for name, answer := range answers {
		mux.HandleFunc("/"+name, func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			_, _ = io.WriteString(conn, answer)
		})
	}
	mux.HandleFunc("/stops", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "8.8.8.8:80\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	server := testutil.Serve(t, mux)
	for _, name := range []string{"content-length", "chunked", "compressed", "stops"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := Source{URL: server.URL + "/" + name}
			want := "list is truncated after"
			if name == "stops" {
				s.Timeout, want = 300*time.Millisecond, "list was not received within 300ms"
			}
			list, err := newFetcher(t).Fetch(t.Context(), s)
			if err == nil || !strings.Contains(err.Error(), want) || len(list.Candidates) != 0 {
				t.Errorf("got %v and %d candidates, want …%s… and none", err, len(list.Candidates), want)
			}
		})
	}
}

// Credentials are read from the environment and sent to the source, but not to other hosts after a redirect.
func TestCredentialsAreNotSentToOtherHosts(t *testing.T) {
	t.Parallel()
	other := testutil.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Token") != "" || r.Header.Get("Authorization") != "" {
			t.Errorf("the other host received %v", r.Header)
		}
		_, _ = io.WriteString(w, "8.8.8.8:80")
	}))
	server := testutil.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		if user != "me" || password != "s3same:x" || r.Header.Get("X-Token") != "t0ken" {
			t.Errorf("got %s %s %v", user, password, r.Header)
		}
		if r.URL.Path == "/here" {
			_, _ = io.WriteString(w, "9.9.9.9:80")
			return
		}
		http.Redirect(w, r, map[string]string{"/a": "/here", "/b": other.URL}[r.URL.Path], http.StatusFound)
	}))
	f := newFetcher(t)
	f.Getenv = func(name string) (string, bool) {
		v, ok := map[string]string{"USER": "me", "PASSWORD": "s3same:x", "TOKEN": "t0ken"}[name]
		return v, ok
	}
	for _, path := range []string{"/a", "/b"} {
		s := Source{URL: server.URL + path, Auth: "${USER}:${PASSWORD}", Headers: map[string]string{"X-Token": "${TOKEN}"}}
		if list, err := f.Fetch(t.Context(), s); err != nil || len(list.Candidates) != 1 {
			t.Errorf("%s: got %+v %v", path, list, err)
		}
	}
}

// The embedded list is complete. Without a network each of its sources fails separately, with a clear error and
// without delay.
func TestPublicSources(t *testing.T) {
	t.Parallel()
	list := Public()
	names := map[string]bool{}
	for _, s := range list {
		u, err := url.Parse(s.URL)
		if err != nil || u.Scheme != "https" || u.Host == "" || s.Name == "" || names[s.Name] || s.Timeout == 0 || s.Protocol != "" && !slices.Contains(Protocols, s.Protocol) {
			t.Errorf("got %+v", s)
		}
		names[s.Name] = true
	}
	if len(list) < 20 {
		t.Errorf("got only %d sources", len(list))
	}
	f := &Fetcher{Client: &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "x", IsNotFound: true}}
	}}}}
	if _, err := f.Fetch(t.Context(), list[0]); err == nil || !strings.Contains(err.Error(), "source "+list[0].Name+": fetch list") || !strings.Contains(err.Error(), "no such host") {
		t.Errorf("got %v", err)
	}
}

// A source may use its literal local address, but a redirect or a name must not lead into a private network.
func TestFetchAppliesFilter(t *testing.T) {
	t.Parallel()
	var inside atomic.Int64
	secret := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		inside.Add(1)
		fmt.Fprintln(w, "8.8.8.8:80")
	}))
	defer secret.Close()
	port := secret.Listener.Addr().(*net.TCPAddr).Port
	open := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://"+strings.TrimPrefix(r.URL.Path, "/"), http.StatusFound)
	}))
	defer open.Close()
	named := fmt.Sprintf("http://list.test:%d", port)
	for _, from := range []string{named, fmt.Sprintf("%s/127.0.0.1:%d", open.URL, port), fmt.Sprintf("%s/list.test:%d", open.URL, port), fmt.Sprintf("%s/[::ffff:127.0.0.1]:%d", open.URL, port)} {
		if _, err := (&Fetcher{}).Fetch(t.Context(), Source{URL: from}); !addressfilter.Is(err) || inside.Load() != 0 {
			t.Errorf("%s: got %v and %d requests, want a rejection and none", from, err, inside.Load())
		}
	}
	allowed := testutil.Must(addressfilter.New("list.test"))(t)
	for _, f := range []struct {
		*Fetcher
		from string
	}{{&Fetcher{Filter: allowed}, named}, {&Fetcher{}, secret.URL}} {
		if _, err := f.Fetch(t.Context(), Source{URL: f.from}); err != nil {
			t.Errorf("%s: got %v, want the list", f.from, err)
		}
	}
}

// A gateway yields a candidate for each country and session. Secrets may contain any characters and are not printed.
func TestGateway(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "key")
	testutil.Ok(t, os.WriteFile(file, []byte("p@ss:w/${x}{country}\n"), 0o600))
	f := &Fetcher{Getenv: func(name string) (string, bool) {
		v, ok := map[string]string{"GATE_USER": "me@home", "country": "a variable"}[name]
		return v, ok
	}}
	for name, test := range map[string]struct {
		source Source
		want   []string // user password address variant country
	}{
		"in the password": {Source{Name: "paid", Gateway: "http://${GATE_USER}:${file:" + file + "}_country-{country}_session-{session}@gate.example.org:31112", Countries: []string{"BG", "Romania"}, Sessions: 2}, []string{
			"me@home p@ss:w/${x}{country}_country-BG_session-00000001 gate.example.org:31112 BG.1 BG",
			"me@home p@ss:w/${x}{country}_country-BG_session-00000002 gate.example.org:31112 BG.2 BG",
			"me@home p@ss:w/${x}{country}_country-Romania_session-00000001 gate.example.org:31112 Romania.1 ",
			"me@home p@ss:w/${x}{country}_country-Romania_session-00000002 gate.example.org:31112 Romania.2 ",
		}},
		"in the user name":       {Source{Name: "paid", Gateway: "socks5h://u-{session}:p@gate.example.org:7000", Sessions: 1}, []string{"u-00000001 p gate.example.org:7000 1 "}},
		"in the host":            {Source{Name: "paid", Gateway: "http://u:p@{country}.gate.example.org:7000", Countries: []string{"bg"}}, []string{"u p bg.gate.example.org:7000 bg BG"}},
		"no placeholders":        {Source{Name: "paid", Gateway: "http://u:p@gate.example.org:7000"}, []string{"u p gate.example.org:7000  "}},
		"without credentials":    {Source{Name: "paid", Gateway: "http://gate.example.org:7000"}, []string{"  gate.example.org:7000  "}},
		"variable named country": {Source{Name: "paid", Gateway: "http://u:${country}@gate.example.org:1"}, []string{"u a variable gate.example.org:1  "}},
	} {
		list, err := f.Fetch(t.Context(), test.source)
		if err != nil || list.Source != "paid" {
			t.Errorf("%s: got %v, %v", name, list, err)
			continue
		}
		var got, keys []string
		for _, c := range list.Candidates {
			got = append(got, strings.Join([]string{c.Username, c.Password, c.Address(), c.Variant, c.Country}, " "))
			if strings.Contains(c.Key()+c.String(), "p@ss") || !slices.Equal(c.Sources, []string{"paid"}) {
				t.Errorf("%s: got %s with key %s of %q", name, c, c.Key(), c.Sources)
			}
			keys = append(keys, c.Key())
		}
		if !slices.Equal(got, test.want) || len(slices.Compact(keys)) != len(got) {
			t.Errorf("%s: got %q\nwant %q, each with a unique key", name, got, test.want)
		}
		if b, err := json.Marshal(test.source); err != nil || strings.Contains(string(b), "gate") {
			t.Errorf("%s: got %s, %v: the JSON must not contain the gateway", name, b, err)
		}
	}
}

func TestInvalidGateways(t *testing.T) {
	t.Parallel()
	const address = "http://u:hunter2@gate.example.org:1"
	for want, s := range map[string]Source{
		"mutually exclusive":                        {Name: "x", URL: "http://a.b/", Gateway: address},
		"requires a name":                           {Gateway: address},
		"use http":                                  {Name: "x", Gateway: "u:hunter2@gate.example.org:1"},
		"with one of the schemes http, https":       {Name: "x", Gateway: "ftp://u:hunter2@gate.example.org:1"},
		"use http://USER":                           {Name: "x", Gateway: "http://u:hunter2@gate.example.org"},
		"use http://USER:PASSWORD":                  {Name: "x", Gateway: address + "/path"},
		"{country} and countries":                   {Name: "x", Gateway: "http://u-{country}:hunter2@gate.example.org:1"},
		"countries require each other":              {Name: "x", Gateway: address, Countries: []string{"bg"}},
		"sessions require each other":               {Name: "x", Gateway: address, Sessions: 2},
		"{session} and sessions":                    {Name: "x", Gateway: "http://u-{session}:hunter2@gate.example.org:1"},
		"more than 10000 sessions":                  {Name: "x", Gateway: "http://u-{session}-{country}:hunter2@gate.example.org:1", Sessions: 5001, Countries: []string{"bg", "ro"}},
		`country "${HOME}"`:                         {Name: "x", Gateway: "http://u-{country}:hunter2@gate.example.org:1", Countries: []string{"${HOME}"}},
		"environment variable UNSET_KEY is not set": {Name: "x", Gateway: "http://u:${UNSET_KEY}@gate.example.org:1"},
	} {
		list, err := (&Fetcher{Getenv: func(string) (string, bool) { return "", false }}).Fetch(t.Context(), s)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") || len(list.Candidates) > 0 {
			t.Errorf("got %v and %v, want %s", list, err, want)
		}
	}
}
