// Package lines reads files with one record per line, and encodes records.
package lines

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"iter"
	"os"
)

// Of yields the lines of r without newlines. The caller may keep them. A last line without a newline is skipped: it is
// incomplete, because of a crash or a write in progress. An error of r is the last value.
func Of(r io.Reader) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		br := bufio.NewReaderSize(r, 64<<10)
		for {
			line, err := br.ReadBytes('\n')
			if err == io.EOF {
				return
			}
			if err != nil {
				yield(nil, err)
				return
			}
			if !yield(line[:len(line)-1], nil) {
				return
			}
		}
	}
}

// File yields the lines of a file, none if it does not exist; see Of.
func File(path string) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		f, err := os.Open(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			yield(nil, err)
		default:
			defer f.Close()
			Of(f)(yield)
		}
	}
}

// KeyID returns the hash of the key of a record, which takes less memory than the key.
func KeyID(key string) [16]byte {
	sum := sha256.Sum256([]byte(key))
	return [16]byte(sum[:16])
}

// JSON encodes a value on one line without escaping < > &.
func JSON(v any) ([]byte, error) {
	var b bytes.Buffer
	err := WriteJSON(&b, v)
	return b.Bytes(), err
}

// WriteJSON appends the result of JSON to b.
func WriteJSON(b *bytes.Buffer, v any) error {
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	b.Truncate(b.Len() - 1) // the newline
	return nil
}
