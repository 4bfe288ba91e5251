package webhook

import (
	"errors"
	"net/url"
)

// maxURL is the maximum length of a URL.
const maxURL = 2000

// CheckURL validates the URL of a webhook. The error does not contain the URL, which may contain a token. User information is
// rejected, because URLs are displayed and the receiver verifies the signature.
func CheckURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case len(text) > maxURL:
		return errors.New("the URL is longer than 2000 bytes")
	case err != nil || u.Host == "" || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https":
		return errors.New("invalid URL: use https://host/path")
	case u.User != nil:
		return errors.New("the URL must not contain a user or a password; the receiver verifies the signature")
	case u.Fragment != "":
		return errors.New("the URL must not contain a fragment")
	}
	return nil
}

// ShownURL returns a URL without its query, which may contain a token.
func ShownURL(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return "a URL"
	}
	shown := u.Scheme + "://" + u.Host + u.Path
	if u.RawQuery != "" {
		shown += "?…"
	}
	return shown
}
