// Package document keeps the documents of jobs in a folder. A document is a
// file whose name is the SHA-256 of its content, so that the same content is
// kept once; it is complete or it does not exist.
package document

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"muster/jobs"
)

const (
	markFile   = ".store"   // has the id of the store
	partFolder = "incoming" // has the files that are being written
)

// Store is a folder of documents. It may be used by many goroutines at once, and a folder by many processes.
type Store struct {
	dir, id string
	part    func(dir string) (*os.File, error) // creates the file that a document is written to
}

var (
	storeID = regexp.MustCompile(`^[!-~]{1,200}$`)
	hash    = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// Open opens the folder of documents of the store with an id, such as that of its Redis. It creates and marks the
// folder if need be. It is an error if another store has marked it.
func Open(dir, id string) (*Store, error) {
	if dir == "" || !storeID.MatchString(id) {
		return nil, fmt.Errorf("open the folder of documents %q of the store %q: a folder and an id without spaces are needed", dir, id)
	}
	s := &Store{dir: dir, id: id, part: newPart}
	if err := os.MkdirAll(filepath.Join(dir, partFolder), 0o700); err != nil {
		return nil, fmt.Errorf("create the folder of documents: %w", err)
	}
	if err := s.mark(); err != nil {
		return nil, fmt.Errorf("mark the folder of documents %s: %w", dir, err)
	}
	if err := s.Check(); err != nil {
		return nil, err
	}
	return s, nil
}

func newPart(dir string) (*os.File, error) {
	return os.CreateTemp(filepath.Join(dir, partFolder), "*.part")
}

// mark writes the mark unless there is one. Of two processes that do so at once, one succeeds.
func (s *Store) mark() error {
	path := filepath.Join(s.dir, markFile)
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := s.part(s.dir)
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	_, err = f.WriteString(s.id + "\n")
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		return err
	}
	if err := os.Link(f.Name(), path); !errors.Is(err, fs.ErrExist) { // unlike a rename, it replaces nothing
		return err
	}
	return nil
}

// Check returns an error if the folder is gone or cannot be written to, or if it does not have the mark of this store.
func (s *Store) Check() error {
	f, err := os.Open(filepath.Join(s.dir, markFile))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the folder of documents %s is no longer there, or has lost its file %s: mount it again, or restart to make a new one", s.dir, markFile)
	}
	if err != nil {
		return fmt.Errorf("check the folder of documents: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 1000))
	if err != nil {
		return fmt.Errorf("check the folder of documents: %w", err)
	}
	if got := strings.TrimSpace(string(text)); got != s.id {
		return fmt.Errorf("the folder of documents %s belongs to the store %q, and this is %q: use another folder, "+
			"or, if this store replaces the other, remove %s", s.dir, got, s.id, f.Name())
	}
	part, err := s.part(s.dir)
	if err != nil {
		return fmt.Errorf("the folder of documents cannot be written to: %w", err)
	}
	return errors.Join(part.Close(), os.Remove(part.Name()))
}

// path is where the content with a hash is. Hashes come from outside; what is none could be another path.
func (s *Store) path(of string) (string, error) {
	if !hash.MatchString(of) {
		return "", fmt.Errorf("%.80q is not the SHA-256 of a document; want 64 of 0-9 and a-f", of)
	}
	return filepath.Join(s.dir, of[:2], of), nil
}

// Open opens the document with a hash. The caller closes it. The error is or wraps fs.ErrNotExist if there is none.
func (s *Store) Open(hash string) (io.ReadCloser, error) {
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

// Remove removes the document with a hash. It is no error if there is none. The same content is kept once, and may be
// stored for another job meanwhile: unused is called when the document cannot be opened any more, and decides whether
// it is put back. If that fails, Sweep does it.
func (s *Store) Remove(hash string, unused func() (bool, error)) error {
	path, err := s.path(hash)
	if err != nil {
		return err
	}
	aside := s.aside(hash)
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

// aside is a new name for a document that is being removed. It begins with the hash, so that the document can be put back.
func (s *Store) aside(hash string) string {
	return filepath.Join(s.dir, partFolder, hash+"."+rand.Text()+".part")
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
