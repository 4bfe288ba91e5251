// Package embedded runs a Redis in the process of a program, for programs and machines without a redis-server. It keeps its data in a
// file, so that queues, workflows and results survive the end of the process:
//
//	server, err := embedded.Start(embedded.Config{Dir: "/var/lib/app"})
//	...
//	defer server.Close()
//	client, err := tasks.Connect(ctx, server.URL())
//
// The server is a miniredis. It writes what has changed at most every 5 seconds and at its end, whole transactions and scripts only. A
// crash loses the changes since the last write: the tasks that began or ended in that time run again. Everything is in memory, and a
// command takes longer than with a redis-server, so it suits one process and few tasks. [Copy] moves its data
// to a redis-server. Database 0 is kept, without HyperLogLogs, consumer groups and times to live of fields.
package embedded

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/gofrs/flock"
	"github.com/redis/go-redis/v9"

	"muster/internal/atomicfile"
	"muster/internal/trust"
)

// SaveEvery is the interval of the writes: the time of which a crash loses the changes.
const SaveEvery = 5 * time.Second

var saveEvery = SaveEvery // less in tests

const (
	mostChanged = 2000 // changed keys after which they are written at once: the server stands still while they are copied
	expireEvery = 50 * time.Millisecond
)

// ErrLocked means that another process has the directory.
var ErrLocked = errors.New("another process uses the directory")

// Config configures Start.
type Config struct {
	// Dir is the directory of the data. It is created if it is missing. It must belong to the user of this process.
	Dir string
	// Addr is the address to listen on. Default: a free port of 127.0.0.1.
	Addr string
	// Password is the password of the server. Default: a random one.
	Password string
	// Logger gets damaged data and failed writes. Default: slog.Default().
	Logger *slog.Logger
}

// Server is a running Redis. Its methods may be called concurrently.
type Server struct {
	cfg  Config
	log  *slog.Logger
	mini *miniredis.Miniredis
	rdb  *redis.Client
	lock *flock.Flock
	file *file

	mu      sync.Mutex
	changed map[string]bool // keys to write
	conns   map[*server.Peer]*conn
	failed  error        // of the last write
	copier  *server.Peer // which copies keys to the database scratch

	saving sync.Mutex        // guards the following
	copied map[string]bool   // keys to write, whose copies are in the database scratch
	known  map[string]record // what was written last of the keys in conns

	full chan struct{} // there are mostChanged keys to write
	stop context.CancelFunc
	done sync.WaitGroup
	end  sync.Once
	err  error // of Close
}

// Start starts a Redis with the data of a directory. The error is ErrLocked, with the other process, if another one uses it, and
// ErrNewer for data of a newer release. Of a damaged file, it keeps a copy and uses what was written before the damage. Close it after the
// clients.
func Start(cfg Config) (_ *Server, err error) {
	if cfg.Dir == "" {
		return nil, errors.New("start the embedded Redis: Dir is empty; name a directory for its data")
	}
	s := &Server{cfg: cfg, log: cfg.Logger, mini: miniredis.NewMiniRedis(), changed: map[string]bool{}, conns: map[*server.Peer]*conn{}, full: make(chan struct{}, 1)}
	if s.log == nil {
		s.log = slog.Default()
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("start the embedded Redis: %w", err)
			if s.lock != nil {
				err = errors.Join(err, s.lock.Close())
			}
		}
	}()
	if s.lock, err = lockDir(cfg.Dir); err != nil {
		return nil, err
	}
	if err := atomicfile.Abandon(cfg.Dir); err != nil { // files of killed processes
		return nil, err
	}
	records, err := load(cfg.Dir, s.log)
	if err != nil {
		return nil, err
	}
	if s.file, err = create(cfg.Dir, records); err != nil {
		return nil, err
	}
	for _, r := range records {
		if err := r.restore(s.mini.DB(0)); err != nil {
			return nil, errors.Join(err, s.file.Close())
		}
	}
	if s.cfg.Password == "" {
		s.cfg.Password = rand.Text()
	}
	if s.cfg.Addr == "" {
		s.cfg.Addr = "127.0.0.1:0"
	}
	s.mini.RequireAuth(s.cfg.Password)
	if err := s.mini.StartAddr(s.cfg.Addr); err != nil {
		return nil, errors.Join(err, s.file.Close())
	}
	if err := s.mini.Server().Register(saveCommand, s.copy); err != nil {
		return nil, err
	}
	s.mini.Server().SetPreHook(s.arrived)
	s.rdb = redis.NewClient(&redis.Options{Addr: s.mini.Addr(), Password: s.cfg.Password, Protocol: 2, PoolSize: 1, ReadTimeout: time.Minute, MaxRetries: -1, DisableIdentity: true})
	var running context.Context
	running, s.stop = context.WithCancel(context.Background())
	s.done.Go(func() { s.expire(running) })
	s.done.Go(func() { s.saveAll(running) })
	return s, nil
}

// lockDir locks a directory for this process.
func lockDir(dir string) (*flock.Flock, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if err := trust.Dir(dir); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "store.lock")
	lock := flock.New(path, flock.SetPermissions(0o600))
	switch ok, err := lock.TryLock(); {
	case err != nil:
		return nil, fmt.Errorf("lock %s: %w", path, err)
	case !ok:
		other, _ := os.ReadFile(path) // only for the message
		return nil, fmt.Errorf("%w: %s is locked by process %s; stop it, or use another directory", ErrLocked, dir, strings.TrimSpace(string(other)))
	}
	if err := os.WriteFile(path, fmt.Appendln(nil, os.Getpid()), 0o600); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock, nil
}

// URL returns the address of the server, with its password, as tasks.Connect reads it.
func (s *Server) URL() string {
	u := url.URL{Scheme: "redis", User: url.UserPassword("", s.cfg.Password), Host: s.mini.Addr(), Path: "/0"}
	return u.String()
}

// Err returns the error of the last write to the file, which is repeated every SaveEvery; nil if it succeeded.
func (s *Server) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

// Close writes the last changes and stops the server. Close the clients before. Later calls return the result of the first one.
func (s *Server) Close() error {
	s.end.Do(func() {
		s.stop()
		s.done.Wait()
		err := s.save(context.Background())
		s.mini.Close()
		s.err = errors.Join(err, s.rdb.Close(), s.file.Close(), s.lock.Close())
	})
	return s.err
}

// expire advances the clock of miniredis, which is manual, until ctx is done. That sorts all keys, so with many it is done less often.
func (s *Server) expire(ctx context.Context) {
	for last, wait := time.Now(), expireEvery; ; {
		select {
		case <-time.After(wait):
			now := time.Now()
			s.mini.FastForward(now.Sub(last))
			last, wait = now, max(expireEvery, 30*time.Since(now))
		case <-ctx.Done():
			return
		}
	}
}

// saveAll writes changed keys until ctx is done.
func (s *Server) saveAll(ctx context.Context) {
	tick := time.NewTicker(saveEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-s.full:
		case <-ctx.Done():
			return
		}
		err := s.save(context.WithoutCancel(ctx))
		s.mu.Lock()
		before := s.failed
		s.failed = err
		s.mu.Unlock()
		switch {
		case err != nil && before == nil:
			s.log.Error("the embedded Redis cannot write its data; changes are kept in memory, and the write is repeated", "error", err, "every", SaveEvery)
		case err == nil && before != nil:
			s.log.Info("the embedded Redis writes its data again")
		}
	}
}

// conn is a connection of a client. Its last command, or its transaction, can still run.
type conn struct {
	keys  []string // that it changes
	multi bool
}

// arrived notes the keys that a command will change. miniredis calls it for each command: for those of a script while the script runs. It
// returns true if it has rejected the command.
func (s *Server) arrived(c *server.Peer, cmd string, args ...string) bool {
	var keys []string
	switch {
	case s.mini.IsReadOnlyCommand(cmd):
	case cmd == "INFO" && len(args) == 1 && strings.EqualFold(args[0], "memory"): // which miniredis does not know
		var reply bytes.Buffer
		inner := server.NewPeer(bufio.NewWriter(&reply))
		inner.Ctx = c.Ctx
		s.mini.Server().Dispatch(inner, []string{"PING"})
		if inner.Flush(); reply.String() != "+PONG\r\n" {
			return false // without the password
		}
		c.WriteBulk(s.memory())
		return true
	case cmd == "FLUSHALL" || cmd == "FLUSHDB":
		if s.isClient(c) { // else a script has the lock
			keys = s.mini.DB(0).Keys()
		}
	case slices.Contains(keyless, cmd):
	case slices.Contains([]string{"RENAME", "RENAMENX", "COPY", "SMOVE", "LMOVE", "RPOPLPUSH", "BLMOVE", "BRPOPLPUSH"}, cmd):
		keys = args[:min(2, len(args))]
	case slices.Contains([]string{"DEL", "UNLINK", "MSET", "MSETNX", "BITOP", "LMPOP", "ZMPOP", "BZMPOP", "BLPOP", "BRPOP", "BZPOPMIN", "BZPOPMAX"}, cmd):
		keys = args // an argument that is not a key reads as a missing key
	default:
		keys = args[:min(1, len(args))]
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c == s.copier {
		return false
	}
	from := s.conns[c]
	if from == nil && (cmd == "AUTH" || cmd == "HELLO") { // the first command of each connection; commands of scripts have a peer of their own
		s.conns[c] = &conn{}
		c.OnDisconnect(func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.change(s.conns[c].keys)
			delete(s.conns, c)
		})
		return false
	}
	if from == nil {
		s.change(keys)
		return false
	}
	if !from.multi { // its last command has ended
		s.change(from.keys)
		from.keys = nil
	}
	from.multi = cmd == "MULTI" || from.multi && cmd != "EXEC" && cmd != "DISCARD"
	from.keys = append(from.keys, keys...)
	return false
}

// memory is the section of INFO about the memory, with the state of the file.
func (s *Server) memory() string {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	state := "ok"
	if s.Err() != nil {
		state = "err"
	}
	return fmt.Sprintf("# Memory\r\nused_memory:%d\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\naof_last_write_status:%s\r\n", m.HeapAlloc, state)
}

// isClient reports whether commands come from a connection, not from a script.
func (s *Server) isClient(c *server.Peer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conns[c] != nil
}

// keyless are commands that change no keys, although they are not marked as reading only.
var keyless = []string{"EVAL", "EVALSHA", "SCRIPT", "PUBLISH", "SUBSCRIBE", "UNSUBSCRIBE", "PSUBSCRIBE", "PUNSUBSCRIBE", "PUBSUB", "PING", "ECHO", "HELLO", "AUTH",
	"CLIENT", "CLUSTER", "SELECT", "INFO", "TIME", "COMMAND", "MEMORY", "OBJECT", "WAIT", "WATCH", "UNWATCH", "MULTI", "EXEC", "DISCARD", "QUIT", saveCommand}

// change notes changed keys. The caller holds mu.
func (s *Server) change(keys []string) {
	for _, key := range keys {
		s.changed[key] = true
	}
	if len(s.changed) >= mostChanged {
		select {
		case s.full <- struct{}{}:
		default:
		}
	}
}

// saveCommand copies the changed keys to the database scratch. It is called by a script, so that no other command runs: the server stands
// still until it ends, so the copies are read and written later.
const (
	saveCommand = "MUSTER.SAVE"
	scratch     = 16
)

// save writes the changed keys, as they are at one moment. If that fails, they count as changed again.
func (s *Server) save(ctx context.Context) error {
	s.saving.Lock()
	defer s.saving.Unlock()
	defer s.mini.DB(scratch).FlushDB()
	err := s.rdb.Eval(ctx, "return redis.call('"+saveCommand+"')", nil).Err()
	if err == nil {
		err = s.file.append(s.read())
	}
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		for key := range s.copied {
			s.changed[key] = true
			delete(s.known, key)
		}
	}
	return err
}

// copy is the handler of saveCommand.
func (s *Server) copy(c *server.Peer, _ string, _ []string) {
	inner := server.NewPeer(bufio.NewWriter(io.Discard))
	inner.Ctx = c.Ctx // which has the lock
	s.mu.Lock()
	s.copied, s.changed = s.changed, map[string]bool{}
	known := s.known
	s.known = map[string]record{} // of keys that commands which have arrived can change again
	for _, from := range s.conns {
		for _, key := range from.keys {
			s.known[key] = known[key]
			s.copied[key] = true
		}
	}
	s.copier = inner
	s.mu.Unlock()
	for key := range s.copied {
		s.mini.Server().Dispatch(inner, []string{"COPY", key, key, "DB", strconv.Itoa(scratch)})
	}
	c.WriteOK()
}

// read returns the keys that copy has copied, except those that are as before.
func (s *Server) read() (batch []record) {
	db := s.mini.DB(scratch)
	for key := range s.copied {
		r := newRecord(db, key)
		if before, runs := s.known[key]; runs {
			if r.equal(before) {
				continue
			}
			s.known[key] = r
		}
		batch = append(batch, r)
	}
	return batch
}

// Copy writes the data of a directory, which no process may use, into an empty database of a Redis, and returns the number of
// keys. It compares the size of each key afterwards.
func Copy(ctx context.Context, dir string, to redis.UniversalClient) (n int, err error) {
	if !Exists(dir) {
		return 0, fmt.Errorf("copy the data of the embedded Redis: %s has none: %w", dir, os.ErrNotExist)
	}
	lock, err := lockDir(dir)
	if err != nil {
		return 0, fmt.Errorf("copy the data of the embedded Redis: %w", err)
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	records, err := load(dir, slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil {
		return 0, fmt.Errorf("copy the data of the embedded Redis: %w", err)
	}
	if have, err := to.DBSize(ctx).Result(); err != nil || have > 0 {
		if err == nil {
			err = fmt.Errorf("it has %d keys; name an empty database", have)
		}
		return 0, fmt.Errorf("copy to the Redis: %w", err)
	}
	for _, r := range records {
		if err := r.copyTo(ctx, to); err != nil {
			return n, fmt.Errorf("copy key %s: %w; empty the database before the next attempt", r.Key, err)
		}
		n++
	}
	return n, nil
}
