package redisd

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"muster/tasks"
	"muster/tasks/embedded"
)

// folder is the absolute path of a data directory.
type folder string

func (d folder) redisDir() string { return filepath.Join(string(d), "redis") }
func (d folder) pidDir() string   { return filepath.Join(d.redisDir(), "run") }
func (d folder) portFile() string { return filepath.Join(d.redisDir(), "port") }
func (d folder) lockFile() string { return filepath.Join(d.redisDir(), "lock") }
func (d folder) logFile() string  { return filepath.Join(string(d), "logs", "redis.log") }

// externalFile returns the path of the file with the address, without password, of the external Redis that stores the jobs.
// Without that file they are in a child Redis, if its files exist.
func (d folder) externalFile() string { return filepath.Join(d.redisDir(), "external") }

// external returns the address of the external Redis that stores the jobs of the directory, or "".
func (d folder) external() (string, error) {
	text, err := os.ReadFile(d.externalFile())
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the Redis address of data directory %s: %w", string(d), err)
	}
	address := strings.TrimSpace(string(text))
	if _, err := tasks.ParseURL(address); address == "" || err != nil {
		return "", fmt.Errorf("%s does not contain the address of the Redis with the jobs of the data directory: write it there (redis://host:port/0), or remove the file to continue without those jobs", d.externalFile())
	}
	return address, nil
}

// hasAppendOnly reports whether the directory contains data of a redis-server.
func (d folder) hasAppendOnly() bool {
	found, _ := filepath.Glob(filepath.Join(d.redisDir(), "appendonly*")) // the pattern is valid
	return len(found) > 0
}

// hasEmbedded reports whether the directory contains data of an embedded Redis.
func (d folder) hasEmbedded() bool { return embedded.Exists(d.redisDir()) }

// isOwn reports whether the Redis at url is the child or embedded Redis of the data directory.
func (d folder) isOwn(url string) bool {
	port, err := d.lastPort()
	if err != nil {
		return false
	}
	opt, err := tasks.ParseURL(url)
	return err == nil && len(opt.Addrs) == 1 && opt.Addrs[0] == net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}
