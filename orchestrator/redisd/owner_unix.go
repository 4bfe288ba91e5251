//go:build unix

package redisd

import "io/fs"

// readableByOthers reports whether the group or all users have any permission on a file.
func readableByOthers(info fs.FileInfo) bool { return info.Mode().Perm()&0o077 != 0 }
