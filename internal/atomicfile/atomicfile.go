// Package atomicfile replaces a file whole or not at all.
package atomicfile

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Write gives the file at path the content that fill writes, with the given
// permissions. A reader sees the old content or the new one, never a mixture,
// also after a crash: the content is on the disk before it gets its name.
// When fill or any step fails the old file stays and nothing is left beside it.
// A process that is killed leaves a file beside it; see Abandon.
func Write(path string, perm os.FileMode, fill func(io.Writer) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*"+tmpExt)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(f.Name())
			err = fmt.Errorf("write %s: %w", path, err)
		}
	}()

	if err := f.Chmod(perm); err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, 64<<10)
	if err := fill(w); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// tmpExt is how the names of unfinished files end; they begin with a dot.
const tmpExt = ".tmp"

// Abandon removes the unfinished files in dir of Writes that are under way, in
// whichever process, or that were killed. A Write that has begun before cannot
// replace its file any more: it fails. It is how one that takes over a folder
// makes sure of those who had it before and may be asleep.
func Abandon(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for unfinished files: %w", err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") || !strings.HasSuffix(e.Name(), tmpExt) {
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove an unfinished file: %w", err)
		}
	}
	return nil
}

// WriteBytes is Write for content that is at hand.
func WriteBytes(path string, perm os.FileMode, content []byte) error {
	return Write(path, perm, func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	})
}
