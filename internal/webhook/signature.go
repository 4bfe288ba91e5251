// Package webhook signs, sends and verifies webhooks as Standard Webhooks
// describes them, https://www.standardwebhooks.com: the headers webhook-id,
// webhook-timestamp and webhook-signature.
package webhook

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	secretPrefix = "whsec_"
	minSecret    = 16 // bytes of a secret
	maxSecret    = 64
	tolerance    = 5 * time.Minute // of the clocks of sender and receiver
)

// NewSecret returns 32 random bytes as a secret.
func NewSecret() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // it never fails
	return secretPrefix + base64.StdEncoding.EncodeToString(b)
}

// CheckSecret returns an error for a text that is not a secret. The error does not repeat the text. A secret is base64,
// as the libraries of receivers read it: a text that is not could mean two keys.
func CheckSecret(secret string) error {
	_, err := key(secret)
	return err
}

// key returns the bytes of a secret.
func key(secret string) ([]byte, error) {
	k, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, secretPrefix))
	if err != nil || len(k) < minSecret || len(k) > maxSecret {
		return nil, fmt.Errorf("a secret is %d to %d bytes as base64, with %s in front of them or not; openssl rand -base64 32 makes one", minSecret, maxSecret, secretPrefix)
	}
	return k, nil
}

// Sign sets the headers of a request with an id and a body that is sent at a time. It has a signature for each secret, so
// that a receiver that knows one of them accepts it; without secrets it has none. The error is of a malformed secret.
func Sign(h http.Header, id string, at time.Time, body []byte, secrets ...string) error {
	stamp := strconv.FormatInt(at.Unix(), 10)
	var signatures []string
	for _, secret := range secrets {
		k, err := key(secret)
		if err != nil {
			return err
		}
		signatures = append(signatures, signature(k, id, stamp, body))
	}
	h.Set("webhook-id", id)
	h.Set("webhook-timestamp", stamp)
	h.Del("webhook-signature")
	if len(signatures) > 0 {
		h.Set("webhook-signature", strings.Join(signatures, " "))
	}
	return nil
}

func signature(key []byte, id, stamp string, body []byte) string {
	mac := hmac.New(sha256.New, key)
	_, _ = mac.Write([]byte(id + "." + stamp + "."))
	_, _ = mac.Write(body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// Verify checks the signature of a request as its receiver does: its headers, its body, and the secrets of which one must
// fit. A request that was sent more than five minutes before or after now is refused.
func Verify(h http.Header, body []byte, now time.Time, secrets ...string) error {
	if len(secrets) == 0 {
		return errors.New("there is no secret to check the signature with")
	}
	id, stamp := h.Get("webhook-id"), h.Get("webhook-timestamp")
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil || now.Sub(time.Unix(seconds, 0)).Abs() > tolerance {
		return errors.New("the request is too old, or has no webhook-timestamp")
	}
	for _, secret := range secrets {
		k, err := key(secret)
		if err != nil {
			return err
		}
		want := []byte(signature(k, id, stamp, body))
		for given := range strings.FieldsSeq(h.Get("webhook-signature")) {
			if hmac.Equal([]byte(given), want) {
				return nil
			}
		}
	}
	return errors.New("the signature is not one of this request and secret")
}
