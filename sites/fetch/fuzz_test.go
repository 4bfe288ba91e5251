package fetch

import (
	"bytes"
	"io"
	"net/http"
	"testing"
)

// FuzzBody wants a body to be read whole or not at all, whatever length it is said to have.
func FuzzBody(f *testing.F) {
	f.Add([]byte("hello"), int64(5), int64(10))
	f.Add([]byte("hello"), int64(-1), int64(4))
	f.Add([]byte{}, int64(1<<40), int64(1<<40))
	f.Add(bytes.Repeat([]byte("x"), 1000), int64(3), int64(1000))
	f.Fuzz(func(t *testing.T, body []byte, said, limit int64) {
		limit &= 0xffff
		got, err := readAll(&http.Response{StatusCode: 200, ContentLength: said, Body: io.NopCloser(bytes.NewReader(body))}, limit)
		if err == nil && (!bytes.Equal(got, body) || int64(len(got)) > limit) {
			t.Errorf("%d bytes, said to be %d, of at most %d: got %d", len(body), said, limit, len(got))
		}
		if err != nil && int64(len(body)) < limit && said <= limit {
			t.Errorf("%d bytes, said to be %d, of at most %d: %v", len(body), said, limit, err)
		}
	})
}
