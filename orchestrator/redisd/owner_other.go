//go:build !unix

package redisd

import "io/fs"

// readableByOthers always returns false, because file modes do not describe the access of other users on this system.
func readableByOthers(fs.FileInfo) bool { return false }
