package document

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"muster/internal/addressfilter"
	"muster/internal/testutil"
	"muster/jobs"
)

// serve starts a server, and returns its URL and a filter that allows it.
func serve(t *testing.T) (string, *addressfilter.Filter) {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/named", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Disposition", `attachment; filename="../Report 1.pdf"`)
		w.Header().Set("Content-Type", "application/octet-stream")
		fmt.Fprint(w, "named")
	})
	mux.HandleFunc("/files/a.html", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/xhtml+xml; charset=utf-8")
		fmt.Fprint(w, "page")
	})
	mux.Handle("/moved", http.RedirectHandler("/named", http.StatusFound))
	mux.Handle("/loop", http.RedirectHandler("/loop", http.StatusFound))
	mux.Handle("/inside", http.RedirectHandler("http://127.0.0.2:1/secret", http.StatusFound))
	mux.Handle("/file", http.RedirectHandler("file:///etc/passwd", http.StatusFound))
	mux.HandleFunc("/large", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "2000000")
	})
	mux.HandleFunc("/endless", func(w http.ResponseWriter, r *http.Request) {
		for {
			if _, err := w.Write(make([]byte, 64<<10)); err != nil {
				return
			}
		}
	})
	mux.HandleFunc("/cut", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "100")
		fmt.Fprint(w, "part")
	})
	mux.HandleFunc("/empty", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/silent", func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	filter := testutil.Must(addressfilter.New(srv.Listener.Addr().String()))(t)
	return srv.URL, filter
}

func TestFetchStoresWhatAServerSends(t *testing.T) {
	t.Parallel()
	at, filter := serve(t)
	s := storeOf(t, func(c *Config) { c.Filter = filter })
	with := strings.Replace(at, "http://", "http://me:secret@", 1)
	for _, c := range []struct {
		url  string
		want jobs.Document
	}{
		{at + "/named", jobs.Document{Name: "Report 1.pdf", Hash: hashOf("named"), Size: 5, Type: "application/pdf", Source: at + "/named"}},
		{at + "/moved", jobs.Document{Name: "Report 1.pdf", Hash: hashOf("named"), Size: 5, Type: "application/pdf", Source: at + "/moved"}},
		{with + "/files/a.html?token=secret#top", jobs.Document{Name: "a.html", Hash: hashOf("page"), Size: 4, Type: "application/xhtml+xml", Source: at + "/files/a.html"}},
	} {
		if got, err := s.Fetch(t.Context(), c.url); err != nil || got != c.want {
			t.Errorf("%s: got %+v, %v, want %+v", c.url, got, err, c.want)
		}
	}
}

func TestFetchRefuses(t *testing.T) {
	t.Parallel()
	at, filter := serve(t)
	s := storeOf(t, func(c *Config) { c.Filter = filter })
	field := func(err error) bool {
		e, ok := errors.AsType[*jobs.FieldError](err)
		return ok && e.Field == "document_url"
	}
	other := func(err error) bool { return err != nil && !field(err) }
	large := func(err error) bool { return errors.As(err, new(*TooLargeError)) }
	for _, c := range []struct {
		url, want string
		is        func(error) bool
	}{
		{"ftp://files.example/a", "want an http or https URL", field},
		{"/etc/passwd", "want an http or https URL", field},
		{"http://", "want an http or https URL", field},
		{"http://a b/", "cannot be parsed", field},
		{"http://127.0.0.2:1/?secret", "network.allow", field},
		{at + "/inside", "network.allow", field},
		{at + "/file", "http or https URL", other},
		{at + "/loop?secret", "more than 5 redirects", other},
		{at + "/missing?secret", "404 Not Found", other},
		{at + "/large", "more than the 1048576 bytes", large},
		{at + "/endless", "more than the 1048576 bytes", large},
		{at + "/cut", "download failed: unexpected EOF", other},
		{at + "/empty", "empty is empty", other},
	} {
		_, err := s.Fetch(t.Context(), c.url)
		if !c.is(err) || !strings.Contains(fmt.Sprint(err), c.want) || strings.Contains(fmt.Sprint(err), "secret") {
			t.Errorf("%s: got %v, want %q", c.url, err, c.want)
		}
	}
	if _, err := storeOf(t).Fetch(t.Context(), at+"/named"); !field(err) {
		t.Errorf("without a filter: got %v, want loopback to be refused", err)
	}
	if got := contents(t, s); len(got) != 0 {
		t.Errorf("got the files %v, want none", got)
	}
	if _, err := s.Open(hashOf("")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want no document", err)
	}
}

// A download ends with its ctx, also while the server is silent.
func TestFetchEndsWithItsContext(t *testing.T) {
	t.Parallel()
	at, filter := serve(t)
	s := storeOf(t, func(c *Config) { c.Filter = filter })
	stop := errors.New("stopped")
	ctx, cancel := context.WithCancelCause(t.Context())
	opened := s.part
	s.part = func(dir string) (*os.File, error) { cancel(stop); return opened(dir) } // the body is read next
	if _, err := s.Fetch(ctx, at+"/silent"); !errors.Is(err, stop) {
		t.Errorf("got %v, want %v", err, stop)
	}
	if got := contents(t, s); len(got) != 0 {
		t.Errorf("got the files %v, want none", got)
	}
}
