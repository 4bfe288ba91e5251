package fetch

import (
	"bytes"
	"io"
	"net/http"
	"testing"
)

// FuzzBody checks that a body is read completely or not at all, for any declared length.
func FuzzBody(f *testing.F) {
	f.Add([]byte("hello"), int64(5), int64(10))
	f.Add([]byte("hello"), int64(-1), int64(4))
	f.Add([]byte{}, int64(1<<40), int64(1<<40))
	f.Add(bytes.Repeat([]byte("x"), 1000), int64(3), int64(1000))
	f.Fuzz(func(t *testing.T, body []byte, declared, limit int64) {
		limit &= 0xffff
		got, err := readAll(&http.Response{StatusCode: 200, ContentLength: declared, Body: io.NopCloser(bytes.NewReader(body))}, limit)
		if err == nil && (!bytes.Equal(got, body) || int64(len(got)) > limit) {
			t.Errorf("%d bytes, declared %d, limit %d: got %d", len(body), declared, limit, len(got))
		}
		if err != nil && int64(len(body)) < limit && declared <= limit {
			t.Errorf("%d bytes, declared %d, limit %d: %v", len(body), declared, limit, err)
		}
	})
}
