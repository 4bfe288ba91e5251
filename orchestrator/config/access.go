package config

import (
	"errors"
	"fmt"
	"net/url"
	"time"
)

// JWT configures the JSON Web Tokens that the HTTP API accepts.
type JWT struct {
	JWKS      string        `yaml:"jwks"`
	Issuer    string        `yaml:"issuer"`
	Audience  string        `yaml:"audience"`
	RoleClaim string        `yaml:"role_claim" rule:"required"`
	Leeway    time.Duration `yaml:"leeway" range:"0s 10m"`
}

// Enabled reports whether the API accepts tokens.
func (j JWT) Enabled() bool { return j.JWKS != "" }

// check returns an error if required settings are missing.
func (j JWT) check() error {
	if j.Enabled() && (j.Issuer == "" || j.Audience == "") {
		return errors.New("api.jwt: issuer and audience are required with jwks, to reject tokens for other services")
	}
	if !j.Enabled() && (j.Issuer != "" || j.Audience != "") {
		return errors.New("api.jwt: jwks is required: the URL or file with the public keys of the issuer")
	}
	return nil
}

// checkOrigins validates the origins of web pages.
func checkOrigins(origins []string) []error {
	var errs []error
	for _, text := range origins {
		u, err := url.Parse(text)
		switch {
		case text == "*":
			errs = append(errs, errors.New("invalid origin *: it would allow every web page to call the API; list the origins"))
		case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || text != u.Scheme+"://"+u.Host:
			errs = append(errs, fmt.Errorf("invalid origin %q: use https://host or http://host:port without a path", maskURL(text)))
		}
	}
	return errs
}
