package probe

import (
	"bytes"
	"encoding/json"
	"html"
	"net/netip"
	"strings"

	"muster/proxies/tunnel"
)

// echoOf reads the answer of a judge, ours or a public one.
func (p *Prober) echoOf(j judge, r *reply, nonce string) (*Echo, error) {
	if j.public == "" {
		return p.verifyEcho(r, nonce)
	}
	if r.truncated || !bytes.Contains(r.body, []byte(nonce)) {
		return nil, &tunnel.Error{Reason: NotProxy, Detail: "the page does not show the request"}
	}
	echo := readHTTPBin(r.body)
	if echo == nil {
		echo = readAzenv(r.body)
	}
	if echo == nil {
		return nil, &tunnel.Error{Reason: NotProxy, Detail: "the page shows no peer address"}
	}
	echo.Nonce = nonce
	return echo, nil
}

// readHTTPBin reads {"headers": {…}, "origin": "1.2.3.4"}; the origin may be a list, the peer standing last.
func readHTTPBin(body []byte) *Echo {
	var page struct {
		Headers map[string]string `json:"headers"`
		Origin  string            `json:"origin"`
	}
	if json.Unmarshal(body, &page) != nil || page.Origin == "" {
		return nil
	}
	addresses := addressTokens(page.Origin)
	if len(addresses) == 0 {
		return nil
	}
	echo := &Echo{Peer: addresses[len(addresses)-1]}
	for name, value := range page.Headers {
		switch strings.ToLower(name) {
		case "x-amzn-trace-id": // is the load balancer's, and new each time
		case "x-forwarded-for", "x-real-ip": // what the balancer itself adds is the peer
			if value != echo.Peer.String() {
				echo.Headers = append(echo.Headers, [2]string{name, value})
			}
		default:
			echo.Headers = append(echo.Headers, [2]string{name, value})
		}
	}
	return echo
}

// readAzenv reads lines of NAME = VALUE, as PHP's azenv.php prints its environment, in or without HTML.
func readAzenv(body []byte) *Echo {
	echo := &Echo{}
	for line := range strings.Lines(string(body)) {
		name, value, ok := strings.Cut(line, " = ")
		if !ok {
			continue
		}
		if i := strings.LastIndexByte(name, '>'); i >= 0 {
			name = name[i+1:]
		}
		value, _, _ = strings.Cut(value, "<")
		name, value = strings.TrimSpace(name), html.UnescapeString(strings.TrimSpace(value))
		if name == "REMOTE_ADDR" {
			peer, err := netip.ParseAddr(value)
			if err != nil {
				return nil
			}
			echo.Peer = peer.Unmap()
		}
		if header, ok := strings.CutPrefix(name, "HTTP_"); ok {
			echo.Headers = append(echo.Headers, [2]string{strings.ReplaceAll(header, "_", "-"), value})
		}
	}
	if !echo.Peer.IsValid() {
		return nil
	}
	return echo
}
