//go:build !unix

package redisd

import (
	"errors"
	"fmt"
)

type lock struct{}

var errLocked = errors.New("locked by another process")

func tryLock(path string) (*lock, error) {
	return nil, fmt.Errorf("lock %s: %w", path, errors.ErrUnsupported)
}

func (l *lock) release() {}
