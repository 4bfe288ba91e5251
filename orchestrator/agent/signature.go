package agent

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// secretPrefix marks secrets, as Standard Webhooks does.
const secretPrefix = "whsec_"

// newSecret returns 32 random bytes as text.
func newSecret() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // it never fails
	return secretPrefix + base64.StdEncoding.EncodeToString(b)
}

// secretKey returns the bytes of a secret; none for "".
func secretKey(secret string) ([]byte, error) {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, secretPrefix))
	if err != nil || secret != "" && len(key) < 16 {
		return nil, errors.New("give at least 16 bytes as base64, with " + secretPrefix + " in front of them or not")
	}
	return key, nil
}

// newID returns 128 random bits as text.
func newID() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // it never fails
	return hex.EncodeToString(b)
}

// sign sets the headers of Standard Webhooks on a request. Without a secret there is no signature.
func sign(h http.Header, secret, id string, at time.Time, body []byte) error {
	key, err := secretKey(secret)
	if err != nil {
		return err
	}
	stamp := strconv.FormatInt(at.Unix(), 10)
	h.Set("webhook-id", id)
	h.Set("webhook-timestamp", stamp)
	if len(key) > 0 {
		h.Set("webhook-signature", "v1,"+signature(key, id, stamp, body))
	}
	return nil
}

func signature(key []byte, id, stamp string, body []byte) string {
	mac := hmac.New(sha256.New, key)
	_, _ = mac.Write([]byte(id + "." + stamp + "."))
	_, _ = mac.Write(body)
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// Verify checks the signature of a request that was pushed to an agent, as the agent does: with the secret that Register
// returned, the headers and the body of the request. A signature of more than five minutes before or after now is refused.
func Verify(secret string, h http.Header, body []byte, now time.Time) error {
	key, err := secretKey(secret)
	if err != nil {
		return err
	}
	if len(key) == 0 {
		return errors.New("there is no secret to check the signature with")
	}
	id, stamp := h.Get("webhook-id"), h.Get("webhook-timestamp")
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil || now.Sub(time.Unix(seconds, 0)).Abs() > 5*time.Minute {
		return errors.New("the request is too old, or has no webhook-timestamp")
	}
	want := []byte("v1," + signature(key, id, stamp, body))
	for given := range strings.FieldsSeq(h.Get("webhook-signature")) {
		if hmac.Equal([]byte(given), want) {
			return nil
		}
	}
	return errors.New("the signature is not one of this request and secret")
}
