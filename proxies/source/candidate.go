package source

import (
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"strings"
)

// Candidate is an endpoint that a list calls a proxy. It holds credentials: print it with String, never field by field.
type Candidate struct {
	Protocol string   `json:"protocol,omitempty"` // what the list calls it, one of Protocols; "" when it does not say
	Host     string   `json:"host"`               // an IP address without brackets, or a name in lower case
	Port     uint16   `json:"port"`
	Username string   `json:"username,omitempty"`
	Password string   `json:"password,omitempty"`
	Variant  string   `json:"variant,omitempty"`  // sets it apart from others of its address and user, as a session of a gateway
	Country  string   `json:"country,omitempty"`  // two letters, as the list has it
	Sources  []string `json:"sources,omitempty"`  // names of the lists it stands in
	Known    bool     `json:"known,omitempty"`    // it has worked before: a second try may pay
	Unlisted bool     `json:"unlisted,omitempty"` // it is in no list of today; Sources are from before
}

// Protocols are the words for a proxy's protocol, which are also its URL schemes.
var Protocols = []string{"http", "https", "socks4", "socks4a", "socks5", "socks5h"}

// Key identifies a candidate: protocol and Endpoint.
func (c Candidate) Key() string { return c.Protocol + "|" + c.Endpoint() }

// Endpoint identifies a candidate whatever it speaks: host, port, user and variant, without the password.
func (c Candidate) Endpoint() string { return c.Address() + "|" + c.Username + "|" + c.Variant }

// Address is host:port, with brackets around IPv6.
func (c Candidate) Address() string {
	return net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port)))
}

// URL returns the candidate as a proxy URL, with its credentials. A candidate without protocol counts as http.
func (c Candidate) URL() *url.URL {
	u := &url.URL{Scheme: c.Protocol, Host: c.Address()}
	if u.Scheme == "" {
		u.Scheme = "http"
	}
	if c.Username != "" || c.Password != "" {
		u.User = url.UserPassword(c.Username, c.Password)
	}
	return u
}

// String is the candidate for people: its password is left out.
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

// GoString is String, so that %#v shows no password either.
func (c Candidate) GoString() string { return fmt.Sprintf("source.Candidate(%s)", c) }

// LogValue is String, so that a log shows no password.
func (c Candidate) LogValue() slog.Value { return slog.StringValue(c.String()) }
