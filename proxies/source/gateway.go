package source

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// maxGateway is the maximum number of candidates of a gateway.
const maxGateway = 10_000

// CheckGateway returns an error if the gateway of s is invalid. The error contains no secrets.
func (s Source) CheckGateway() error {
	g, err := parseGateway(s.Gateway)
	country, session := g.has("{country}"), g.has("{session}")
	switch {
	case s.URL != "":
		return errors.New("url and gateway are mutually exclusive")
	case s.Name == "":
		return errors.New("a gateway requires a name")
	case err != nil:
		return err
	case country != (len(s.Countries) > 0):
		return errors.New("{country} and countries require each other")
	case session != (s.Sessions > 0):
		return errors.New("{session} and sessions require each other")
	case s.Sessions < 0 || s.Sessions > maxGateway || max(s.Sessions, 1)*max(len(s.Countries), 1) > maxGateway:
		return fmt.Errorf("more than %d sessions over all countries", maxGateway)
	}
	for _, c := range s.Countries {
		if !countryName.MatchString(c) {
			return fmt.Errorf("invalid country %q: use letters, digits, - and _, as the provider spells it", c)
		}
	}
	return nil
}

var (
	countryName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,40}$`)
	reference   = regexp.MustCompile(`\$\{[^}]*\}`)
	placeholder = regexp.MustCompile(`\$\{[^}]*\}|\{country\}|\{session\}`)
)

// gateway is the parsed address of a paid gateway. Each part may contain {country}, {session} and references to
// secrets. Secrets may contain any characters, so the address is parsed before they are inserted.
type gateway struct{ scheme, user, password, host, port string }

func parseGateway(text string) (gateway, error) {
	scheme, rest, _ := strings.Cut(text, "://")
	plain := reference.ReplaceAllStringFunc(rest, func(s string) string { return strings.Repeat("x", len(s)) })
	at := strings.LastIndexByte(plain, '@')
	login, address, shape := rest[:max(at, 0)], rest[at+1:], plain[at+1:]
	g := gateway{scheme: scheme, user: login, host: address}
	if colon := strings.IndexByte(plain[:len(login)], ':'); colon >= 0 {
		g.user, g.password = login[:colon], login[colon+1:]
	}
	colon := strings.LastIndexByte(shape, ':')
	if protocolOf(scheme) != scheme || scheme == "" || colon <= 0 || strings.ContainsAny(shape, "/?# ") {
		return g, errors.New("invalid gateway: use http://USER:PASSWORD@HOST:PORT, with one of the schemes " + strings.Join(Protocols, ", "))
	}
	g.host, g.port = address[:colon], address[colon+1:]
	return g, nil
}

// has reports whether a part of g contains the placeholder name.
func (g gateway) has(name string) bool {
	return slices.ContainsFunc([]string{g.user, g.password, g.host, g.port}, func(part string) bool {
		return slices.Contains(placeholder.FindAllString(part, -1), name)
	})
}

// gateway returns a candidate for each country and session of a gateway.
func (f *Fetcher) gateway(s Source) (Parsed, error) {
	if err := s.CheckGateway(); err != nil {
		return Parsed{}, err
	}
	g, err := parseGateway(s.Gateway)
	if err != nil {
		return Parsed{}, err
	}
	countries := s.Countries
	if len(countries) == 0 {
		countries = []string{""}
	}
	p := newParser(Options{AllowLocal: s.AllowLocal, Max: s.Max, Name: s.Label()})
	for _, country := range countries {
		for n := range max(s.Sessions, 1) {
			variant, session := country, ""
			if s.Sessions > 0 {
				session = fmt.Sprintf("%08d", n+1)
				variant = strings.TrimPrefix(country+"."+strconv.Itoa(n+1), ".")
			}
			var parts [4]string
			for i, part := range []string{g.user, g.password, g.host, g.port} {
				part = placeholder.ReplaceAllStringFunc(part, func(name string) string {
					switch name {
					case "{country}":
						return country
					case "{session}":
						return session
					}
					return name // a reference to a secret
				})
				if parts[i], err = f.expand(part); err != nil {
					return Parsed{}, err
				}
			}
			c := Candidate{Protocol: g.scheme, Username: parts[0], Password: parts[1], Host: parts[2], Variant: variant}
			if len(country) == 2 {
				c.Country = strings.ToUpper(country)
			}
			p.add(c, parts[3])
		}
	}
	return p.out, nil
}
