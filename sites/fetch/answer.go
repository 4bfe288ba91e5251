package fetch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"muster/internal/contentencoding"
	"muster/internal/retryafter"
	"muster/sites/definition"
)

// statusError converts a status to an error, or nil for a page.
func (c *Client) statusError(ctx context.Context, rawURL, kind string, res *http.Response) error {
	fail := func(class Class, after time.Duration) error {
		return c.noteVia(res, &Error{Class: class, URL: rawURL, Status: res.StatusCode, After: after, Err: fmt.Errorf("HTTP status %d %s", res.StatusCode, http.StatusText(res.StatusCode))})
	}
	after, given := retryafter.Parse(res.Header.Get("Retry-After"), time.Now(), definition.MaxRetryAfter)
	switch s := res.StatusCode; {
	case s == http.StatusTooManyRequests, s == http.StatusServiceUnavailable && given:
		if !given {
			after = min(time.Minute, definition.MaxRetryAfter)
		}
		if err := c.cfg.Clock.Hold(ctx, c.cfg.Key, after); err != nil {
			c.cfg.Logger.WarnContext(ctx, "cannot pause the site's clock", "site", c.def.Site, "error", err)
		}
		if c.cfg.Throttle != nil && s == http.StatusTooManyRequests {
			if err := c.cfg.Throttle.Limited(ctx, c.def.Politeness.Delay, after); err != nil {
				c.cfg.Logger.WarnContext(ctx, "cannot store the site's pace", "site", c.def.Site, "error", err)
			}
		}
		return fail(RateLimited, after)
	case s >= 500:
		return fail(Server, after)
	case s == http.StatusProxyAuthRequired && c.cfg.Via(res) != "":
		return fail(Proxy, 0)
	case s == http.StatusUnauthorized, s == http.StatusForbidden:
		return fail(Blocked, 0)
	case s == http.StatusNotFound, s == http.StatusGone:
		return fail(Gone, 0)
	case s == http.StatusRequestTimeout:
		return fail(Timeout, after)
	case s >= 400:
		return fail(ClientError, 0)
	case s == http.StatusNoContent:
		return fail(Empty, 0)
	case s >= 300:
		return c.noteVia(res, &Error{Class: Redirect, URL: rawURL, Status: s, Err: fmt.Errorf("HTTP status %d %s without a Location to follow", s, http.StatusText(s))})
	}
	if definition.IsRaw(kind) {
		return nil // any type is allowed
	}
	if mt, _, err := mime.ParseMediaType(res.Header.Get("Content-Type")); err == nil {
		for _, bad := range []string{"image/", "audio/", "video/", "font/", "application/zip", "application/pdf", "application/octet-stream", "application/gzip"} {
			if strings.HasPrefix(mt, bad) && mt != "image/svg+xml" {
				return &Error{Class: BadType, URL: rawURL, Status: res.StatusCode, Err: fmt.Errorf("unsupported content type %s", mt)}
			}
		}
	}
	return nil
}

// noteVia records the proxy of the response in an error.
func (c *Client) noteVia(res *http.Response, e *Error) *Error {
	e.Via = c.cfg.Via(res)
	e.Direct = e.Via == "" && (c.render.proxy == nil || !isRendered(res))
	return e
}

// firstRead limits the first buffer for a body, regardless of Content-Length.
const firstRead = 64 << 10

// readAll reads a body of at most limit bytes after decompression. A longer body is an error; it is never truncated.
func readAll(res *http.Response, limit int64) ([]byte, error) {
	if res.ContentLength > limit {
		return nil, tooBig(res.ContentLength, limit)
	}
	var body bytes.Buffer
	body.Grow(int(min(max(res.ContentLength, 0), firstRead)) + bytes.MinRead)
	n, err := body.ReadFrom(io.LimitReader(res.Body, limit+1))
	switch {
	case n > limit:
		return nil, tooBig(n, limit)
	case err != nil:
		return nil, bodyError(res, fmt.Errorf("read body after %d bytes: %w", n, err))
	}
	return body.Bytes(), nil
}

// bodyError returns the *Error of a body that cannot be read.
func bodyError(res *http.Response, err error) *Error {
	class := classOfNetwork(err)
	if _, ok := errors.AsType[*contentencoding.UnknownError](err); ok {
		class = BadType
	} else if class != Timeout && class != Canceled {
		class = Truncated
	}
	return &Error{Class: class, Status: res.StatusCode, Err: err}
}

func tooBig(n, limit int64) error {
	return &Error{Class: TooBig, Err: fmt.Errorf("at least %d bytes exceed limits.max_bytes (%d)", n, limit)}
}
