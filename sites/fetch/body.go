package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

type roomKey struct{}

// WithRoom makes a request whose body may only grow as long as room says that
// there is memory for so many bytes. Where there is not it fails as Throttled.
func WithRoom(ctx context.Context, room func(bytes int64) bool) context.Context {
	return context.WithValue(ctx, roomKey{}, room)
}

var errNoRoom = errors.New("there is no memory for the page now")

// noRoomWait is when a page for which there was no memory is asked for again.
const noRoomWait = 200 * time.Millisecond

// firstRead is how much of a body is asked for before it is known to be there,
// whatever its header says.
const firstRead = 64 << 10

// readAll reads a body of at most limit bytes, after decompression. More is
// an error, never a shorter page.
func readAll(ctx context.Context, res *http.Response, limit int64) ([]byte, error) {
	if res.ContentLength > limit {
		return nil, tooBig(res.ContentLength, limit)
	}
	room, ok := ctx.Value(roomKey{}).(func(int64) bool)
	if !ok {
		room = func(int64) bool { return true }
	}
	// A header that promises more than there is room for is believed at once.
	if res.ContentLength > 0 && !room(res.ContentLength) {
		return nil, noRoom(res)
	}
	body := make([]byte, 0, min(max(res.ContentLength+1, 512), firstRead))
	for {
		if len(body) == cap(body) {
			if int64(len(body)) > limit {
				return nil, tooBig(int64(len(body)), limit)
			}
			next := int64(cap(body)) * 2
			if known := res.ContentLength + 1; known > int64(cap(body)) {
				next = min(next, known)
			}
			next = min(next, limit+1)
			if !room(next) {
				return nil, noRoom(res)
			}
			body = append(make([]byte, 0, next), body...)
		}
		n, err := res.Body.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch {
		case errors.Is(err, io.EOF):
			return body, nil
		case err != nil:
			if c := classOfNetwork(err); c == Timeout || c == Canceled {
				return nil, &Error{Class: c, Status: res.StatusCode, Err: err}
			}
			return nil, &Error{Class: Truncated, Status: res.StatusCode, Err: fmt.Errorf("the body ended after %d bytes: %w", len(body), err)}
		}
	}
}

func noRoom(res *http.Response) error {
	return &Error{Class: Throttled, Status: res.StatusCode, After: noRoomWait, Err: errNoRoom}
}

func tooBig(n, limit int64) error {
	return &Error{Class: TooBig, Err: fmt.Errorf("the page has %d bytes or more, above the limit of %d; see limits.max_bytes", n, limit)}
}
