package probe

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"iter"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// sent are the names of the headers that each request of ours has.
var sent = func() map[string]bool {
	names := map[string]bool{}
	for line := range strings.Lines(knownHeaders) {
		name, _, _ := strings.Cut(line, ":")
		names[strings.ToLower(name)] = true
	}
	return names
}()

// mayChange are the request headers that HTTP software sets or drops for its own connection, with the values that any
// client sends. Every other header that was added, changed or dropped shows a proxy, known to us or not.
var mayChange = map[string]*regexp.Regexp{
	"connection":      regexp.MustCompile(`(?i)^(close|keep-alive)$`),
	"keep-alive":      regexp.MustCompile(`(?i)^(\d+|(timeout|max)=\d+(, *(timeout|max)=\d+)?)$`),
	"accept-encoding": regexp.MustCompile(`(?i)^([a-z*]{1,8}(;q=[01](\.\d{1,3})?)?(, *|$))*$`),
	"content-length":  regexp.MustCompile(`^0$`),
	"cache-control":   regexp.MustCompile(`(?i)^max-age=\d+$`), // squid's, with nothing else to show for it
}

// requestLine is what grade calls the request line among the headers.
const requestLine = "(request line)"

// grade compares what the judge saw through the proxy with what it sees without one. added are the headers that were
// added, changed or dropped.
func grade(baseline, through *Echo, real []netip.Addr) (anonymity string, added []string) {
	shown, marked := slices.Contains(real, through.Peer), false
	note := func(name, value string) {
		added = append(added, http.CanonicalHeaderKey(name))
		shown = shown || slices.ContainsFunc(real, func(own netip.Addr) bool { return showsAddress(value, own) })
		allowed := mayChange[name]
		marked = marked || allowed == nil || value != "" && !allowed.MatchString(value)
	}
	before := map[string][]string{}
	for _, h := range baseline.Headers {
		name := strings.ToLower(h[0])
		before[name] = append(before[name], h[1])
	}
	for _, h := range through.Headers {
		name, value := strings.ToLower(h[0]), h[1]
		known := before[name]
		switch i := slices.Index(known, value); {
		case name == "host": // is the judge's own address
		case i >= 0:
			before[name] = slices.Delete(known, i, i+1)
		case len(known) > 0 && !sent[name]: // what stands before a judge of others adds it, to our own requests as well
			shown = shown || slices.ContainsFunc(real, func(own netip.Addr) bool { return showsAddress(value, own) })
		default:
			note(name, value)
		}
	}
	for name, rest := range before {
		if len(rest) > 0 && sent[name] {
			note(name, "")
		}
	}
	if through.target() != baseline.target() {
		note(requestLine, through.target())
	}
	slices.Sort(added)
	added = slices.Compact(added)
	switch {
	case shown:
		return Transparent, added
	case marked:
		return Anonymous, added
	}
	return Elite, added
}

// target is the request line without the nonce and the version, which is that of one connection.
func (e *Echo) target() string {
	line := strings.ReplaceAll(e.Line, e.Nonce, "")
	return line[:max(strings.LastIndexByte(line, ' '), 0)]
}

// showsAddress reports whether an address stands in a text: written as addresses are, as one decimal number, or in a
// token that is hex or base64 of its bytes or its text.
func showsAddress(text string, addr netip.Addr) bool {
	if slices.Contains(addressTokens(text), addr) {
		return true
	}
	if addr.Is4() {
		four := addr.As4()
		number := strconv.FormatUint(uint64(binary.BigEndian.Uint32(four[:])), 10)
		if slices.Contains(strings.FieldsFunc(text, func(c rune) bool { return c < '0' || c > '9' }), number) {
			return true
		}
	}
	inside := func(decoded []byte, err error) bool {
		return err == nil && (bytes.Contains(decoded, addr.AsSlice()) || slices.Contains(addressTokens(string(decoded)), addr))
	}
	for token := range tokens(text, "") {
		if inside(hex.DecodeString(token)) {
			return true
		}
	}
	for token := range tokens(strings.NewReplacer("-", "+", "_", "/").Replace(text), "+/") {
		if inside(base64.RawStdEncoding.DecodeString(token)) {
			return true
		}
	}
	return false
}

// tokens are the runs of ASCII letters, digits and other characters in a text.
func tokens(text, others string) iter.Seq[string] {
	return strings.FieldsFuncSeq(text, func(c rune) bool {
		return (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && !strings.ContainsRune(others, c)
	})
}

// addressTokens returns every IP address that stands in a header value as a token of its own, with or without a port.
func addressTokens(value string) []netip.Addr {
	var found []netip.Addr
	add := func(token string) bool {
		if addr, err := netip.ParseAddr(token); err == nil {
			found = append(found, addr.Unmap().WithZone(""))
			return true
		}
		if pair, err := netip.ParseAddrPort(token); err == nil {
			found = append(found, pair.Addr().Unmap().WithZone(""))
			return true
		}
		return false
	}
	split := func(separators string) {
		for token := range strings.FieldsFuncSeq(value, func(c rune) bool { return strings.ContainsRune(separators, c) }) {
			if !add(token) { // a v4 address may stand before a port or a full stop
				add(strings.TrimRight(token, ".:"))
			}
		}
	}
	split(" \t,;=\"'()<>|/")    // keeps [v6]:port whole
	split(" \t,;=\"'()<>|/[]")  // and finds a bare [v6]
	split(" \t,;=\"'()<>|/[]:") // and v4 with something glued on by a colon
	return found
}

// sameNetwork reports whether exit lies in the network of one of our own addresses.
func sameNetwork(exit netip.Addr, real []netip.Addr, bits4, bits6 int) bool {
	for _, own := range real {
		bits := bits4
		if own.Is6() {
			bits = bits6
		}
		if network, err := own.Prefix(bits); err == nil && network.Contains(exit) {
			return true
		}
	}
	return false
}
