package config

import (
	"errors"
	"fmt"
	"net/url"
	"time"
)

// JWT says which JSON Web Tokens the HTTP interface accepts.
type JWT struct {
	JWKS      string        `yaml:"jwks"`
	Issuer    string        `yaml:"issuer"`
	Audience  string        `yaml:"audience"`
	RoleClaim string        `yaml:"role_claim" rule:"required"`
	Leeway    time.Duration `yaml:"leeway" range:"0s 10m"`
}

// Enabled reports whether tokens are accepted.
func (j JWT) Enabled() bool { return j.JWKS != "" }

// check says what is missing.
func (j JWT) check() error {
	if j.Enabled() && (j.Issuer == "" || j.Audience == "") {
		return errors.New("api.jwt: set issuer and audience, too: otherwise a token for another service would count here")
	}
	if !j.Enabled() && (j.Issuer != "" || j.Audience != "") {
		return errors.New("api.jwt: set jwks, the URL or file of the issuer's public keys; without it no token is accepted")
	}
	return nil
}

// checkOrigins says what is wrong with the origins of web pages.
func checkOrigins(origins []string) []error {
	var errs []error
	for _, text := range origins {
		u, err := url.Parse(text)
		switch {
		case text == "*":
			errs = append(errs, errors.New("* would let every web page use the interface through the browsers that can reach it; list the origins"))
		case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || text != u.Scheme+"://"+u.Host:
			errs = append(errs, fmt.Errorf("%q is no origin; write https://host or http://host:port, without a path", maskURL(text)))
		}
	}
	return errs
}
