package redisd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"muster/internal/atomicfile"
	"muster/tasks"
)

// externalFile holds the address, without password, of the Redis that is not
// ours and holds the folder's jobs. Without that file they are in a redis-server
// of our own, if its files are in the folder.
func (c Config) externalFile() string { return filepath.Join(c.redisDir(), "external") }

// external returns the address of the Redis that holds the folder's jobs and is
// not ours, or "".
func (c Config) external() (string, error) {
	text, err := os.ReadFile(c.externalFile())
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read which Redis has the jobs of data folder %s: %w", c.DataDir, err)
	}
	return strings.TrimSpace(string(text)), nil
}

// hasAppendOnly reports whether the folder has the data of a redis-server.
func (c Config) hasAppendOnly() bool {
	found, _ := filepath.Glob(filepath.Join(c.redisDir(), "appendonly*")) // the pattern is right
	return len(found) > 0
}

// isOwn reports whether the Redis at url is one that another process runs on
// the data folder.
func (c Config) isOwn(url string) bool {
	port, err := c.lastPort()
	if err != nil {
		return false
	}
	opt, err := tasks.ParseURL(url)
	return err == nil && len(opt.Addrs) == 1 && opt.Addrs[0] == net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

// remember records that the folder's jobs are in the Redis in use, and adds a
// warning when they were in another.
func (s *Server) remember() error {
	before, err := s.cfg.external()
	if err != nil {
		return err
	}
	if s.mode != External {
		if before == "" {
			return nil
		}
		s.warnings = append(s.warnings, fmt.Sprintf("the jobs of this data folder so far are in the Redis at %s; the one in use does not have them; to go back, give that address with --redis", before))
		return os.Remove(s.cfg.externalFile())
	}
	now := withoutPassword(s.url)
	if now == before || s.cfg.isOwn(s.url) {
		return nil
	}
	switch {
	case before != "":
		s.warnings = append(s.warnings, fmt.Sprintf("the jobs of this data folder so far are in the Redis at %s; the one at %s does not have them", before, now))
	case s.cfg.hasAppendOnly():
		s.warnings = append(s.warnings, fmt.Sprintf("the jobs of this data folder so far are in a Redis of its own; the one at %s does not have them; to go back, set redis.mode to child or embedded", now))
	}
	return atomicfile.WriteBytes(s.cfg.externalFile(), 0o600, []byte(now+"\n"))
}

// useRemembered uses the Redis that holds the folder's jobs, if that is not ours.
func (s *Server) useRemembered(ctx context.Context) (used bool, err error) {
	url, err := s.cfg.external()
	if err != nil || url == "" {
		return false, err
	}
	if err := s.useExternal(ctx, url); err != nil {
		return false, fmt.Errorf("the jobs of data folder %s are in another Redis: %w; start that one, or give its whole address with --redis; to go on without those jobs, give another address with --redis, or set redis.mode to child or embedded (MUSTER_REDIS__MODE=child)", s.cfg.DataDir, err)
	}
	return true, nil
}
