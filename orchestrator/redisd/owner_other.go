//go:build !unix

package redisd

import "io/fs"

// The permissions of a file do not name other users here.
func readableByOthers(fs.FileInfo) bool { return false }
