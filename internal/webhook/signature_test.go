package webhook

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"muster/internal/testutil"
)

// The example in the specification of Standard Webhooks.
const (
	exampleSecret    = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	exampleID        = "msg_p5jXN8AQM9LWM0D4loKWxJek"
	exampleBody      = `{"test": 2432232314}`
	exampleSignature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
)

var exampleTime = time.Unix(1614265330, 0)

func TestSignatureMatchesTheSpecification(t *testing.T) {
	t.Parallel()
	h := http.Header{}
	testutil.Ok(t, Sign(h, exampleID, exampleTime, []byte(exampleBody), exampleSecret))
	want := map[string]string{"webhook-id": exampleID, "webhook-timestamp": "1614265330", "webhook-signature": exampleSignature}
	for name, value := range want {
		if got := h.Get(name); got != value {
			t.Errorf("%s: got %q, want %q", name, got, value)
		}
	}
}

func TestVerifyRejectsUnsignedRequests(t *testing.T) {
	t.Parallel()
	h := http.Header{}
	h.Set("webhook-id", exampleID)
	h.Set("webhook-timestamp", "1614265330")
	h.Set("webhook-signature", "v1,bm9ldHUjKzFob2VudXRob2VodWUzMjRvdWVvdW9ldQo=")
	if err := Verify(h, []byte(exampleBody), exampleTime, exampleSecret); err == nil {
		t.Error("a wrong signature is accepted")
	}
	h.Set("webhook-signature", "v1,x "+exampleSignature)
	const other = "whsec_AfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	for name, c := range map[string]struct {
		secrets []string
		body    string
		now     time.Time
		ok      bool
	}{
		"right":             {[]string{exampleSecret}, exampleBody, exampleTime, true},
		"without a prefix":  {[]string{strings.TrimPrefix(exampleSecret, "whsec_")}, exampleBody, exampleTime, true},
		"second secret":     {[]string{other, exampleSecret}, exampleBody, exampleTime, true},
		"another body":      {[]string{exampleSecret}, `{"test": 2432232315}`, exampleTime, false},
		"another secret":    {[]string{other}, exampleBody, exampleTime, false},
		"too late":          {[]string{exampleSecret}, exampleBody, exampleTime.Add(6 * time.Minute), false},
		"too early":         {[]string{exampleSecret}, exampleBody, exampleTime.Add(-6 * time.Minute), false},
		"no secret":         {nil, exampleBody, exampleTime, false},
		"secret not base64": {[]string{"whsec_%"}, exampleBody, exampleTime, false},
	} {
		if err := Verify(h, []byte(c.body), c.now, c.secrets...); (err == nil) != c.ok {
			t.Errorf("%s: got %v, want success: %v", name, err, c.ok)
		}
	}
}

// During a rotation, a receiver with either secret accepts the request.
func TestTwoSecretsAreTwoSignatures(t *testing.T) {
	t.Parallel()
	old, now := NewSecret(), NewSecret()
	h := http.Header{}
	testutil.Ok(t, Sign(h, "1-0", time.Now(), []byte("{}"), now, old))
	for name, secret := range map[string]string{"the new secret": now, "the old secret": old} {
		if err := Verify(h, []byte("{}"), time.Now(), secret); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := Verify(h, []byte("{}"), time.Now(), NewSecret()); err == nil {
		t.Error("a third secret is accepted")
	}
}

func TestSecretsAreChecked(t *testing.T) {
	t.Parallel()
	for secret, ok := range map[string]bool{
		NewSecret(): true, exampleSecret: true,
		"":                                    false,
		"whsec_":                              false,
		"a human passphrase":                  false,
		"c2hvcnQ=":                            false, // 5 bytes
		"whsec_" + strings.Repeat("QUJD", 30): false, // 90 bytes
	} {
		err := CheckSecret(secret)
		if (err == nil) != ok {
			t.Errorf("%q: got %v, want success: %v", secret, err, ok)
		}
		if err != nil && len(secret) > len(secretPrefix) && strings.Contains(err.Error(), secret) {
			t.Errorf("the error contains the secret: %v", err)
		}
	}
}

func TestURLsAreChecked(t *testing.T) {
	t.Parallel()
	for text, ok := range map[string]bool{
		"https://example.org/hook?token=1": true, "http://10.0.0.1:9000": true,
		"": false, "example.org/hook": false, "ftp://example.org": false, "https://": false, "http://:80/": false,
		"https://user:pw@example.org/": false, "https://user@example.org/": false, "https://example.org/#x": false,
		"https://example.org/" + strings.Repeat("x", 2000): false,
	} {
		if err := CheckURL(text); (err == nil) != ok {
			t.Errorf("%.60q: got %v, want success: %v", text, err, ok)
		}
	}
	if got := ShownURL("https://example.org/hook?token=1"); got != "https://example.org/hook?…" {
		t.Errorf("got %q, want no query", got)
	}
}
