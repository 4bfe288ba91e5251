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
			if how == "gz" {
				z, err := gzip.NewReader(r)
				if err != nil {
					return err
				}
				_, err = io.Copy(w, z) //nolint:gosec // our own file
				return err
			}
			z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1))
			if err != nil {
				return err
			}
			defer z.Close()
			_, err = io.Copy(w, z)
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
