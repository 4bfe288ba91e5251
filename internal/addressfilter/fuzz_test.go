package addressfilter

import (
	"net/netip"
	"strings"
	"testing"
)

// FuzzNew checks that an exception allows only its own address, network or host: 169.254.169.254 remains rejected unless it is included.
func FuzzNew(f *testing.F) {
	for _, s := range []string{"10.1.2.3", "10.0.0.0/8", "host.internal:8080", "[::1]:80", "::ffff:10.0.0.1", "0.0.0.0/0", "fe80::1%eth0", "a/b", ":80", "host:99999", "1.2.3.4/33"} {
		f.Add(s)
	}
	metadata := netip.MustParseAddr("169.254.169.254")
	f.Fuzz(func(t *testing.T, allow string) {
		filter, err := New(allow)
		if err != nil {
			return
		}
		if len(filter.networks)+len(filter.hosts) != 1 {
			t.Fatalf("%q makes %d exceptions", allow, len(filter.networks)+len(filter.hosts))
		}
		for h := range filter.hosts {
			if strings.ContainsAny(h, " */@") {
				t.Errorf("%q allows the host %q", allow, h)
			}
		}
		for _, n := range filter.networks {
			if !n.IsValid() || n != n.Masked() {
				t.Errorf("%q allows the network %v", allow, n)
			}
			if n.Contains(metadata) && n.Bits() == 32 && n.Addr() != metadata {
				t.Errorf("%q allows %s", allow, metadata)
			}
		}
	})
}
