package addressfilter

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"regexp"
	"sync/atomic"
	"syscall"
	"testing"

	"muster/internal/dnstest"
	"muster/internal/testutil"
)

func TestCheckRejectsInternalAddresses(t *testing.T) {
	t.Parallel()
	for _, refused := range []string{
		"127.0.0.1", "127.255.255.254", "::1", "::ffff:127.0.0.1", "0.0.0.0", "::", "10.1.2.3", "172.16.0.1", "172.31.255.255",
		"192.168.1.1", "::ffff:192.168.1.1", "169.254.169.254", "::ffff:169.254.169.254", "fe80::1", "fe80::1%eth0", "fd00:ec2::254",
		"100.100.100.200", "168.63.129.16", "224.0.0.1", "ff02::1", "255.255.255.255", "240.0.0.1", "192.0.2.1", "2001:db8::1",
		"64:ff9b::a00:1", "::ffff:0:127.0.0.1", "::ffff:0:10.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "2002:a9fe:a9fe::", "2001:0:53aa:64c::1", "::127.0.0.1", "fec0::1",
	} {
		var e *Error
		if err := (&Filter{}).Check(netip.MustParseAddr(refused)); !errors.As(err, &e) || e.Kind == "" {
			t.Errorf("%s: got %v, want an *Error", refused, err)
		}
	}
	for _, public := range []string{"1.1.1.1", "93.184.216.34", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "64:ff9b::101:101", "2002:101:101::", "::ffff:8.8.8.8", "::ffff:0:8.8.8.8"} {
		if err := (*Filter)(nil).Check(netip.MustParseAddr(public)); err != nil {
			t.Errorf("%s: got %v, want no error", public, err)
		}
	}
	if err := (*Filter)(nil).Check(netip.Addr{}); err == nil {
		t.Error("zero address: got no error, want one")
	}
}

func TestNewRejectsInvalidAddresses(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"", "10.0.0.0/99", "http://a.example/", "a b", "*.example", "host:", "me@host"} {
		if _, err := New(bad); err == nil {
			t.Errorf("%q: got no error, want one", bad)
		}
	}
}

// listen opens a port on loopback until the end of the test.
func listen(t *testing.T) (port string) {
	t.Helper()
	l := testutil.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { _ = l.Close() })
	_, port, _ = net.SplitHostPort(l.Addr().String())
	return port
}

func TestDialConnectsOnlyToAllowedAddresses(t *testing.T) {
	t.Parallel()
	port := listen(t)
	for _, c := range []struct {
		allow  []string
		host   string
		refuse bool
	}{
		{nil, "127.0.0.1", true},
		{nil, "localhost", true},
		{nil, "::ffff:127.0.0.1", true},
		{[]string{"10.0.0.0/8"}, "127.0.0.1", true},
		{[]string{"localhost:1"}, "localhost", true},
		{[]string{"127.0.0.1:" + port}, "localhost", true},
		{[]string{"127.0.0.0/8"}, "localhost", false},
		{[]string{"127.0.0.1"}, "127.0.0.1", false},
		{[]string{"127.0.0.1:" + port}, "127.0.0.1", false},
		{[]string{"[::ffff:127.0.0.1]:" + port}, "127.0.0.1", false},
		{[]string{"127.0.0.1:" + port}, "::ffff:127.0.0.1", false},
		{[]string{"LocalHost"}, "localhost", false},
		{[]string{"localhost:" + port}, "localhost", false},
	} {
		base := testutil.Must(New(c.allow...))(t)
		f := testutil.Must(base.With("192.0.2.1"))(t)
		conn, err := f.Dial(&net.Dialer{})(t.Context(), "tcp", net.JoinHostPort(c.host, port))
		if err == nil {
			conn.Close()
		}
		if refused := errors.As(err, new(*Error)); refused != c.refuse || !refused && err != nil {
			t.Errorf("%s with %v allowed: got %v, want refused %v", c.host, c.allow, err, c.refuse)
		}
	}
}

// The checked address is the one to which the connection is made: a name that first resolves to a public address and then to loopback
// is rejected.
func TestDialChecksTheAddressOfTheConnection(t *testing.T) {
	t.Parallel()
	var asked, accepted atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { accepted.Add(1) }))
	defer server.Close()
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	d := &net.Dialer{Resolver: dnstest.Resolver(func(string) netip.Addr {
		if asked.Add(1) <= 2 { // A and AAAA
			return netip.MustParseAddr("192.0.2.1")
		}
		return netip.MustParseAddr("127.0.0.1")
	})}
	f := testutil.Must(New("192.0.2.1"))(t)
	testutil.Must(d.Resolver.LookupNetIP(t.Context(), "ip4", "shop.example"))(t)
	asked.Store(2)
	for range 2 {
		if _, err := f.Dial(d)(t.Context(), "tcp", net.JoinHostPort("shop.example", port)); !Is(err) {
			t.Errorf("got %v, want an *Error", err)
		}
	}
	if n := accepted.Load(); n != 0 {
		t.Errorf("got %d connections, want none", n)
	}
}

func TestDialNamesChecksOnlyNames(t *testing.T) {
	t.Parallel()
	port := listen(t)
	dial := (&Filter{}).DialNames(&net.Dialer{Resolver: dnstest.Resolver(dnstest.Loopback)})
	for _, host := range []string{"127.0.0.1", "localhost"} {
		conn, err := dial(t.Context(), "tcp", net.JoinHostPort(host, port))
		if err != nil {
			t.Fatalf("%s: got %v, want no error", host, err)
		}
		conn.Close()
	}
	for _, name := range []string{"proxy.test", "localhost.test"} {
		if _, err := dial(t.Context(), "tcp", net.JoinHostPort(name, port)); !Is(err) {
			t.Errorf("%s: got %v, want an *Error", name, err)
		}
	}
}

func TestWithURLsAllowsOnlyLiteralAddresses(t *testing.T) {
	t.Parallel()
	f := (*Filter)(nil).WithURLs("http://127.0.0.1:8001/x", "https://[::1]/", "http://localhost:8002", "http://shop.example:8003", "no url:", "")
	for address, want := range map[string]bool{
		"127.0.0.1:8001": true, "[::ffff:127.0.0.1]:8001": true, "[::1]:443": true, "LOCALHOST:8002": true,
		"127.0.0.1:80": false, "127.0.0.1:8002": false, "[::1]:80": false, "shop.example:8003": false, "127.0.0.2:8001": false,
	} {
		if got := f.allows(address); got != want {
			t.Errorf("%s: got %v, want %v", address, got, want)
		}
	}
}

func TestIsLoopback(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]bool{
		"127.0.0.1": true, "127.9.9.9": true, "::1": true, "::ffff:127.0.0.1": true, "localhost": true, "LocalHost": true,
		"": false, "0.0.0.0": false, "::": false, "10.0.0.1": false, "localhost.example": false, "127.0.0.1:80": false, "1.1.1.1": false,
	} {
		if got := IsLoopback(host); got != want {
			t.Errorf("%q: got %v, want %v", host, got, want)
		}
	}
}

func TestURLsWithAddressesAreChecked(t *testing.T) {
	t.Parallel()
	f := testutil.Must(New("10.0.0.0/8", "127.0.0.1:9000", "localhost:80"))(t)
	for text, ok := range map[string]bool{
		"https://example.org/": true, "https://internal.example/": true, "https://1.1.1.1/": true, "http://10.1.2.3/": true,
		"http://127.0.0.1:9000/": true, "http://127.0.0.1:9001/": false, "http://localhost/": true, "http://localhost:8080/": false,
		"http://169.254.169.254/latest": false, "http://[::1]:9000/": false, "http://192.168.0.1/": false,
	} {
		u := testutil.Must(url.Parse(text))(t)
		if err := f.CheckURL(u); (err == nil) != ok || err != nil && !Is(err) {
			t.Errorf("%s: got %v, want success: %v", text, err, ok)
		}
	}
}

// Errors about a name contain neither the address of the name server nor a private address of the name.
func TestErrorsHideInternalAddresses(t *testing.T) {
	t.Parallel()
	port := listen(t)
	secret := regexp.MustCompile(`\d+\.\d+\.\d+\.\d+`)
	inner := func(name string) netip.Addr {
		if name == "closed.test" {
			return netip.MustParseAddr("127.0.0.2")
		}
		return dnstest.Loopback(name)
	}
	broken := &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "udp", Addr: &net.UDPAddr{IP: net.IPv4(10, 255, 255, 53), Port: 53}, Err: syscall.ECONNREFUSED}
	}}
	allowed := testutil.Must(New("127.0.0.0/8"))(t)
	for name, c := range map[string]struct {
		filter   *Filter
		resolver *net.Resolver
		host     string
		want     string
	}{
		"refused":     {nil, dnstest.Resolver(inner), "inner.test", "inner.test resolves to a loopback address: see network.allow"},
		"allowed":     {allowed, dnstest.Resolver(inner), "closed.test", "dial closed.test: connect: connection refused"},
		"no host":     {nil, dnstest.Resolver(inner), "none.example", "lookup none.example: no such host"},
		"name server": {nil, broken, "any.example", "lookup any.example: the name server failed"},
	} {
		_, err := c.filter.Dial(&net.Dialer{Resolver: c.resolver})(t.Context(), "tcp", net.JoinHostPort(c.host, port))
		if err == nil || err.Error() != c.want || secret.MatchString(err.Error()) {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
	}
}
