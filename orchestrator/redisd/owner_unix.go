//go:build unix

package redisd

import "io/fs"

// readableByOthers reports whether the group of a file or every user may do anything with it.
func readableByOthers(info fs.FileInfo) bool { return info.Mode().Perm()&0o077 != 0 }
