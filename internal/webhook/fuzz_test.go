package webhook

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"muster/internal/testutil"
)

const fuzzSecret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3"

// FuzzVerify checks that requests without a signature are rejected, and that signed requests are accepted only unmodified.
func FuzzVerify(f *testing.F) {
	f.Add("msg_1", "1792567680", "v1,AAAA v1a,BBBB", []byte(`{"a":1}`))
	f.Add("", "-9223372036854775808", "v1,", []byte{})
	f.Add("a.b", "9223372036854775807", " ", []byte("x"))
	f.Fuzz(func(t *testing.T, id, stamp, signatures string, body []byte) {
		now := time.Unix(1792567680, 0)
		h := http.Header{}
		h.Set("webhook-id", id)
		h.Set("webhook-timestamp", stamp)
		h.Set("webhook-signature", signatures)
		if Verify(h, body, now, fuzzSecret) == nil {
			t.Errorf("accepted an unsigned request: %v", h)
		}
		testutil.Ok(t, Sign(h, id, now, body, fuzzSecret))
		if err := Verify(h, body, now, NewSecret(), fuzzSecret); err != nil {
			t.Errorf("rejected a signed request: %v", err)
		}
		if Verify(h, append(body[:len(body):len(body)], 'x'), now, fuzzSecret) == nil || Verify(h, body, now.Add(tolerance+time.Second), fuzzSecret) == nil {
			t.Error("accepted another body, or an old request")
		}
	})
}

// FuzzURL checks that displayed URLs and errors contain no password or token.
func FuzzURL(f *testing.F) {
	for _, s := range []string{"https://ops.example/muster?token=", "http://u:", "https://h/#", "https://[::1", "://", "HTTP://h", "https://h/%zz?"} {
		f.Add(s, "@h/x")
	}
	f.Fuzz(func(t *testing.T, before, after string) {
		const hidden = "s3cr3t-t0ken"
		if strings.Contains(before+after, hidden) {
			return
		}
		text := before + hidden + after
		err := CheckURL(text)
		if err != nil {
			if strings.Contains(err.Error(), hidden) {
				t.Errorf("the error contains the URL: %v", err)
			}
			return
		}
		u, perr := url.Parse(text)
		if perr != nil || u.Host == "" || u.User != nil || len(text) > maxURL {
			t.Fatalf("%q is accepted: %v", text, perr)
		}
		if strings.Contains(u.RawQuery, hidden) && strings.Count(text, hidden) == 1 && strings.Contains(ShownURL(text), hidden) {
			t.Errorf("%q is shown as %q", text, ShownURL(text))
		}
	})
}
