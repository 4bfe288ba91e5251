package proxies

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// The files of an export that others of ours read.
const (
	ExportJSON = "live_proxies.json"
	ExportText = "live_proxies.txt"
	ExportCSV  = "live_proxies.csv"
)

// Format is a form in which proxies are exported.
type Format struct {
	Name string // what muster proxies export --format takes
	File string // its file in the folder of an export
	// encode returns what the file holds of usable proxies, the fastest first.
	encode func([]Proxy) ([]byte, error)
}

// Formats are all forms. The JSON is last: a program that watches its file finds the others new as well.
var Formats = []Format{
	{"text", ExportText, urlsOf()},
	{"csv", ExportCSV, csvOf},
	{"http", "http.txt", urlsOf("http")},
	{"https", "https.txt", urlsOf("https")},
	{"socks4", "socks4.txt", urlsOf("socks4", "socks4a")},
	{"socks5", "socks5.txt", urlsOf("socks5")},
	{"proxychains", "proxychains.conf", proxychainsOf},
	{"pac", "proxies.pac", pacOf},
	{"clash", "clash.yaml", clashOf},
	{"json", ExportJSON, jsonOf},
}

// FormatNames returns the names of all forms.
func FormatNames() []string {
	var names []string
	for _, f := range Formats {
		names = append(names, f.Name)
	}
	return names
}

// formatsOf returns the forms of some names, all if there are none.
func formatsOf(names []string) ([]Format, error) {
	if len(names) == 0 {
		return Formats, nil
	}
	var list []Format
	for _, f := range Formats {
		if slices.Contains(names, f.Name) {
			list = append(list, f)
		}
	}
	for _, name := range names {
		if !slices.Contains(FormatNames(), name) {
			return nil, fmt.Errorf("no format %q; there are %s", name, strings.Join(FormatNames(), ", "))
		}
	}
	return list, nil
}

// urlsOf writes the URLs of the proxies of some protocols, or of all, one a line.
func urlsOf(protocols ...string) func([]Proxy) ([]byte, error) {
	return func(list []Proxy) ([]byte, error) {
		var b bytes.Buffer
		for _, p := range list {
			if len(protocols) == 0 || slices.Contains(protocols, p.Protocol) {
				b.WriteString(p.URL().String() + "\n")
			}
		}
		return b.Bytes(), nil
	}
}

func jsonOf(list []Proxy) ([]byte, error) {
	document, err := json.MarshalIndent(append([]Proxy{}, list...), "", "  ") // [], not null
	return append(document, '\n'), err
}

func csvOf(list []Proxy) ([]byte, error) {
	var b bytes.Buffer
	rows := csv.NewWriter(&b)
	_ = rows.Write([]string{"protocol", "host", "port", "username", "password", "exit_ip", "anonymity", "country", "latency_ms", "https"})
	for _, p := range list {
		exit := ""
		if p.Exit.IsValid() {
			exit = p.Exit.String()
		}
		_ = rows.Write([]string{p.Protocol, p.Host, strconv.Itoa(int(p.Port)), p.Username, p.Password, exit, p.Anonymity,
			p.Country, strconv.FormatFloat(p.LatencyMS, 'f', -1, 64), strconv.FormatBool(p.Can.HTTPS)})
	}
	rows.Flush()
	return b.Bytes(), rows.Error()
}

// proxychainsOf writes a configuration of proxychains that takes one proxy at random for each connection. What its lines
// cannot say is left out: a name instead of an address, TLS with the proxy, a blank in a password.
func proxychainsOf(list []Proxy) ([]byte, error) {
	var b bytes.Buffer
	left := 0
	for _, p := range list {
		address, err := netip.ParseAddr(p.Host)
		protocol := strings.TrimSuffix(p.Protocol, "a")
		if err != nil || protocol == "https" || !tunnels(p) || strings.ContainsFunc(p.Username+p.Password, isBlank) || p.Username == "" && p.Password != "" {
			left++
			continue
		}
		fmt.Fprintln(&b, strings.TrimSpace(fmt.Sprintf("%s %s %d %s %s", protocol, address, p.Port, p.Username, p.Password)))
	}
	head := fmt.Sprintf("# proxychains4 -f FILE PROGRAM; left out, as it cannot use them: %d\nrandom_chain\nchain_len = 1\nproxy_dns\n[ProxyList]\n", left)
	return append([]byte(head), b.Bytes()...), nil
}

// isBlank reports whether a character ends a word in a configuration.
func isBlank(c rune) bool { return c <= ' ' || c == 0x7f }

// tunnels reports whether a proxy opens tunnels, as far as is known.
func tunnels(p Proxy) bool {
	f := Filter{Connect: true}
	return f.takes(&p)
}

// pacWords are what PAC files call the protocols.
var pacWords = map[string]string{"http": "PROXY", "https": "HTTPS", "socks4": "SOCKS4", "socks4a": "SOCKS4", "socks5": "SOCKS5"}

// pacOf writes a proxy auto-configuration: a function in JavaScript that answers each URL with some proxies, from a random
// one on, of which a browser uses the first that works. Proxies with a password are left out: it has no place for one.
func pacOf(list []Proxy) ([]byte, error) {
	plain, secure, left := []string{}, []string{}, 0
	for _, p := range list {
		word := pacWords[p.Protocol]
		if word == "" || p.Username != "" || p.Password != "" {
			left++
			continue
		}
		word += " " + net.JoinHostPort(p.Host, strconv.Itoa(int(p.Port)))
		if !p.onlyHTTPS() {
			plain = append(plain, word)
		}
		if tunnels(p) {
			secure = append(secure, word)
		}
	}
	var arrays [2][]byte
	for i, words := range [][]string{plain, secure} {
		var err error
		if arrays[i], err = json.MarshalIndent(words, "", "  "); err != nil {
			return nil, err
		}
	}
	return fmt.Appendf(nil, pacFile, left, arrays[0], arrays[1]), nil
}

// pacFile takes the number of proxies that are left out, and the two lists as JSON.
const pacFile = `// Proxies of the pool. %d with a password are left out.
var plain = %s;
var secure = %s;

function FindProxyForURL(url, host) {
  var list = url.substring(0, 5) === "http:" ? plain : secure;
  if (list.length === 0) {
    return "PROXY 127.0.0.1:1"; // fails; an empty answer would mean a direct connection
  }
  var first = Math.floor(Math.random() * list.length), answer = [];
  for (var i = 0; i < list.length && i < 5; i++) {
    answer.push(list[(first + i) %% list.length]);
  }
  return answer.join("; ");
}
`

// clashProxy is an entry of a Clash configuration.
type clashProxy struct {
	Name       string `json:"name"`
	Type       string `json:"type"`
	Server     string `json:"server"`
	Port       uint16 `json:"port"`
	Username   string `json:"username,omitempty"`
	Password   string `json:"password,omitempty"`
	TLS        bool   `json:"tls,omitempty"`
	SkipVerify bool   `json:"skip-cert-verify,omitempty"` // as we do: what is sent to the proxy is no more secret than over http
}

// clashOf writes the proxies that Clash can use, those of http, https and socks5, as a file that its proxy-providers read.
func clashOf(list []Proxy) ([]byte, error) {
	var b bytes.Buffer
	for _, p := range list {
		entry := clashProxy{Name: p.ID, Type: p.Protocol, Server: p.Host, Port: p.Port, Username: p.Username, Password: p.Password}
		switch {
		case p.Protocol == "https":
			entry.Type, entry.TLS, entry.SkipVerify = "http", true, true
		case p.Protocol != "http" && p.Protocol != "socks5":
			continue
		}
		line, err := json.Marshal(entry) // which is YAML as well
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "  - %s\n", line)
	}
	if b.Len() == 0 {
		return []byte("proxies: []\n"), nil
	}
	return append([]byte("proxies:\n"), b.Bytes()...), nil
}
