package probe

import (
	"net/netip"
	"slices"
	"testing"
)

func TestGrade(t *testing.T) {
	t.Parallel()
	real := []netip.Addr{netip.MustParseAddr("1.2.3.4"), netip.MustParseAddr("2001:db8::7")}
	baseline := &Echo{Headers: [][2]string{{"Host", "judge:80"}, {"User-Agent", "Muster"}, {"Accept", "*/*"}, {"Connection", "close"}}}
	elsewhere := netip.MustParseAddr("9.9.9.9")
	for name, test := range map[string]struct {
		peer  netip.Addr
		added [][2]string
		want  string
	}{
		"nothing added":                 {elsewhere, nil, Elite},
		"real address of another":       {elsewhere, [][2]string{{"X-Thing", "11.2.3.45"}}, Elite},
		"our address in any header":     {elsewhere, [][2]string{{"X-Thing", "client 1.2.3.4, port 9"}}, Transparent},
		"Forwarded for=":                {elsewhere, [][2]string{{"Forwarded", `for=1.2.3.4;proto=http`}}, Transparent},
		"Forwarded v6 in brackets":      {elsewhere, [][2]string{{"Forwarded", `for="[2001:db8:0::7]:4711"`}}, Transparent},
		"with a port":                   {elsewhere, [][2]string{{"X-Forwarded-For", "8.8.8.8, 1.2.3.4:5555"}}, Transparent},
		"v4 in v6":                      {elsewhere, [][2]string{{"X-Client", "::ffff:1.2.3.4"}}, Transparent},
		"peer is us":                    {real[0], nil, Transparent},
		"Via in any case":               {elsewhere, [][2]string{{"vIA", "1.1 x"}}, Anonymous},
		"Trivia is no Via":              {elsewhere, [][2]string{{"X-Trivia", "via"}}, Elite},
		"unknown X-Forwarded-*":         {elsewhere, [][2]string{{"X-Forwarded-Server", "p"}}, Anonymous},
		"changed user agent":            {elsewhere, [][2]string{{"User-Agent", "Other"}}, Anonymous},
		"cache control of a good squid": {elsewhere, [][2]string{{"Cache-Control", "max-age=259200"}, {"Connection", "keep-alive"}}, Elite},
		"proxy connection":              {elsewhere, [][2]string{{"Connection", "Proxy-Something"}}, Anonymous},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			through := &Echo{Peer: test.peer, Headers: append(slices.Clone(baseline.Headers), test.added...)}
			if got, added := grade(baseline, through, real); got != test.want || len(added) != len(test.added) {
				t.Errorf("got %s, added %v; want %s", got, added, test.want)
			}
		})
	}
}

func TestSameNetwork(t *testing.T) {
	t.Parallel()
	real := []netip.Addr{netip.MustParseAddr("1.2.3.4"), netip.MustParseAddr("2001:db8:1:2::7")}
	for exit, want := range map[string]bool{
		"1.2.3.200": true, "1.2.4.4": false, "11.2.3.4": false, "2001:db8:1:ffff::1": true, "2001:db8:2::1": false, "8.8.8.8": false,
	} {
		if got := sameNetwork(netip.MustParseAddr(exit), real, 24, 48); got != want {
			t.Errorf("%s: got %t want %t", exit, got, want)
		}
	}
}
