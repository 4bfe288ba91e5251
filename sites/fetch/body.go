package fetch

import (
	"errors"
	"fmt"
	"io"
	"net/http"

	"muster/internal/contentencoding"
)

// firstRead limits the first buffer for a body, regardless of Content-Length.
const firstRead = 64 << 10

// readAll reads a body of at most limit bytes after decompression. A longer body is an error; it is never truncated.
func readAll(res *http.Response, limit int64) ([]byte, error) {
	if res.ContentLength > limit {
		return nil, tooBig(res.ContentLength, limit)
	}
	body := make([]byte, 0, min(max(res.ContentLength+1, 512), firstRead))
	for {
		if len(body) == cap(body) {
			next := int64(cap(body)) * 2
			if known := res.ContentLength + 1; known > int64(cap(body)) {
				next = min(next, known)
			}
			body = append(make([]byte, 0, min(next, limit+1)), body...)
		}
		n, err := res.Body.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch {
		case int64(len(body)) > limit:
			return nil, tooBig(int64(len(body)), limit)
		case errors.Is(err, io.EOF):
			return body, nil
		case err != nil:
			return nil, bodyError(res, fmt.Errorf("read body after %d bytes: %w", len(body), err))
		}
	}
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
