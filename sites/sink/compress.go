package sink

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/klauspost/compress/zstd"

	"muster/tasks/atomicfile"
)

// Compressions lists what Compress takes, and what it adds to a name.
var Compressions = map[string]string{"gz": ".gz", "zstd": ".zst"}

// Compress puts a compressed file in the place of a file, as a whole or not at
// all, and returns its name.
func Compress(path, how string) (string, error) {
	ext, ok := Compressions[how]
	if !ok {
		return "", fmt.Errorf("compress %s: no compression %q; use gz or zstd", path, how)
	}
	err := rewrite(path, path+ext, func(w io.Writer, r io.Reader) error {
		var z io.WriteCloser = gzip.NewWriter(w)
		if how == "zstd" {
			var err error
			if z, err = zstd.NewWriter(w, zstd.WithEncoderConcurrency(1)); err != nil {
				return err
			}
		}
		_, err := io.Copy(z, r)
		return errors.Join(err, z.Close())
	})
	return path + ext, err
}

// Unpack reads what Compress has made of a file. Close it.
func Unpack(path string) (io.ReadCloser, error) {
	for how, ext := range Compressions {
		f, err := os.Open(path + ext)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("open %s: %w", path+ext, err)
		}
		r, err := decompress(f, how)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("read %s: %w", path+ext, err), f.Close())
		}
		return unpacked{r, f}, nil
	}
	return nil, fmt.Errorf("open %s: %w", path, fs.ErrNotExist)
}

// unpacked is a file as it was before it was compressed.
type unpacked struct {
	io.ReadCloser
	f *os.File
}

func (u unpacked) Close() error { return errors.Join(u.ReadCloser.Close(), u.f.Close()) }

// decompress reads what was compressed in one of the ways of Compressions.
func decompress(r io.Reader, how string) (io.ReadCloser, error) {
	if how == "gz" {
		return gzip.NewReader(r)
	}
	z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	return z.IOReadCloser(), nil
}

// Restore undoes Compress. Where nothing is compressed it does nothing.
func Restore(path string) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for how, ext := range Compressions {
		if _, err := os.Stat(path + ext); err != nil {
			continue
		}
		return rewrite(path+ext, path, func(w io.Writer, r io.Reader) error {
			z, err := decompress(r, how)
			if err != nil {
				return err
			}
			defer z.Close()
			_, err = io.Copy(w, z) //nolint:gosec // our own file
			return err
		})
	}
	return nil
}

// rewrite makes of one file another and removes the first.
func rewrite(from, to string, fn func(io.Writer, io.Reader) error) error {
	in, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("open %s: %w", from, err)
	}
	defer in.Close()
	if err := atomicfile.Write(to, 0o644, func(w io.Writer) error { return fn(w, in) }); err != nil {
		return err
	}
	if err := os.Remove(from); err != nil {
		return fmt.Errorf("remove %s: %w", from, err)
	}
	return nil
}
