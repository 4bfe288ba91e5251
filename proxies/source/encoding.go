package source

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"unicode"
	"unicode/utf8"
)

// errTooLarge is in the error for a list of more than Options.MaxBytes.
var errTooLarge = errors.New("it is too large")

// maxWraps is how many encodings a list may have, one in another: base64 of gzip of UTF-16.
const maxWraps = 3

// readPlain reads a list as UTF-8 text with lines that end in "\n". It undoes gzip, UTF-16 and base64 where the bytes show
// them: by their first bytes, or by being valid base64 of text as a whole.
func readPlain(r io.Reader, limit int64) ([]byte, error) {
	body, err := readAll(r, limit)
	if err != nil {
		return body, err
	}
	for range maxWraps {
		switch {
		case isGzip(body):
			if body, err = gunzip(body, limit); err != nil {
				return nil, err
			}
			continue
		case utf16Order(body) != nil:
			body = fromUTF16(body, utf16Order(body))
		}
		body = bytes.TrimPrefix(body, []byte("\xef\xbb\xbf"))
		inner, ok := fromBase64(body)
		if !ok {
			break
		}
		body = inner
	}
	body = bytes.ReplaceAll(body, []byte("\r\n"), []byte("\n"))
	return bytes.ReplaceAll(body, []byte("\r"), []byte("\n")), nil
}

// readAll is io.ReadAll for at most limit bytes.
func readAll(r io.Reader, limit int64) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(body)) > limit {
		return nil, errTooLarge
	}
	return body, err
}

// isGzip reports whether body begins as gzip does: its two magic bytes and the one method that there is.
func isGzip(body []byte) bool { return bytes.HasPrefix(body, []byte{0x1f, 0x8b, 8}) }

func gunzip(body []byte, limit int64) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("decompress it: %w", err)
	}
	out, err := readAll(z, limit)
	if err != nil && !errors.Is(err, errTooLarge) {
		err = fmt.Errorf("decompress it: %w", err)
	}
	return out, err
}

// utf16Order returns how UTF-16 orders the bytes of a character, nil when body is not UTF-16. Without a byte order mark it
// is UTF-16 when every second byte of its beginning is zero, and no other, as in text of ASCII.
func utf16Order(body []byte) func(a, b byte) rune {
	little := func(a, b byte) rune { return rune(a) | rune(b)<<8 }
	big := func(a, b byte) rune { return rune(b) | rune(a)<<8 }
	head := body[:min(len(body), 256)&^1]
	switch zero := bytes.IndexByte(head, 0); {
	case bytes.HasPrefix(body, []byte("\xff\xfe")):
		return little
	case bytes.HasPrefix(body, []byte("\xfe\xff")):
		return big
	case zero == 0 && alternates(head, 0):
		return big
	case zero == 1 && alternates(head, 1):
		return little
	}
	return nil
}

// alternates reports whether the bytes of s at every second place from first are zero, and no others.
func alternates(s []byte, first int) bool {
	for i, c := range s {
		if (c == 0) != (i%2 == first) {
			return false
		}
	}
	return true
}

func fromUTF16(body []byte, order func(a, b byte) rune) []byte {
	out := make([]byte, 0, len(body)/2)
	for i := 0; i+1 < len(body); i += 2 { // endpoints have no characters of two units
		if c := order(body[i], body[i+1]); c != 0xfeff {
			out = utf8.AppendRune(out, c)
		}
	}
	return out
}

// fromBase64 decodes what is base64 from the first byte to the last, of either alphabet and with or without padding, and
// of text or another encoding of it. No spelling of an endpoint is base64: it has a dot or a colon.
func fromBase64(body []byte) ([]byte, bool) {
	text := bytes.TrimSpace(body)
	if len(text) == 0 {
		return nil, false
	}
	alphabet := base64.StdEncoding
	if bytes.ContainsAny(text, "-_") {
		alphabet = base64.URLEncoding
	}
	if !bytes.HasSuffix(text, []byte("=")) {
		alphabet = alphabet.WithPadding(base64.NoPadding)
	}
	out := make([]byte, alphabet.DecodedLen(len(text)))
	n, err := alphabet.Strict().Decode(out, text) // it skips the ends of lines
	if err != nil {
		return nil, false
	}
	out = out[:n]
	return out, isGzip(out) || utf16Order(out) != nil || isText(out)
}

// isText reports whether body is UTF-8 without control characters but those between words and lines.
func isText(body []byte) bool {
	return utf8.Valid(body) && !bytes.ContainsFunc(body, func(c rune) bool {
		return unicode.IsControl(c) && c != '\t' && c != '\n' && c != '\r'
	})
}
