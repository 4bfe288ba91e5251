//go:build !unix

package redisd

import "io/fs"

// Here the permissions of a file say nothing about other users.

func ownedByUs(fs.FileInfo) (uid int, ours bool) { return 0, true }

func readableByOthers(fs.FileInfo) bool { return false }
