package source

import (
	"cmp"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"strings"
)

// A Candidate is an endpoint from a list of proxies. It contains credentials: print it with String, not by field.
type Candidate struct {
	Protocol string   `json:"protocol,omitempty"` // the label in the list, one of Protocols, or ""
	Host     string   `json:"host"`               // an IP address without brackets, or a lower-case name
	Port     uint16   `json:"port"`
	Username string   `json:"username,omitempty"`
	Password string   `json:"password,omitempty"`
	Variant  string   `json:"variant,omitempty"`  // distinguishes candidates with the same address and user, such as sessions of a gateway
	Country  string   `json:"country,omitempty"`  // two letters, according to the list
	Sources  []string `json:"sources,omitempty"`  // names of the lists that contain it
	Known    bool     `json:"known,omitempty"`    // it has worked before, so a retry is worthwhile
	Unlisted bool     `json:"unlisted,omitempty"` // it is in no current list; Sources are from earlier lists
}

// Protocols are the labels of proxy protocols and the schemes of their URLs.
var Protocols = []string{"http", "https", "socks4", "socks4a", "socks5", "socks5h"}

// Key identifies a candidate by Protocol and Endpoint.
func (c Candidate) Key() string { return c.Protocol + "|" + c.Endpoint() }

// Endpoint identifies a candidate by host, port, user and variant, independent of its protocol and password.
func (c Candidate) Endpoint() string { return c.Address() + "|" + c.Username + "|" + c.Variant }

// Address returns host:port, with brackets around an IPv6 address.
func (c Candidate) Address() string {
	return net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port)))
}

// URL returns the proxy URL with credentials. The default scheme is http.
func (c Candidate) URL() *url.URL {
	u := &url.URL{Scheme: cmp.Or(c.Protocol, "http"), Host: c.Address()}
	if c.Username != "" || c.Password != "" {
		u.User = url.UserPassword(c.Username, c.Password)
	}
	return u
}

// String returns the candidate without its password.
func (c Candidate) String() string {
	var s strings.Builder
	if c.Protocol != "" {
		s.WriteString(c.Protocol + "://")
	}
	if c.Username != "" || c.Password != "" {
		s.WriteString(url.User(c.Username).String() + ":***@")
	}
	s.WriteString(c.Address())
	if c.Variant != "" {
		s.WriteString("#" + c.Variant)
	}
	return s.String()
}

// GoString returns the same as String, so that %#v does not reveal the password.
func (c Candidate) GoString() string { return fmt.Sprintf("source.Candidate(%s)", c) }

// LogValue returns the same as String, so that logs do not reveal the password.
func (c Candidate) LogValue() slog.Value { return slog.StringValue(c.String()) }
