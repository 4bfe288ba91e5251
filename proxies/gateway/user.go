package gateway

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"muster/proxies"
	"muster/proxies/probe"
	"muster/proxies/source"
)

// authorize checks the credentials of a client and returns the pick options in its user name.
func (g *Gateway) authorize(client, user, password string) (proxies.PickOptions, error) {
	if err := g.logins.check(client, password); err != nil {
		g.refused.Add(1)
		return proxies.PickOptions{}, err
	}
	return withUser(g.cfg.Options, user)
}

// clientOf returns the address of a client; for IPv6 the /64 network, because one client may use all its addresses.
func clientOf(remote string) string {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return remote
	}
	addr := at.Addr().Unmap().WithZone("")
	if addr.Is4() {
		return addr.String()
	}
	network, _ := addr.Prefix(64) // never fails
	return network.String()
}

// userOptions lists the options of a user name, in the order of error messages.
var userOptions = []string{"session", "ttl", "country", "protocol", "anonymity"}

// withUser adds the options of a user name to o. The syntax is name-option-value-option-value. A value extends to the
// next option, so it may contain dashes; the name must not.
func withUser(o proxies.PickOptions, user string) (proxies.PickOptions, error) {
	parts := strings.Split(user, "-")[1:]
	var given []string
	for len(parts) > 0 {
		option := parts[0]
		if !slices.Contains(userOptions, option) {
			return o, fmt.Errorf("user name: unknown option %q; use NAME-OPTION-VALUE with a NAME without dashes and one of %s", option, strings.Join(userOptions, ", "))
		}
		if slices.Contains(given, option) {
			return o, fmt.Errorf("user name: duplicate option %s", option)
		}
		given = append(given, option)
		end := slices.IndexFunc(parts[1:], func(part string) bool { return slices.Contains(userOptions, part) })
		if end < 0 {
			end = len(parts) - 1
		}
		value := strings.Join(parts[1:1+end], "-")
		parts = parts[1+end:]
		if value == "" {
			return o, fmt.Errorf("user name: %s has no value; use the form user-session-abc-country-bg", option)
		}
		if err := setOption(&o, option, value); err != nil {
			return o, err
		}
	}
	return o, nil
}

// setOption sets one of userOptions.
func setOption(o *proxies.PickOptions, option, value string) error {
	oneOf := func(known ...string) error {
		if !slices.Contains(known, value) {
			return fmt.Errorf("user name: unknown %s %q; use one of %s", option, value, strings.Join(known, ", "))
		}
		return nil
	}
	switch option {
	case "session":
		o.Sticky = "gateway:" + value
	case "ttl":
		d, err := time.ParseDuration(value)
		if err != nil || d <= 0 || d > 24*time.Hour {
			return fmt.Errorf("user name: invalid ttl %q; use a duration up to 24h", value)
		}
		o.StickyFor = d
	case "country":
		country := strings.ToUpper(value)
		if len(country) != 2 || strings.Trim(country, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
			return fmt.Errorf("user name: invalid country %q; use two letters, such as bg", value)
		}
		o.Filter.Countries = []string{country}
	case "protocol":
		o.Filter.Protocols = []string{value}
		return oneOf(source.Protocols...)
	case "anonymity":
		o.Filter.Anonymity = value
		return oneOf(probe.Transparent, probe.Anonymous, probe.Elite)
	}
	return nil
}
