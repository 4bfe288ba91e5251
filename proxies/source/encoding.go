package source

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
)

// errTooLarge is returned for a list larger than Options.MaxBytes.
var errTooLarge = errors.New("list is too large")

// readPlain reads a list as UTF-8 text with "\n" line endings. It decompresses gzip.
func readPlain(r io.Reader, limit int64) ([]byte, error) {
	body, err := readAll(r, limit)
	if err != nil {
		return body, err
	}
	if isGzip(body) {
		if body, err = gunzip(body, limit); err != nil {
			return nil, err
		}
	}
	body = bytes.TrimPrefix(body, []byte("\xef\xbb\xbf"))
	body = bytes.ReplaceAll(body, []byte("\r\n"), []byte("\n"))
	return bytes.ReplaceAll(body, []byte("\r"), []byte("\n")), nil
}

// readAll is like io.ReadAll, but returns errTooLarge after limit bytes.
func readAll(r io.Reader, limit int64) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(body)) > limit {
		return nil, errTooLarge
	}
	return body, err
}

// isGzip reports whether body starts with gzip's magic bytes and its only compression method.
func isGzip(body []byte) bool { return bytes.HasPrefix(body, []byte{0x1f, 0x8b, 8}) }

func gunzip(body []byte, limit int64) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("decompress list: %w", err)
	}
	out, err := readAll(z, limit)
	if err != nil && !errors.Is(err, errTooLarge) {
		err = fmt.Errorf("decompress list: %w", err)
	}
	return out, err
}
