// Package contentencoding decodes HTTP responses that have a Content-Encoding.
package contentencoding

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
)

const (
	accepted     = "gzip, br, zstd"
	maxEncodings = 5       // of a response, like curl
	maxWindow    = 8 << 20 // of zstd; RFC 9659
)

// UnknownError is the error of reading a body with an encoding that cannot be decoded.
type UnknownError struct{ Encoding string }

// Error names the encoding.
func (e *UnknownError) Error() string {
	return fmt.Sprintf("unsupported Content-Encoding %q", e.Encoding)
}

// Transport returns a transport that asks for compressed responses and decodes their bodies. Servers may also send deflate,
// x-gzip and lists of encodings, unasked. Like browsers, it ignores bytes after a complete stream. A body with another encoding
// returns an *UnknownError. The caller must limit the size of the bodies that it reads.
func Transport(next http.RoundTripper) http.RoundTripper { return &transport{next} }

type transport struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Header.Set("Accept-Encoding", accepted)
	res, err := t.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	var encodings []string
	for name := range strings.SplitSeq(strings.Join(res.Header.Values("Content-Encoding"), ","), ",") {
		if name = strings.ToLower(strings.TrimSpace(name)); name != "" && name != "identity" {
			encodings = append(encodings, name)
		}
	}
	if len(encodings) == 0 {
		return res, nil
	}
	res.Header.Del("Content-Encoding")
	res.Header.Del("Content-Length")
	res.ContentLength, res.Uncompressed = -1, true
	res.Body = &body{ReadCloser: res.Body, encodings: encodings}
	return res, nil
}

// body is the decoded body of a response. It reads nothing before its first Read: the responses to some requests have none.
type body struct {
	io.ReadCloser
	encodings []string // in the order of their application
	decoded   io.Reader
	err       error
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	if b.decoded == nil && b.err == nil {
		b.decoded, b.err = b.open()
	}
	if b.err != nil {
		return 0, b.err
	}
	return b.decoded.Read(p)
}

func (b *body) open() (io.Reader, error) {
	if len(b.encodings) > maxEncodings {
		return nil, &UnknownError{strings.Join(b.encodings, ", ")}
	}
	r := io.Reader(b.ReadCloser)
	for _, name := range slices.Backward(b.encodings) {
		var err error
		if r, err = NewReader(name, r); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// NewReader returns a reader of the decoded content of r.
func NewReader(encoding string, r io.Reader) (io.Reader, error) {
	in := bufio.NewReader(r)
	if _, err := in.Peek(1); errors.Is(err, io.EOF) {
		return in, nil
	}
	d := &decoder{in: in, name: encoding}
	var err error
	switch encoding {
	case "gzip", "x-gzip":
		var z *gzip.Reader
		if z, err = gzip.NewReader(in); err == nil {
			z.Multistream(false)
			d.out, d.gzip = z, z
		}
	case "deflate": // some servers send it without the header of zlib
		if head, _ := in.Peek(2); len(head) == 2 && head[0]&15 == 8 && (int(head[0])<<8|int(head[1]))%31 == 0 {
			d.out, err = zlib.NewReader(in)
		} else {
			d.out = flate.NewReader(in)
		}
	case "br":
		d.out = brotli.NewReader(in)
	case "zstd":
		d.out, err = zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
	default:
		err = &UnknownError{encoding}
	}
	if err != nil {
		return nil, d.wrap(err)
	}
	return d, nil
}

// ErrTooLarge means that content exceeds a limit.
var ErrTooLarge = errors.New("the content is too large")

// Gunzip returns the content of a gzip file, which may have at most limit bytes.
func Gunzip(file []byte, limit int64) ([]byte, error) {
	z, err := NewReader("gzip", bytes.NewReader(file))
	if err != nil {
		return nil, err
	}
	out, err := io.ReadAll(io.LimitReader(z, limit+1))
	if err == nil && int64(len(out)) > limit {
		err = ErrTooLarge
	}
	return out, err
}

// decoder reads the streams of an encoding up to the first byte that belongs to none.
type decoder struct {
	in   *bufio.Reader
	name string
	out  io.Reader
	gzip *gzip.Reader // out, which may have several members; nil for other encodings
	some bool         // a byte was decoded
}

// Read implements io.Reader.
func (d *decoder) Read(p []byte) (int, error) {
	n, err := d.out.Read(p)
	d.some = d.some || n > 0
	switch {
	case err == nil:
		return n, nil
	case errors.Is(err, zstd.ErrMagicMismatch) && d.some, err.Error() == "brotli: excessive input":
		return n, io.EOF // bytes after the stream
	case !errors.Is(err, io.EOF):
		return n, d.wrap(err)
	}
	if head, _ := d.in.Peek(2); d.gzip == nil || !bytes.Equal(head, []byte{0x1f, 0x8b}) || d.gzip.Reset(d.in) != nil {
		return n, io.EOF
	}
	d.gzip.Multistream(false)
	return n, nil
}

// wrap adds the encoding to an error.
func (d *decoder) wrap(err error) error {
	if _, ok := errors.AsType[*UnknownError](err); ok {
		return err
	}
	return fmt.Errorf("decode %s: %w", d.name, err)
}
