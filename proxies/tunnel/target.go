package tunnel

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// CheckTarget returns an error if addr is not a valid "host:port": the port must be from 1 to 65535, the host an IP
// address or a valid DNS name.
func CheckTarget(addr string) error {
	_, _, err := splitTarget(addr)
	return err
}

// AddressOf returns the host:port of an http or https URL.
func AddressOf(u *url.URL) string {
	port := map[string]string{"http": "80", "https": "443"}[u.Scheme]
	return net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), port))
}

func splitTarget(addr string) (host string, port uint16, err error) {
	host, portText, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, fmt.Errorf("invalid target address %q: must be host:port", addr)
	}
	n, err := strconv.ParseUint(portText, 10, 16)
	if err != nil || n == 0 {
		return "", 0, fmt.Errorf("invalid target address %q: port must be from 1 to 65535", addr)
	}
	if err := checkHost(host); err != nil {
		return "", 0, fmt.Errorf("invalid target address %q: %w", addr, err)
	}
	return host, uint16(n), nil
}

// checkHost accepts IP addresses without a zone, and names whose labels contain letters, digits, - and _. Non-ASCII
// letters are left to the proxy.
func checkHost(host string) error {
	if ip, err := netip.ParseAddr(host); err == nil {
		if ip.Zone() != "" {
			return errors.New("addresses with a zone are local to this machine")
		}
		return nil
	}
	name := strings.TrimSuffix(host, ".")
	if len(name) > 253 {
		return errors.New("host name is longer than 253 bytes")
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" {
			return errors.New("host name has an empty label")
		}
		for i := range len(label) {
			switch c := label[i]; {
			case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_', c >= 0x80:
			default:
				return fmt.Errorf("host name contains %q", c)
			}
		}
	}
	return nil
}
