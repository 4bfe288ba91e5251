package sink

import (
	"strings"
	"testing"
)

// FuzzAddress checks that the address of a sink with a password is rejected with an error that does not repeat it.
func FuzzAddress(f *testing.F) {
	for _, s := range []string{"postgres://u:", "postgres://h/db?password=", "https://u:", "ftp://u:", "postgresql://[u:", "https://h/%zz", "http:://:", "postgres:/://:"} {
		f.Add(s, "@h/db")
	}
	f.Add("sqlite:", ".db")
	f.Fuzz(func(t *testing.T, before, after string) {
		const password = "s3cr3t-w0rd"
		if scheme, rest, ok := strings.Cut(before, "://"); !ok || scheme == "" || !strings.HasSuffix(rest, ":") || strings.ContainsAny(rest, "/?#@") || !strings.HasPrefix(after, "@") {
			return // only the userinfo contains a password
		}
		_, _, err := parse(before + password + after)
		if err == nil {
			t.Errorf("%q is let through", before+password+after)
		} else if strings.Contains(err.Error(), password) {
			t.Errorf("%q: the error is %v", before+password+after, err)
		}
	})
}
