// Package secret puts secrets in the place of their references, so that files of
// settings need not have them.
//
//	${NAME}        the variable NAME of the environment
//	${file:PATH}   what the file PATH has, without the end of its last line
package secret

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
)

// MaxFile is how large a file with a secret may be, in bytes.
const MaxFile = 1 << 20

// Refers reports whether text has a reference.
func Refers(text string) bool { return strings.Contains(text, "${") }

// Files returns the files that text refers to.
func Files(text string) []string {
	var files []string
	_ = each(text, func(string) {}, func(name string) error {
		if path, ok := strings.CutPrefix(name, "file:"); ok {
			files = append(files, path)
		}
		return nil
	})
	return files
}

// Expand replaces the references in text. The secrets themselves are not
// searched for references. Getenv returns a variable of the environment; an empty
// one counts as missing. The error names each reference that has no value, and no
// secret.
func Expand(text string, getenv func(name string) (string, bool)) (string, error) {
	var out strings.Builder
	err := each(text, func(plain string) { out.WriteString(plain) }, func(name string) error {
		value, err := resolve(name, getenv)
		out.WriteString(value)
		return err
	})
	if err != nil {
		return "", err
	}
	return out.String(), nil
}

// each calls plain and reference for the parts of text, in order, and joins the errors.
func each(text string, plain func(string), reference func(name string) error) error {
	var errs []error
	for {
		before, rest, found := strings.Cut(text, "${")
		plain(before)
		if !found {
			return errors.Join(errs...)
		}
		name, after, closed := strings.Cut(rest, "}")
		if !closed {
			return errors.Join(append(errs, errors.New("${ without }"))...)
		}
		errs = append(errs, reference(name))
		text = after
	}
}

func resolve(name string, getenv func(string) (string, bool)) (string, error) {
	if path, ok := strings.CutPrefix(name, "file:"); ok {
		return Read(path)
	}
	if name == "" {
		return "", errors.New("${} has no name; write ${NAME} or ${file:PATH}")
	}
	value, ok := getenv(name)
	if !ok || value == "" {
		return "", fmt.Errorf("environment variable %s is not set", name)
	}
	return value, nil
}

// Read returns the secret in a file, without the end of its last line. An empty
// file is an error. The error names the file, and not what it has.
func Read(path string) (string, error) {
	// Before it is opened: a FIFO would block.
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return "", fmt.Errorf("secret file %s: %w", path, why(err, "it is no regular file"))
	}
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("secret file %s: %w", path, why(err, ""))
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, MaxFile+1))
	text := strings.TrimRight(string(b), "\r\n")
	switch {
	case err != nil:
		return "", fmt.Errorf("secret file %s: %w", path, why(err, ""))
	case len(b) > MaxFile:
		return "", fmt.Errorf("secret file %s: it has more than %d bytes", path, MaxFile)
	case text == "":
		return "", fmt.Errorf("secret file %s: it is empty", path)
	}
	return text, nil
}

// why is an error without the path that the message has already.
func why(err error, otherwise string) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	if err == nil {
		return errors.New(otherwise)
	}
	return err
}

// mounted are the folders where containers mount secrets, readable by everybody
// in the container.
var mounted = []string{"/run/secrets/", "/var/run/secrets/"}

// Exposed reports whether every user of the machine can read a file. Files that a
// container has mounted as secrets are not exposed.
func Exposed(path string) bool {
	for _, dir := range mounted {
		if strings.HasPrefix(path, dir) {
			return false
		}
	}
	info, err := os.Stat(path)
	return err == nil && info.Mode().Perm()&0o004 != 0
}
