package fetch

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"muster/internal/addressfilter"
	"muster/internal/testutil"
	"muster/sites/definition"
)

// Pages at non-public addresses are fetched only if the addresses are allowed, and are not retried.
func TestGetConnectsOnlyToAllowedAddresses(t *testing.T) {
	t.Parallel()
	var inside atomic.Int64
	secret := testutil.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		inside.Add(1)
		fmt.Fprint(w, page)
	}))
	_, port, _ := net.SplitHostPort(secret.Listener.Addr().String())
	open := testutil.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/robots.txt" {
			http.NotFound(w, r)
			return
		}
		http.Redirect(w, r, "http://"+strings.TrimPrefix(r.URL.Path, "/")+"/x", http.StatusFound)
	}))
	named, literal := "http://shop.test:"+port, "http://127.0.0.1:"+port
	const robots = "politeness: {delay: 0}\n"
	for name, c := range map[string]struct {
		base, url, rest string
		allow           []string
		ok              bool
	}{
		"a name":                                   {named, named + "/x", quick, nil, false},
		"its robots.txt":                           {named, named + "/x", robots, nil, false},
		"a redirect to an address":                 {open.URL, open.URL + "/127.0.0.1:" + port, "hosts: ['127.0.0.1:" + port + "']\n" + quick, nil, false},
		"a redirect to a name":                     {open.URL, open.URL + "/shop.test:" + port, "hosts: ['shop.test:" + port + "']\n" + quick, nil, false},
		"a redirect to localhost":                  {open.URL, open.URL + "/localhost:" + port, "hosts: ['localhost:" + port + "']\n" + quick, nil, false},
		"robots.txt of a redirect":                 {open.URL, open.URL + "/shop.test:" + port, "hosts: ['shop.test:" + port + "']\n" + robots, nil, false},
		"a renderer":                               {open.URL, open.URL + "/x", "render: {url: '" + named + "/render'}\n" + quick, nil, false},
		"a name, allowed at another port":          {named, named + "/x", "allow_addresses: ['shop.test:1']\n" + quick, nil, false},
		"a name, its address allowed for its port": {named, named + "/x", "allow_addresses: ['127.0.0.1:" + port + "']\n" + quick, nil, false},
		"an address in base_url":                   {literal, literal + "/x", quick, nil, true},
		"localhost in base_url":                    {"http://localhost:" + port, "http://localhost:" + port + "/x", robots, nil, true},
		"an address in start":                      {named, literal + "/x", "hosts: ['127.0.0.1:" + port + "']\n" + quick, nil, true},
		"a renderer at an address":                 {open.URL, open.URL + "/x", "render: {url: '" + literal + "/render'}\n" + quick, nil, true},
		"a name, allowed by the definition":        {named, named + "/x", "allow_addresses: shop.test\n" + robots, nil, true},
		"a name, allowed by the settings":          {named, named + "/x", robots, []string{"127.0.0.0/8"}, true},
	} {
		// Not parallel: each counts the requests to the same server.
		start := "/"
		if name == "an address in start" {
			start = c.url
		}
		def, err := definition.Parse("s.yaml", []byte("site: s.example\nbase_url: "+c.base+"\nstart: ['"+start+"']\nrecords: {r: {fields: {v: b}}}\n"+c.rest))
		testutil.Ok(t, err)
		filter := testutil.Must(addressfilter.New(c.allow...))(t)
		before := inside.Load()
		client := NewClient(Config{Definition: def, Filter: filter, Clock: free{}})
		_, err = client.Get(t.Context(), c.url, definition.KindDetail)
		client.Close()
		came := inside.Load() - before
		if c.ok {
			if err != nil || came == 0 {
				t.Errorf("%s: got %v and %d requests, want the page", name, err, came)
			}
			continue
		}
		e, _ := errors.AsType[*Error](err)
		if e == nil || e.Class != Address || e.OfSite() || came != 0 || !strings.Contains(err.Error(), "network.allow") {
			t.Errorf("%s: got %v and %d requests, want class address that names the setting, and no request", name, err, came)
		}
	}
	if p := PolicyFor(Address, definition.Retries{Attempts: 3}); p.Retries != 0 || p.Free {
		t.Errorf("got %+v, want no retries", p)
	}
}

// badProxy is a transport that fails because the proxy's name resolves to a private address.
type badProxy struct{ error }

func (badProxy) ProxyFault() bool { return true }
func (e badProxy) Unwrap() error  { return e.error }

func (e badProxy) RoundTrip(*http.Request) (*http.Response, error) { return nil, e }

// A proxy at a forbidden address is a failure of the proxy, not of the page.
func TestForbiddenProxyIsNotTheFailureOfThePage(t *testing.T) {
	t.Parallel()
	def, base := site(t, func(http.ResponseWriter, *http.Request) {}, quick)
	refused := badProxy{(*addressfilter.Filter)(nil).Check(netip.MustParseAddr("127.0.0.1"))}
	_, err := NewClient(Config{Definition: def, Clock: free{}, Transport: refused}).Get(t.Context(), base+"/x", definition.KindDetail)
	if class := ClassOf(err); class != Proxy {
		t.Errorf("got %v, want class %s", err, Proxy)
	}
}
