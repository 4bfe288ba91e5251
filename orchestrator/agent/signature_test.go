package agent_test

import (
	"net/http"
	"testing"
	"time"

	"muster/orchestrator/agent"
)

// The example of the specification of Standard Webhooks.
func TestTheSignatureIsThatOfStandardWebhooks(t *testing.T) {
	t.Parallel()
	const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	h := http.Header{}
	h.Set("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek")
	h.Set("webhook-timestamp", "1614265330")
	h.Set("webhook-signature", "v1,bm9ldHUjKzFob2VudXRob2VodWUzMjRvdWVvdW9ldQo=")
	at := time.Unix(1614265330, 0)
	body := []byte(`{"test": 2432232314}`)
	if err := agent.Verify(secret, h, body, at); err == nil {
		t.Error("a wrong signature is accepted")
	}
	h.Set("webhook-signature", "v1,x v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=")
	for name, c := range map[string]struct {
		secret string
		body   string
		now    time.Time
		ok     bool
	}{
		"right":             {secret, string(body), at, true},
		"without a prefix":  {"MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", string(body), at, true},
		"another body":      {secret, `{"test": 2432232315}`, at, false},
		"another secret":    {"whsec_AfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", string(body), at, false},
		"too late":          {secret, string(body), at.Add(6 * time.Minute), false},
		"no secret":         {"", string(body), at, false},
		"secret not base64": {"whsec_%", string(body), at, false},
	} {
		if err := agent.Verify(c.secret, h, []byte(c.body), c.now); (err == nil) != c.ok {
			t.Errorf("%s: got %v, want success: %v", name, err, c.ok)
		}
	}
}
