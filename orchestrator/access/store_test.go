package access

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// clock is a manual clock.
type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

func newStore(t *testing.T, rdb redis.UniversalClient) (*Keys, *clock) {
	t.Helper()
	c := &clock{time.Now()}
	k := NewKeys(rdb)
	k.now = c.now
	return k, c
}

func create(t *testing.T, k *Keys, n NewKey) (Key, string) {
	t.Helper()
	key, text, err := k.Create(t.Context(), n)
	testutil.Ok(t, err)
	return key, text
}

// denied returns the reason why a key is denied, or "".
func denied(err error) string {
	if d, ok := errors.AsType[*Denied](err); ok {
		return d.Why
	}
	return ""
}

func TestKeyLivesUntilRevokedOrExpired(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		k, clock := newStore(t, rdb)
		if made, err := k.Any(t.Context()); made || err != nil {
			t.Fatalf("got %v, %v, want no key", made, err)
		}
		away, cancel := context.WithCancel(t.Context())
		cancel()
		clock.at = clock.at.Add(time.Minute)
		if made, err := k.Any(away); made || !errors.Is(err, ErrStale) {
			t.Fatalf("while Redis is unavailable: got %v, %v, want ErrStale", made, err)
		}
		one, text := create(t, k, NewKey{Name: "one", Role: Operator})
		if made, err := k.Any(t.Context()); !made || err != nil { // visible immediately in the process that created it
			t.Fatalf("got %v, %v, want a key", made, err)
		}
		clock.at = clock.at.Add(time.Millisecond)
		two, other := create(t, k, NewKey{Name: "two", Role: Agent, Expires: clock.at.Add(time.Hour)})
		if got, err := k.verify(t.Context(), text); err != nil || got.ID != one.ID || got.Role != Operator || got.Name != "one" {
			t.Errorf("got %+v, %v, want the first key", got, err)
		}
		wrong := text[:len(text)-4] + strings.Map(func(r rune) rune {
			if r == 'A' {
				return 'B'
			}
			return 'A'
		}, text[len(text)-4:])
		for _, bad := range []string{wrong, prefix + two.ID + text[len(prefix+two.ID):], prefix, text + "A", prefix + strings.Repeat("0", 12) + text[len(prefix)+12:], prefix + one.ID} {
			if _, err := k.verify(t.Context(), bad); denied(err) != "invalid key" {
				t.Errorf("%q: got %v, want a wrong key", bad, err)
			}
		}
		clock.at = clock.at.Add(2 * time.Hour)
		if _, err := k.verify(t.Context(), other); denied(err) != "the key is expired" {
			t.Errorf("got %v, want an expired key", err)
		}
		for range 2 { // the second call changes nothing
			if key, err := k.Revoke(t.Context(), "one"); err != nil || key.State(clock.at) != "revoked" {
				t.Errorf("revoke: got %+v, %v", key, err)
			}
		}
		if _, err := k.verify(t.Context(), text); denied(err) != "the key is revoked" {
			t.Errorf("got %v, want a revoked key", err)
		}
		list, err := k.List(t.Context())
		if err != nil || len(list) != 2 || list[0].State(clock.at) != "revoked" || list[1].State(clock.at) != "expired" {
			t.Errorf("got %+v, %v, want both keys, revoked and expired", list, err)
		}
	})
}

// An owner of agents is active while a key of its name is active.
func TestOwnerIsActiveWithAKeyOfItsName(t *testing.T) {
	t.Parallel()
	k, at := newStore(t, redistest.New(t))
	want := func(owner string, active bool) {
		t.Helper()
		if got, err := k.OwnerActive(t.Context(), owner); err != nil || got != active {
			t.Errorf("OwnerActive(%s) = %v, %v; want %v", owner, got, err, active)
		}
	}
	one, _ := create(t, k, NewKey{Name: "one", Role: Agent})
	create(t, k, NewKey{Name: "one", Role: Agent, Expires: k.now().Add(time.Hour)})
	want("key:one", true)
	want("key:other", false)
	want("token:other", true) // it cannot be revoked
	testutil.Must(k.Revoke(t.Context(), one.ID))(t)
	want("key:one", true)
	at.at = at.at.Add(time.Hour)
	want("key:one", false)
}

// The stored record of a key does not contain its secret.
func TestSecretIsNotStored(t *testing.T) {
	t.Parallel()
	rdb := redistest.New(t)
	k, _ := newStore(t, rdb)
	key, text := create(t, k, NewKey{Name: "one", Role: Admin})
	secret := text[strings.LastIndex(text, key.ID)+len(key.ID)+1:]
	all, err := rdb.Keys(t.Context(), "*").Result()
	if err != nil || len(all) != 2 {
		t.Fatalf("got %v, %v, want two keys of Redis", all, err)
	}
	fields, err := rdb.HGetAll(t.Context(), k.keys.record(key.ID)).Result()
	if err != nil || strings.Contains(fmt.Sprint(all, fields), secret) || len(fields["hash"]) != 64 {
		t.Errorf("got %v, %v, want only a hash", fields, err)
	}
}

// A process detects a revocation two seconds after it cached the key, and uses the cached key without Redis until then.
func TestRevocationTakesEffectInTwoSeconds(t *testing.T) {
	t.Parallel()
	rdb := redistest.New(t)
	here, _ := newStore(t, rdb)
	there, clock := newStore(t, rdb)
	_, text := create(t, here, NewKey{Name: "one", Role: Admin})
	verify := func() string {
		_, err := there.verify(t.Context(), text)
		if err != nil && denied(err) == "" {
			t.Fatal(err)
		}
		return denied(err)
	}
	if why := verify(); why != "" {
		t.Fatalf("got %q, want it accepted", why)
	}
	testutil.Must(here.Revoke(t.Context(), "one"))(t)
	clock.at = clock.at.Add(cacheFor - time.Millisecond)
	if why := verify(); why != "" {
		t.Errorf("got %q before the cache entry is two seconds old", why)
	}
	clock.at = clock.at.Add(time.Millisecond)
	if why := verify(); why != "the key is revoked" {
		t.Errorf("got %q after two seconds, want it revoked", why)
	}
}

// While Redis is unavailable, a used key remains valid for ten minutes.
func TestUsedKeyIsValidWhileRedisIsUnavailable(t *testing.T) {
	t.Parallel()
	rdb := redistest.New(t)
	k, clock := newStore(t, rdb)
	_, text := create(t, k, NewKey{Name: "one", Role: Admin})
	away, cancel := context.WithCancel(t.Context())
	testutil.Must(k.verify(t.Context(), text))(t)
	cancel() // Redis commands fail
	clock.at = clock.at.Add(staleFor - time.Second)
	if _, err := k.verify(away, text); err != nil {
		t.Errorf("got %v, want it accepted", err)
	}
	clock.at = clock.at.Add(time.Second)
	if _, err := k.verify(away, text); err == nil || denied(err) != "" {
		t.Errorf("got %v after ten minutes, want an error", err)
	}
}

// The last use of a key is recorded at most once a minute.
func TestUseIsRecordedOnceAMinute(t *testing.T) {
	t.Parallel()
	rdb := redistest.New(t)
	k, clock := newStore(t, rdb)
	_, text := create(t, k, NewKey{Name: "one", Role: Admin})
	used := func() time.Time {
		testutil.Must(k.verify(t.Context(), text))(t)
		list := testutil.Must(k.List(t.Context()))(t)
		return list[0].Used
	}
	first := used()
	if first.UnixMilli() != clock.at.UnixMilli() {
		t.Fatalf("got %v, want %v", first, clock.at)
	}
	clock.at = clock.at.Add(usedEvery - time.Millisecond)
	if got := used(); !got.Equal(first) {
		t.Errorf("got %v in the same minute, want %v", got, first)
	}
	clock.at = clock.at.Add(time.Millisecond)
	if got := used(); got.Equal(first) {
		t.Errorf("got %v after a minute, want a new time", got)
	}
}

func TestInvalidKeyIsRejected(t *testing.T) {
	t.Parallel()
	k, clock := newStore(t, redistest.New(t))
	for field, n := range map[string]NewKey{
		"name":    {Name: "a b", Role: Admin},
		"role":    {Name: "a", Role: "root"},
		"expires": {Name: "a", Role: Admin, Expires: clock.at},
	} {
		if _, _, err := k.Create(t.Context(), n); !errors.As(err, new(*KeyError)) || !strings.HasPrefix(err.Error(), field) {
			t.Errorf("%+v: got %v, want an error of %s", n, err, field)
		}
	}
	create(t, k, NewKey{Name: "twin", Role: Admin})
	create(t, k, NewKey{Name: "twin", Role: Admin})
	if _, err := k.Revoke(t.Context(), "twin"); !errors.As(err, new(*KeyError)) || !strings.Contains(err.Error(), "use an ID") {
		t.Errorf("got %v, want an ambiguous name", err)
	}
	if _, err := k.Revoke(t.Context(), "nothing"); !errors.Is(err, ErrNoKey) {
		t.Errorf("got %v, want ErrNoKey", err)
	}
}

// At most a thousand keys are stored. A new key replaces the oldest unusable one; if all are usable, it is rejected.
func TestNumberOfKeysIsBounded(t *testing.T) {
	t.Parallel()
	rdb := redistest.New(t)
	k, _ := newStore(t, rdb)
	first, _ := create(t, k, NewKey{Name: "first", Role: Viewer})
	for i := range maxKeys - 1 {
		create(t, k, NewKey{Name: fmt.Sprintf("k%d", i), Role: Viewer})
	}
	if _, _, err := k.Create(t.Context(), NewKey{Name: "more", Role: Viewer}); !errors.Is(err, ErrTooManyKeys) {
		t.Errorf("got %v, want ErrTooManyKeys", err)
	}
	testutil.Must(k.Revoke(t.Context(), first.ID))(t)
	create(t, k, NewKey{Name: "more", Role: Viewer})
	list, err := k.List(t.Context())
	if err != nil || len(list) != maxKeys || list[0].ID == first.ID {
		t.Errorf("got %d keys, the first %+v, %v, want %d without the revoked one", len(list), list[0], err, maxKeys)
	}
}

func TestAuditIsListedNewestFirst(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		a := NewAudit(rdb)
		for i := range 5 {
			e := Entry{Caller: "ann", CallerID: "1", Role: Operator, Operation: fmt.Sprint(i), Method: "POST", Path: "/jobs", Status: 201, Address: "127.0.0.1", Request: "r"}
			if i%2 == 1 {
				e.Caller, e.CallerID = "bob", "2"
			}
			testutil.Ok(t, a.Add(t.Context(), e))
		}
		list := func(f AuditFilter) (string, AuditPage) {
			t.Helper()
			page := testutil.Must(a.List(t.Context(), f))(t)
			got := ""
			for _, e := range page.Entries {
				got += e.Operation
			}
			return got, page
		}
		got, page := list(AuditFilter{Limit: 2})
		if got != "43" || page.Next == "" || page.Entries[0].Status != 201 || page.Entries[0].Role != Operator || page.Entries[0].Time.IsZero() {
			t.Errorf("got %s, %+v, want 43 and more", got, page)
		}
		if got, page = list(AuditFilter{Limit: 3, Before: page.Next}); got != "210" {
			t.Errorf("got %s, %+v, want 210", got, page)
		}
		for filter, want := range map[AuditFilter]string{
			{Caller: "bob"}:                      "31",
			{Caller: "1"}:                        "420",
			{Caller: "eve"}:                      "",
			{Since: time.Now().Add(time.Minute)}: "",
			{Since: time.Now().Add(-time.Hour)}:  "43210",
		} {
			if got, _ := list(filter); got != want {
				t.Errorf("%+v: got %q, want %q", filter, got, want)
			}
		}
		if got, page := list(AuditFilter{Caller: "bob", Limit: 1}); got != "3" || page.Next == "" {
			t.Errorf("got %s, %+v, want 3 and more", got, page)
		}
		if _, err := a.List(t.Context(), AuditFilter{Before: "x"}); !errors.Is(err, ErrCursor) {
			t.Errorf("got %v, want ErrCursor", err)
		}
	})
}

func TestKeyWithAnExpiryThatCannotBeDecodedIsDenied(t *testing.T) {
	t.Parallel()
	for _, field := range []string{"expires", "revoked"} {
		rdb := redistest.New(t)
		k, _ := newStore(t, rdb)
		key, text := create(t, k, NewKey{Name: "one", Role: Admin})
		testutil.Ok(t, rdb.HSet(t.Context(), newKeys().record(key.ID), field, "17x").Err())
		if got, err := k.verify(t.Context(), text); denied(err) == "" {
			t.Errorf("%s: got %+v, %v, want the key denied", field, got, err)
		}
	}
}

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
