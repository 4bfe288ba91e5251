package sink

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/klauspost/compress/zstd"

	"muster/internal/atomicfile"
)

// Compressions are the methods of Compress, and the extensions of their files.
var Compressions = map[string]string{"gz": ".gz", "zstd": ".zst"}

// Compress replaces a file atomically by a compressed one, and returns its name.
func Compress(path, how string, fence Fence) (string, error) {
	ext, ok := Compressions[how]
	if !ok {
		return "", fmt.Errorf("compress %s: unknown compression %q; use gz or zstd", path, how)
	}
	in, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("open %s: %w", path, err)
	}
	defer in.Close()
	err = atomicfile.Write(path+ext, 0o600, func(w io.Writer) error {
		var z io.WriteCloser = gzip.NewWriter(w)
		if how == "zstd" {
			var err error
			if z, err = zstd.NewWriter(w, zstd.WithEncoderConcurrency(1)); err != nil {
				return err
			}
		}
		_, err := io.Copy(z, in)
		if err := errors.Join(err, z.Close()); err != nil {
			return err
		}
		return fence()
	})
	if err != nil {
		return "", err
	}
	return path + ext, removeCompressed(path, in, fence)
}

// removeCompressed removes the file at path if it is in. Another writer may replace it between the check and the
// removal. That loses nothing: the new file has all records of the compressed one, and its writer restores it; see
// JSONL.Sync.
func removeCompressed(path string, in *os.File, fence Fence) error {
	if err := fence(); err != nil {
		return err
	}
	if !isAt(in, path) {
		return fmt.Errorf("%s was removed or replaced while it was compressed", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	return nil
}

// Unpack opens a file that Compress has compressed, and reads its original content. The caller must close it.
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
			return nil, errors.Join(damaged(f, err), f.Close())
		}
		return unpacked{r, f}, nil
	}
	return nil, fmt.Errorf("open %s: %w", path, fs.ErrNotExist)
}

// unpacked is the original content of a compressed file.
type unpacked struct {
	io.ReadCloser
	f *os.File
}

func (u unpacked) Read(p []byte) (int, error) {
	n, err := u.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		err = damaged(u.f, err)
	}
	return n, err
}

func (u unpacked) Close() error { return errors.Join(u.ReadCloser.Close(), u.f.Close()) }

// damaged is the error of a compressed file that cannot be read.
func damaged(f *os.File, err error) error {
	return fmt.Errorf("unpack %s: %w; put a copy of it back, or move it away to continue without its records", f.Name(), err)
}

// decompress returns a reader of what was compressed with a method of Compressions.
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

// Restore writes the file again that Compress has removed. The compressed one is kept until Compress replaces it. If
// the file exists, or there is no compressed one, Restore does nothing.
func Restore(path string, fence Fence) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	in, err := Unpack(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer in.Close()
	return atomicfile.Write(path, 0o600, func(w io.Writer) error {
		if _, err := io.Copy(w, in); err != nil {
			return err
		}
		return fence()
	})
}
