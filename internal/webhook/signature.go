// Package webhook signs, sends and verifies webhooks according to Standard Webhooks (https://www.standardwebhooks.com), with the
// headers webhook-id, webhook-timestamp and webhook-signature.
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
	minSecret    = 16 // minimum length of a secret in bytes
	maxSecret    = 64
	tolerance    = 5 * time.Minute // maximum clock skew between sender and receiver
)

// NewSecret returns 32 random bytes as a secret.
func NewSecret() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails
	return secretPrefix + base64.StdEncoding.EncodeToString(b)
}

// CheckSecret validates a secret. The error does not contain it. A secret must be base64, like in the libraries of receivers: another
// string could be interpreted as two different keys.
func CheckSecret(secret string) error {
	_, err := key(secret)
	return err
}

// key returns the bytes of a secret.
func key(secret string) ([]byte, error) {
	k, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, secretPrefix))
	if err != nil || len(k) < minSecret || len(k) > maxSecret {
		return nil, fmt.Errorf("invalid secret: use %d to %d bytes as base64, optionally with the prefix %s, for example from openssl rand -base64 32", minSecret, maxSecret, secretPrefix)
	}
	return k, nil
}

// Sign sets the headers of a request with an ID and a body that is sent at a time. It adds a signature per secret, so that a receiver
// with one of them accepts the request. Without secrets it adds none. The error is about a malformed secret.
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

// Verify verifies the signature of a request like a receiver: one of the secrets must match. It rejects requests sent more than five
// minutes before or after now.
func Verify(h http.Header, body []byte, now time.Time, secrets ...string) error {
	if len(secrets) == 0 {
		return errors.New("no secret to verify the signature")
	}
	id, stamp := h.Get("webhook-id"), h.Get("webhook-timestamp")
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil || now.Sub(time.Unix(seconds, 0)).Abs() > tolerance {
		return errors.New("the request is too old or has no webhook-timestamp")
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
	return errors.New("the signature does not match the request and the secrets")
}
