// Package document keeps the documents of jobs in a folder. A document is a
// file whose name is the SHA-256 of its content, so that the same content is
// kept once; it is complete or it does not exist.
package document

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"muster/internal/addressfilter"
	"muster/jobs"
)

const (
	markFile   = ".store"   // has the id of the store
	partFolder = "incoming" // has the files that are being written
)

// Config sets up a Store.
type Config struct {
	Dir    string                                // Required.
	Limit  int64                                 // bytes of a document
	Filter *addressfilter.Filter                 // decides about the addresses that Fetch connects to. Defaults to public addresses.
	Owner  func(context.Context) (string, error) // returns the ID of the owner of the directory, such as the ID of a Redis. Required.
}

// Store is a directory of documents. The first call that needs the directory creates and marks it; a directory with the
// mark of another owner is an error. A Store may be used by many goroutines at once, and a directory by many processes.
type Store struct {
	cfg  Config
	part func(dir string) (*os.File, error) // creates the file that a document is written to

	mu sync.Mutex // guards id
	id string     // of the owner, "" before the first call
}

var (
	storeID = regexp.MustCompile(`^[!-~]{1,200}$`)
	hash    = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// New returns a Store. It does no I/O, and needs no Close.
func New(cfg Config) *Store { return &Store{cfg: cfg, part: newPart} }

// Limit returns the largest number of bytes of a document.
func (s *Store) Limit() int64 { return s.cfg.Limit }

// open creates and marks the directory at its first call.
func (s *Store) open(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.id != "" {
		return nil
	}
	id, err := s.cfg.Owner(ctx)
	if err != nil {
		return fmt.Errorf("open the directory of documents: %w", err)
	}
	if s.cfg.Dir == "" || !storeID.MatchString(id) {
		return fmt.Errorf("open the directory of documents %q of the store %q: a directory and an ID without spaces are required", s.cfg.Dir, id)
	}
	if err := os.MkdirAll(filepath.Join(s.cfg.Dir, partFolder), 0o700); err != nil {
		return fmt.Errorf("create the directory of documents: %w", err)
	}
	if err := s.mark(id); err != nil {
		return fmt.Errorf("mark the directory of documents %s: %w", s.cfg.Dir, err)
	}
	if err := s.check(id); err != nil {
		return err
	}
	s.id = id
	return nil
}

func newPart(dir string) (*os.File, error) {
	return os.CreateTemp(filepath.Join(dir, partFolder), "*.part")
}

// mark writes the mark unless there is one. Of two processes that do so at once, one succeeds.
func (s *Store) mark(id string) error {
	path := filepath.Join(s.cfg.Dir, markFile)
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := s.part(s.cfg.Dir)
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	_, err = f.WriteString(id + "\n")
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		return err
	}
	if err := os.Link(f.Name(), path); !errors.Is(err, fs.ErrExist) { // unlike a rename, it replaces nothing
		return err
	}
	return nil
}

// Check returns an error if the directory is missing or not writable, or belongs to another owner.
func (s *Store) Check(ctx context.Context) error {
	if err := s.open(ctx); err != nil {
		return err
	}
	return s.check(s.id)
}

func (s *Store) check(id string) error {
	f, err := os.Open(filepath.Join(s.cfg.Dir, markFile))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the document directory %s or its file %s is missing; mount it again, or restart to create a new one", s.cfg.Dir, markFile)
	}
	if err != nil {
		return fmt.Errorf("check the folder of documents: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 1000))
	if err != nil {
		return fmt.Errorf("check the folder of documents: %w", err)
	}
	if got := strings.TrimSpace(string(text)); got != id {
		return fmt.Errorf("the folder of documents %s belongs to the store %q, and this is %q: use another folder, "+
			"or, if this store replaces the other, remove %s", s.cfg.Dir, got, id, f.Name())
	}
	part, err := s.part(s.cfg.Dir)
	if err != nil {
		return fmt.Errorf("the folder of documents cannot be written to: %w", err)
	}
	return errors.Join(part.Close(), os.Remove(part.Name()))
}

// path returns the path of the content with a hash. Hashes come from clients; an invalid one could be another path.
func (s *Store) path(of string) (string, error) {
	if !hash.MatchString(of) {
		return "", fmt.Errorf("%.80q is not the SHA-256 of a document; want 64 of 0-9 and a-f", of)
	}
	return filepath.Join(s.cfg.Dir, of[:2], of), nil
}

// Open opens the document with a hash. The caller closes it. The error is or wraps fs.ErrNotExist if there is none.
func (s *Store) Open(hash string) (io.ReadCloser, error) {
	if err := s.open(context.Background()); err != nil {
		return nil, err
	}
	path, err := s.path(hash)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open a document: %w", err)
	}
	return f, nil
}

// Remove removes the document with a hash, if it exists. The same content is kept once, and may be
// stored for another job meanwhile: unused is called when the document cannot be opened any more, and decides whether
// it is put back. If that fails, Sweep does it.
func (s *Store) Remove(hash string, unused func() (bool, error)) error {
	if err := s.open(context.Background()); err != nil {
		return err
	}
	path, err := s.path(hash)
	if err != nil {
		return err
	}
	aside := s.trashName(hash)
	if err := os.Rename(path, aside); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return fmt.Errorf("remove a document: %w", err)
	}
	ok, err := unused()
	if !ok || err != nil {
		return errors.Join(err, unlessGone(os.Rename(aside, path))) // replaces its equal, if it was stored again
	}
	if err := os.Remove(aside); unlessGone(err) != nil {
		return fmt.Errorf("remove a document: %w", err)
	}
	return nil
}

// trashName returns a unique name for a document that is being removed. The name begins with the hash, so that the document
// can be restored.
func (s *Store) trashName(hash string) string {
	return filepath.Join(s.cfg.Dir, partFolder, hash+"."+rand.Text()+".part")
}

// TooLargeError means that a document has more bytes than it may have.
type TooLargeError struct {
	Name  string
	Limit int64 // bytes
}

// Error gives the limit.
func (e *TooLargeError) Error() string {
	return fmt.Sprintf("the document %s has more than the %d bytes that are allowed", e.Name, e.Limit)
}

func emptyError(name string) error {
	return &jobs.FieldError{Field: "document", Why: name + " is empty"}
}
