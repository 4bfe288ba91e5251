package redisd

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"muster/internal/atomicfile"
	"muster/internal/trust"
	"muster/tasks"
)

// A Redis of ours listens on loopback, where every user of the machine can
// connect, and whoever can send tasks to it acts as the user of the workers.
// So it needs a password. It is made at the first start and stays the same,
// so that workers that outlive an orchestrator can connect to the next one.
// It is in three files, which only their owner can read:
//
//	redis/password   the password itself
//	redis/auth.conf  the same for redis-server, whose arguments are public
//	redis.json       the whole address, while it is in use
func (d folder) passwordFile() string { return PasswordFile(string(d)) }

// PasswordFile is the file in a data folder with the password of a Redis of ours.
func PasswordFile(dataDir string) string { return filepath.Join(dataDir, "redis", "password") }

// authFile is the configuration file of redis-server, in its working folder.
const authFile = "auth.conf"

// passwordBytes is how many random bytes a password has. It is written in hex.
const passwordBytes = 32

// readPassword returns the password in the file.
func (d folder) readPassword() (string, error) {
	text, err := os.ReadFile(d.passwordFile())
	if err != nil {
		return "", err
	}
	password := strings.TrimSpace(string(text))
	if b, err := hex.DecodeString(password); err != nil || len(b) != passwordBytes {
		return "", fmt.Errorf("%s does not hold %d bytes in hex", d.passwordFile(), passwordBytes)
	}
	return password, nil
}

// ownPassword returns the password of the folder's own Redis. It makes one when
// it is missing, or when others may know it. The caller has the lock.
func (c Config) ownPassword() (string, error) {
	file := c.folder().passwordFile()
	info, err := os.Lstat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return c.folder().newPassword()
	}
	if err != nil {
		return "", fmt.Errorf("look for the password of Redis: %w", err)
	}
	why := "it is not a plain file"
	switch err := trust.Check(file, info); {
	case err != nil:
		why = err.Error()
	case readableByOthers(info):
		why = "other users can read it"
	case info.Mode().IsRegular():
		password, err := c.folder().readPassword()
		if err == nil {
			return password, nil
		}
		why = err.Error()
	}
	c.Logger.Warn("making a new password for Redis; workers that still run with the old one must be started again", "file", file, "why", why)
	return c.folder().newPassword()
}

func (d folder) newPassword() (string, error) {
	b := make([]byte, passwordBytes)
	_, _ = rand.Read(b) // never fails
	password := hex.EncodeToString(b)
	return password, atomicfile.WriteBytes(d.passwordFile(), 0o600, []byte(password+"\n"))
}

// writeAuthFile makes the file that gives redis-server its password.
func (d folder) writeAuthFile(password string) error {
	text := "# Made at each start, from the file password.\nrequirepass " + password + "\n"
	return atomicfile.WriteBytes(filepath.Join(d.redisDir(), authFile), 0o600, []byte(text))
}

// leftoverPasswords returns the passwords that a redis-server of a crashed run
// may have: the one in the file, the one in the address that the run has left,
// for when the file was removed, and none, as before there were passwords.
func (d folder) leftoverPasswords() []string {
	var known []string
	if password, err := d.readPassword(); err == nil {
		known = append(known, password)
	}
	if a, err := readAddress(string(d)); err == nil && d.isOwn(a.URL) {
		if opt, err := tasks.ParseURL(a.URL); err == nil && opt.Password != "" {
			known = append(known, opt.Password)
		}
	}
	return append(known, "")
}

// ownURL is the address of a Redis of ours.
func ownURL(port int, password string) string {
	u := url.URL{Scheme: "redis", Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), Path: "/0"}
	if password != "" {
		u.User = url.UserPassword("", password)
	}
	return u.String()
}

// findLeftover returns the address of the redis-server that works in our folder
// at port, or "".
func (c Config) findLeftover(ctx context.Context, port int) string {
	for _, password := range c.folder().leftoverPasswords() {
		url := ownURL(port, password)
		rdb, err := connect(url, c.PingTimeout)
		if err != nil {
			continue
		}
		got, err := rdb.ConfigGet(ctx, "dir").Result()
		_ = rdb.Close()
		if err == nil && sameFolder(got["dir"], c.folder().redisDir()) {
			return url
		}
	}
	return ""
}
