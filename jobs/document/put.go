package document

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"unicode"

	"muster/internal/atomicfile"
	"muster/internal/clip"
	"muster/jobs"
)

// Put stores the content of r under a name, of which only the part after the last slash counts. More than Config.Limit is a
// *TooLargeError; an empty document is a *jobs.FieldError. A failed call leaves nothing. When ctx is done, Put returns
// after its current read from r.
func (s *Store) Put(ctx context.Context, name string, r io.Reader) (jobs.Document, error) {
	if err := s.open(ctx); err != nil {
		return jobs.Document{}, err
	}
	return s.put(ctx, incoming{name: baseName(name), from: r})
}

// A ReadError means that a document could not be read to its end.
type ReadError struct {
	Name  string
	Bytes int64 // that were read
	Err   error
}

func (e *ReadError) Error() string {
	return fmt.Sprintf("read the document %s after %d bytes: %v", e.Name, e.Bytes, e.Err)
}

func (e *ReadError) Unwrap() error { return e.Err }

// incoming is a document to store.
type incoming struct {
	name, source string
	mediaType    string // "": found out from the name or the content
	from         io.Reader
}

func (s *Store) put(ctx context.Context, in incoming) (doc jobs.Document, err error) {
	f, err := s.part(s.cfg.Dir)
	if err != nil {
		return doc, s.storeError(in.name, err)
	}
	defer func() {
		_ = f.Close() // closed already, unless it failed
		_ = os.Remove(f.Name())
	}()
	sum, from := sha256.New(), &source{ctx: ctx, r: in.from}
	buffered := bufio.NewReader(from)
	head, _ := buffered.Peek(512) // all that http.DetectContentType reads; a read returns the error again
	in.mediaType = cmp.Or(in.mediaType, mediaType(in.name, head))
	n, err := io.Copy(io.MultiWriter(f, sum), io.LimitReader(buffered, s.cfg.Limit))
	if err == nil && n == s.cfg.Limit {
		if more, _ := buffered.Peek(1); len(more) > 0 {
			return doc, &TooLargeError{Name: in.name, Limit: s.cfg.Limit}
		}
	}
	switch {
	case from.err != nil:
		return doc, &ReadError{in.name, n, from.err}
	case err != nil:
		return doc, s.storeError(in.name, err)
	}
	if n == 0 {
		return doc, emptyError(in.name)
	}
	hash := hex.EncodeToString(sum.Sum(nil))
	if err := s.keep(f, hash); err != nil {
		return doc, s.storeError(in.name, err)
	}
	return jobs.Document{Name: in.name, Hash: hash, Size: n, Source: in.source, Type: in.mediaType}, nil
}

// keep makes a written file the content with a hash, in one step. One that is there already is replaced by its equal:
// were it damaged, it would be whole again.
func (s *Store) keep(f *os.File, hash string) error {
	path, err := s.path(hash)
	if err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return errors.Join(atomicfile.SyncDir(filepath.Dir(path)), atomicfile.SyncDir(s.cfg.Dir)) // its folder may be new
}

func (s *Store) storeError(name string, err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("store the document %s: no space is left in %s; free some, or use a folder on another disk: %w", name, s.cfg.Dir, err)
	}
	return fmt.Errorf("store the document %s in %s: %w", name, s.cfg.Dir, err)
}

// source reads until ctx is done, and keeps read errors separate from write errors.
type source struct {
	ctx context.Context
	r   io.Reader
	err error
}

func (s *source) Read(p []byte) (int, error) {
	if s.ctx.Err() != nil {
		s.err = context.Cause(s.ctx)
		return 0, s.err
	}
	n, err := s.r.Read(p)
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}

const maxName = 200 // bytes

// baseName is the name of a document without folders, as of Unix and of Windows, and without control characters.
func baseName(name string) string {
	name = path.Base(strings.ReplaceAll(name, `\`, "/"))
	name = strings.TrimSpace(strings.Map(func(r rune) rune {
		if !unicode.IsGraphic(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(name, "")))
	if name == "" || name == "." || name == ".." || name == "/" {
		return "document"
	}
	ext := path.Ext(name)
	if len(name) <= maxName || len(ext) > 20 {
		ext = ""
	}
	return clip.Bytes(name, maxName-len(ext)) + ext
}
