package testutil

import (
	"os"
	"os/user"
	"strconv"
	"testing"
)

// Nobody returns the user and group ID of nobody, for tests with files of another user. It skips the test without root or without
// that user.
func Nobody(tb testing.TB) (uid, gid int) {
	tb.Helper()
	if os.Geteuid() != 0 {
		tb.Skip("NOT COVERED:", tb.Name(), "needs root to act as another user")
	}
	u, err := user.Lookup("nobody")
	if err == nil {
		if uid, err = strconv.Atoi(u.Uid); err == nil {
			gid, err = strconv.Atoi(u.Gid)
		}
	}
	if err != nil {
		tb.Skip("NOT COVERED:", tb.Name(), "needs a user nobody:", err)
	}
	return uid, gid
}

// GiveToNobody changes the owner of files to nobody; see Nobody.
func GiveToNobody(tb testing.TB, paths ...string) {
	tb.Helper()
	uid, gid := Nobody(tb)
	for _, path := range paths {
		if err := os.Chown(path, uid, gid); err != nil {
			tb.Fatal(err)
		}
	}
}
