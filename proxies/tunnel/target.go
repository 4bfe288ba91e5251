package tunnel

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// CheckTarget returns an error when addr, "host:port", cannot be the address of anything, whoever is asked for it: there
// is no port from 1 to 65535, or a host that is neither an IP address nor a name that DNS can hold.
func CheckTarget(addr string) error {
	_, _, err := splitTarget(addr)
	return err
}

func splitTarget(addr string) (host string, port uint16, err error) {
	host, portText, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, fmt.Errorf("target address %q: write host:port", addr)
	}
	n, err := strconv.ParseUint(portText, 10, 16)
	if err != nil || n == 0 {
		return "", 0, fmt.Errorf("target address %q: a port is a number from 1 to 65535", addr)
	}
	if err := checkHost(host); err != nil {
		return "", 0, fmt.Errorf("target address %q: %w", addr, err)
	}
	return host, uint16(n), nil
}

// checkHost takes IP addresses without a zone, and names with letters, digits, - and _ between their dots. Letters beyond
// ASCII are left to the proxy.
func checkHost(host string) error {
	if ip, err := netip.ParseAddr(host); err == nil {
		if ip.Zone() != "" {
			return errors.New("an address with a zone means something on this machine only")
		}
		return nil
	}
	name := strings.TrimSuffix(host, ".")
	if len(name) > 253 {
		return errors.New("a host name has at most 253 bytes")
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" {
			return errors.New("a host name has no empty part")
		}
		for i := range len(label) {
			switch c := label[i]; {
			case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_', c >= 0x80:
			default:
				return fmt.Errorf("a host name has no %q", c)
			}
		}
	}
	return nil
}
