package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// store is a Redis or PostgreSQL server for a single system.
type store struct {
	url     string
	process *process
	used    func(ctx context.Context) (float64, error) // bytes
	close   func() error
}

// startRedis starts a Redis with production settings: an append-only file that is flushed to disk once a second.
func startRedis(ctx context.Context, dir string) (*store, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	if err := errors.Join(l.Close(), os.MkdirAll(dir, 0o755)); err != nil {
		return nil, err
	}
	p, err := start(nil, nil, "redis-server", "--port", port, "--bind", "127.0.0.1", "--dir", dir, "--save", "",
		"--appendonly", "yes", "--appendfsync", "everysec", "--maxmemory-policy", "noeviction", "--logfile", filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	cli := func(ctx context.Context, args ...string) (string, error) {
		return output(ctx, "", nil, append([]string{"redis-cli", "-p", port}, args...)...)
	}
	s := &store{
		url:     "redis://127.0.0.1:" + port + "/0",
		process: p,
		used: func(ctx context.Context) (float64, error) {
			text, err := cli(ctx, "INFO", "memory")
			if err != nil {
				return 0, err
			}
			return redisBytes(text)
		},
		close: func() error { p.kill(); return os.RemoveAll(dir) },
	}
	return s, s.awaitReady(ctx, func(ctx context.Context) error { _, err := cli(ctx, "PING"); return err })
}

// redisBytes returns the memory for data in Redis, excluding buffers of the append-only file and of clients. text is the output of
// INFO.
func redisBytes(text string) (float64, error) {
	var sum float64
	for field, sign := range map[string]float64{"used_memory": 1, "mem_aof_buffer": -1, "mem_clients_normal": -1} {
		_, rest, ok := strings.Cut(text, "\n"+field+":")
		value, _, _ := strings.Cut(rest, "\r\n")
		v, err := strconv.ParseFloat(value, 64)
		if !ok || err != nil {
			return 0, fmt.Errorf("no number %s in INFO of Redis", field)
		}
		sum += sign * v
	}
	return sum, nil
}

// startPostgres starts a PostgreSQL with default settings on a socket in its directory. As root, it uses the user postgres of the
// Debian package, because root cannot run PostgreSQL.
func startPostgres(ctx context.Context, dir string) (*store, error) {
	bin, err := postgresBin()
	if err != nil {
		return nil, err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	var as *syscall.Credential
	if os.Geteuid() == 0 {
		if as, err = credential("postgres"); err != nil {
			return nil, err
		}
		if err := os.Chown(dir, int(as.Uid), int(as.Gid)); err != nil {
			return nil, err
		}
	}
	data := filepath.Join(dir, "data")
	p, err := start(as, nil, filepath.Join(bin, "initdb"), "--pgdata", data, "--username", "peer", "--auth", "trust")
	if err != nil {
		return nil, err
	}
	<-p.exited
	if !p.cmd.ProcessState.Success() {
		return nil, fmt.Errorf("initdb: %s", p.errs)
	}
	if p, err = start(as, nil, filepath.Join(bin, "postgres"), "-D", data, "-k", dir, "-c", "listen_addresses="); err != nil {
		return nil, err
	}
	sql := func(ctx context.Context, query string) (string, error) {
		out, err := output(ctx, "", nil, filepath.Join(bin, "psql"), "-h", dir, "-U", "peer", "-d", "postgres", "-Atc", query)
		return strings.TrimSpace(out), err
	}
	s := &store{
		url:     "postgres://peer@/postgres?host=" + dir,
		process: p,
		used: func(ctx context.Context) (float64, error) {
			out, err := sql(ctx, "SELECT pg_database_size('postgres')")
			if err != nil {
				return 0, err
			}
			return strconv.ParseFloat(out, 64)
		},
		close: func() error { p.interrupt(20 * time.Second); return os.RemoveAll(dir) }, // releases its shared memory
	}
	return s, s.awaitReady(ctx, func(ctx context.Context) error { _, err := sql(ctx, "SELECT 1"); return err })
}

// postgresBin returns the program directory of the newest PostgreSQL.
func postgresBin() (string, error) {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil || len(found) == 0 {
		return "", errors.New("PostgreSQL is not installed below /usr/lib/postgresql")
	}
	return filepath.Dir(slices.Max(found)), nil
}

func credential(name string) (*syscall.Credential, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return nil, err
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	gid, err1 := strconv.ParseUint(u.Gid, 10, 32)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, errors.Join(err, err1)
}

// awaitReady waits until ping succeeds. On a timeout it closes the server.
func (s *store) awaitReady(ctx context.Context, ping func(context.Context) error) error {
	for until := time.Now().Add(20 * time.Second); ; {
		err := ping(ctx)
		if err == nil {
			return nil
		}
		if time.Now().After(until) || ctx.Err() != nil {
			return errors.Join(fmt.Errorf("%s does not respond: %w", s.process.cmd.Path, err), s.close())
		}
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return errors.Join(err, s.close())
		}
	}
}
