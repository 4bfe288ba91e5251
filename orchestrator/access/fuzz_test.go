package access

import (
	"crypto/sha256"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// FuzzKeySet checks that a key set contains only public signature keys or is rejected.
func FuzzKeySet(f *testing.F) {
	f.Add([]byte(`{"keys":[{"kty":"EC","crv":"P-256","x":"MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4","y":"4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM","use":"sig","kid":"1"}]}`))
	f.Add([]byte(`{"keys":[{"kty":"oct","k":"AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow"}]}`))
	f.Add([]byte(`{"keys":[{"kty":"RSA","n":"AQ","e":"AQAB"}]}`))
	f.Add([]byte(`{"keys":[null,1,{}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		set, err := parseKeySet(data)
		if err != nil {
			return
		}
		if len(set) == 0 || len(set) > maxSetKeys {
			t.Fatalf("%q has %d keys", data, len(set))
		}
		for _, key := range set {
			if _, shared := key.Key.([]byte); shared || !key.Valid() || !key.IsPublic() {
				t.Errorf("%q has the key %v", data, key)
			}
		}
	})
}

// FuzzToken checks that tokens with an unaccepted signature algorithm, such as none, are rejected.
func FuzzToken(f *testing.F) {
	for _, s := range []string{
		"eyJhbGciOiJub25lIn0.e30.", "eyJhbGciOiJIUzI1NiJ9.e30.c2ln", "eyJhbGciOiJFUzI1NiJ9.e30.c2ln", "..", "a.b.c", "eyJhbGciOiJSUzI1NiIsImtpZCI6IjEifQ.eyJleHAiOjF9.AAAA", `{"payload":"e30","signatures":[]}`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		token, err := jwt.ParseSigned(text, algorithms)
		if err != nil || len(token.Headers) != 1 {
			return
		}
		accepted := false
		for _, a := range algorithms {
			accepted = accepted || token.Headers[0].Algorithm == string(a)
		}
		if !accepted || token.Headers[0].Algorithm == string(jose.HS256) {
			t.Errorf("%q is read, with the algorithm %s", text, token.Headers[0].Algorithm)
		}
	})
}

// FuzzStoredKey checks that a damaged key record is ignored.
func FuzzStoredKey(f *testing.F) {
	f.Add("viewer", "00", "1700000000000")
	f.Add("admin", "0000000000000000000000000000000000000000000000000000000000000000", "x")
	f.Add("root", "zz", "")
	f.Fuzz(func(t *testing.T, role, hash, at string) {
		s, ok := parseKey("id", map[string]string{"role": role, "hash": hash, "created": at, "expires": at, "revoked": at, "used": at})
		if !ok {
			return
		}
		if _, err := ParseRole(role); err != nil || len(s.hash) != sha256.Size {
			t.Errorf("%q, %q: got %+v", role, hash, s)
		}
	})
}
