package orchestrator

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/sites/definition"
	"muster/tasks"
)

// The browser of this machine reaches the pool through a gateway that knows its visitors. One on another machine gets no proxy.
func TestBrowserProxyIsAGateway(t *testing.T) {
	t.Parallel()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "page") }))
	t.Cleanup(site.Close)
	cfg := settings(t)
	cfg.Network.Allow = []string{"127.0.0.1"}
	client := tasks.NewClient(redistest.New(t))
	t.Cleanup(func() { _ = client.Close() })
	s := testutil.Must(NewSystem(cfg, client, slog.New(slog.DiscardHandler)))(t)
	t.Cleanup(func() { _ = s.Close() })
	through := func(fallback, visitor string) (at *url.URL, status int) {
		text := testutil.Must(s.browserProxy(&definition.Definition{Proxy: definition.Proxy{Fallback: fallback}}, visitor))(t)
		at = testutil.Must(url.Parse(text))(t)
		carrier := &http.Transport{Proxy: http.ProxyURL(at)}
		defer carrier.CloseIdleConnections()
		res := testutil.Must((&http.Client{Transport: carrier}).Get(site.URL))(t)
		_ = res.Body.Close()
		return at, res.StatusCode
	}
	one, status := through("direct", "ONE")
	two, _ := through("direct", "TWO")
	other, fails := through("fail", "ONE")
	if one.Host != two.Host || one.User.Username() != "muster-session-ONE" || two.User.Username() != "muster-session-TWO" || other.Host == one.Host {
		t.Errorf("got %s, %s and %s, want a gateway for each fallback, with the visitor in the user name", one, two, other)
	}
	if status != http.StatusOK || fails != http.StatusServiceUnavailable {
		t.Errorf("got the status %d, and %d without a fallback, want 200 and 503", status, fails)
	}
	changed := s.Config()
	changed.Sites.Browser = "http://chrome.example:9222"
	s.settings.Store(&changed)
	if at, err := s.browserProxy(&definition.Definition{}, "ONE"); at != "" || err != nil {
		t.Errorf("got %q, %v for a browser on another machine, want no proxy", at, err)
	}
}
