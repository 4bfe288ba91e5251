package gateway

import (
	"crypto/subtle"
	"errors"
	"fmt"
	"strings"
	"time"

	"muster/proxies"
)

// authorized checks credentials and returns what the user name asks for.
func (g *Gateway) authorized(user, password string) (proxies.PickOptions, error) {
	keys := *g.keys.Load()
	ok := len(keys) == 0
	for _, key := range keys {
		if subtle.ConstantTimeCompare([]byte(key), []byte(password)) == 1 {
			ok = true
		}
	}
	if !ok {
		g.refused.Add(1)
		return proxies.PickOptions{}, errors.New("a key is needed: give it as the proxy password")
	}
	return withUser(g.cfg.Options, user)
}

// withUser adds to options what a user name asks for: name-key-value-key-value.
func withUser(o proxies.PickOptions, user string) (proxies.PickOptions, error) {
	parts := strings.Split(user, "-")
	for i := 1; i < len(parts); i += 2 {
		if i+1 >= len(parts) {
			return o, fmt.Errorf("user name: %q has no value; write user-session-abc-country-bg", parts[i])
		}
		value := parts[i+1]
		switch parts[i] {
		case "session":
			o.Sticky = "gateway:" + value
		case "ttl":
			d, err := time.ParseDuration(value)
			if err != nil || d <= 0 || d > 24*time.Hour {
				return o, fmt.Errorf("user name: ttl %q is no duration up to 24h", value)
			}
			o.StickyFor = d
		case "country":
			o.Filter.Countries = []string{strings.ToUpper(value)}
		case "protocol":
			o.Filter.Protocols = []string{value}
		case "anonymity":
			o.Filter.Anonymity = value
		case "strategy":
			o.Strategy = proxies.Strategy(value)
		default:
			return o, fmt.Errorf("user name: unknown option %q; known are session, ttl, country, protocol, anonymity, strategy", parts[i])
		}
	}
	return o, nil
}
