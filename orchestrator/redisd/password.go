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

// A child or embedded Redis listens on loopback, which is accessible to all users of the machine, and any client that can send
// tasks acts as the user of the workers. It therefore requires a password, which is generated at the first start and kept, so
// that workers that outlive an orchestrator can connect to the next one. The password is in three files that only their owner
// can read:
//
//	redis/password   password
//	redis/auth.conf  password for redis-server, whose arguments are visible to all users
//	redis.json       address with password, while it is in use
func (d folder) passwordFile() string { return PasswordFile(string(d)) }

// PasswordFile returns the path of the password file of the child or embedded Redis of a data directory.
func PasswordFile(dataDir string) string { return filepath.Join(dataDir, "redis", "password") }

// authFile is the configuration file of redis-server, in its working directory.
const authFile = "auth.conf"

// passwordBytes is the number of random bytes of a password, which is encoded as hex.
const passwordBytes = 32

// readPassword returns the password from the file.
func (d folder) readPassword() (string, error) {
	text, err := os.ReadFile(d.passwordFile())
	if err != nil {
		return "", err
	}
	password := strings.TrimSpace(string(text))
	if b, err := hex.DecodeString(password); err != nil || len(b) != passwordBytes {
		return "", fmt.Errorf("%s does not contain %d bytes as hex", d.passwordFile(), passwordBytes)
	}
	return password, nil
}

// ownPassword returns the password of the directory's own Redis. It generates one if it is missing or may be known to others.
// The caller holds the lock.
func (c Config) ownPassword() (string, error) {
	file := c.folder().passwordFile()
	info, err := os.Lstat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return c.folder().newPassword()
	}
	if err != nil {
		return "", fmt.Errorf("read the password file of Redis: %w", err)
	}
	why := "not a regular file"
	switch err := trust.Check(file, info); {
	case err != nil:
		why = err.Error()
	case readableByOthers(info):
		why = "readable by other users"
	case info.Mode().IsRegular():
		password, err := c.folder().readPassword()
		if err == nil {
			return password, nil
		}
		why = err.Error()
	}
	c.Logger.Warn("generating a new password for Redis; restart running workers, which use the old one", "file", file, "why", why)
	return c.folder().newPassword()
}

func (d folder) newPassword() (string, error) {
	b := make([]byte, passwordBytes)
	_, _ = rand.Read(b) // never fails
	password := hex.EncodeToString(b)
	return password, atomicfile.WriteBytes(d.passwordFile(), 0o600, []byte(password+"\n"))
}

// writeAuthFile writes the configuration file with the password of redis-server.
func (d folder) writeAuthFile(password string) error {
	text := "# Generated at each start from the file password.\nrequirepass " + password + "\n"
	return atomicfile.WriteBytes(filepath.Join(d.redisDir(), authFile), 0o600, []byte(text))
}

// leftoverPasswords returns the possible passwords of a redis-server of a crashed run: from the password file, and from the
// address file in case the password file was removed.
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
	return known
}

// ownURL returns the address of a child or embedded Redis.
func ownURL(port int, password string) string {
	u := url.URL{Scheme: "redis", Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), Path: "/0"}
	if password != "" {
		u.User = url.UserPassword("", password)
	}
	return u.String()
}

// findLeftover returns the address of the redis-server on port that uses our directory, or "".
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
