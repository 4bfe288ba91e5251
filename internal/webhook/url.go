package webhook

import (
	"errors"
	"net/url"
)

// maxURL bounds the length of a URL.
const maxURL = 2000

// CheckURL returns an error unless webhooks can be sent to a URL. The error does not repeat the URL, which may hold a
// token. A URL with a user or a password is refused: URLs are shown, and the receiver checks the signature.
func CheckURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case len(text) > maxURL:
		return errors.New("the URL is longer than 2000 bytes")
	case err != nil || u.Host == "" || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https":
		return errors.New("it is not a URL to send to; write https://host/path")
	case u.User != nil:
		return errors.New("a URL must not contain a user or a password; the receiver checks the signature")
	case u.Fragment != "":
		return errors.New("a URL to send to has no fragment")
	}
	return nil
}

// ShownURL returns a URL without its query, which may hold a token.
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
