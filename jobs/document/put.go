package document

import (
	"bytes"
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

// Put stores what r has, up to limit bytes, under a name, of which only the part after the last slash counts. The hash
// is of what was stored. More is a *TooLargeError; nothing is a *job.FieldError. If it fails, nothing is left behind.
// When ctx is done it returns after the read from r that it is in.
func (s *Store) Put(ctx context.Context, name string, r io.Reader, limit int64) (jobs.Document, error) {
	return s.put(ctx, incoming{name: baseName(name), from: r, limit: limit})
}

// PutFile stores a regular file; see Put. It is an error if the file changes while it is read.
func (s *Store) PutFile(ctx context.Context, file string, limit int64) (jobs.Document, error) {
	fail := func(err error) (jobs.Document, error) {
		return jobs.Document{}, fmt.Errorf("read the document %s: %w", file, err)
	}
	info, err := os.Stat(file) // before it is opened: a FIFO would block
	if err == nil {
		err = regular(info)
	}
	if err != nil {
		return fail(inner(err))
	}
	f, err := os.Open(file)
	if err != nil {
		return fail(inner(err))
	}
	defer f.Close()
	before, err := f.Stat()
	if err == nil {
		err = regular(before)
	}
	if err != nil {
		return fail(inner(err))
	}
	name := baseName(file)
	if before.Size() > limit {
		return jobs.Document{}, &TooLargeError{Name: name, Limit: limit}
	}
	source, err := filepath.Abs(file)
	if err != nil {
		return fail(err)
	}
	return s.put(ctx, incoming{name: name, source: source, from: f, limit: limit, check: func(read int64) error {
		after, err := f.Stat()
		if err != nil {
			return inner(err)
		}
		if read != before.Size() || after.Size() != before.Size() || !after.ModTime().Equal(before.ModTime()) {
			return fmt.Errorf("the document %s changed while it was read; try again when nothing writes to it", file)
		}
		return nil
	}})
}

// inner returns the error without the path, which the message gives already.
func inner(err error) error {
	if e, ok := errors.AsType[*os.PathError](err); ok {
		return e.Err
	}
	return err
}

func regular(info os.FileInfo) error {
	switch {
	case info.IsDir():
		return errors.New("it is a folder; name a file")
	case !info.Mode().IsRegular():
		return errors.New("it is no regular file; name one")
	}
	return nil
}

// incoming is a document to store.
type incoming struct {
	name, source string
	mediaType    string // "": found out from the name or the content
	from         io.Reader
	limit        int64
	check        func(read int64) error // called before the document becomes visible; may be nil
}

func (s *Store) put(ctx context.Context, in incoming) (doc jobs.Document, err error) {
	if in.limit <= 0 {
		return doc, fmt.Errorf("store the document %s: a limit of %d bytes", in.name, in.limit)
	}
	f, err := s.part(s.dir)
	if err != nil {
		return doc, s.storeError(in.name, err)
	}
	defer func() {
		_ = f.Close() // closed already, unless it failed
		_ = os.Remove(f.Name())
	}()
	sum, head := sha256.New(), &head{}
	from := &source{ctx: ctx, r: in.from}
	n, err := io.Copy(io.MultiWriter(f, sum, head), io.LimitReader(from, in.limit))
	if err == nil && n == in.limit && from.hasMore() {
		return doc, &TooLargeError{Name: in.name, Limit: in.limit}
	}
	switch {
	case from.err != nil:
		return doc, fmt.Errorf("read the document %s after %d bytes: %w", in.name, n, from.err)
	case err != nil:
		return doc, s.storeError(in.name, err)
	}
	if in.check != nil {
		if err := in.check(n); err != nil {
			return doc, err
		}
	}
	if n == 0 {
		return doc, emptyError(in.name)
	}
	hash := hex.EncodeToString(sum.Sum(nil))
	if err := s.keep(f, hash); err != nil {
		return doc, s.storeError(in.name, err)
	}
	return jobs.Document{
		Name: in.name, Hash: hash, Size: n, Source: in.source,
		Type: cmp.Or(in.mediaType, mediaType(in.name, head.Bytes())),
	}, nil
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
	return errors.Join(atomicfile.SyncDir(filepath.Dir(path)), atomicfile.SyncDir(s.dir)) // its folder may be new
}

func (s *Store) storeError(name string, err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("store the document %s: no space is left in %s; free some, or use a folder on another disk: %w", name, s.dir, err)
	}
	return fmt.Errorf("store the document %s in %s: %w", name, s.dir, err)
}

// source reads until ctx is done, and keeps the error of a read apart from those of writes.
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

// hasMore reports whether there is a byte more to read.
func (s *source) hasMore() bool {
	n, _ := io.ReadFull(s, make([]byte, 1))
	return n > 0
}

// head keeps the first bytes that are written to it.
type head struct{ bytes.Buffer }

const headSize = 512 // what http.DetectContentType looks at

func (h *head) Write(p []byte) (int, error) {
	if room := headSize - h.Len(); room > 0 {
		_, _ = h.Buffer.Write(p[:min(room, len(p))]) // never fails
	}
	return len(p), nil
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
