package redisd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"muster/internal/atomicfile"
	"muster/internal/trust"
	"muster/orchestrator/supervise"
)

// ErrNotRunning means that no running orchestrator has published a Redis address in the data directory.
var ErrNotRunning = errors.New("no running orchestrator")

// address is the content of the address file. Only its owner can read it, because the URL may contain a password.
type address struct {
	URL   string             `json:"url"`
	Mode  Mode               `json:"mode"`
	Owner supervise.Identity `json:"owner"`
	Since time.Time          `json:"since"`
	ID    string             `json:"id"` // ID of the Server that wrote it
}

func addressPath(dataDir string) string { return filepath.Join(dataDir, "redis.json") }

func readAddress(dataDir string) (address, error) {
	f, err := trust.Open(addressPath(dataDir))
	if err != nil {
		return address{}, err
	}
	defer f.Close()
	var a address
	if err := json.NewDecoder(io.LimitReader(f, 64<<10)).Decode(&a); err != nil {
		return address{}, fmt.Errorf("read %s: %w", addressPath(dataDir), err)
	}
	return a, nil
}

func (a address) write(dataDir string) error {
	return atomicfile.Write(addressPath(dataDir), 0o600, func(w io.Writer) error {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(a)
	})
}

// publish writes the address to the data directory, unless it contains another address that is in use, or [Config].Look forbids it.
func (s *Server) publish() error {
	if s.cfg.Look && s.mode == External {
		return nil
	}
	if a, err := readAddress(s.cfg.DataDir); err == nil && a.ID != s.id && a.Owner.Alive() {
		return nil
	}
	// If processes cannot be identified on this system, the owner counts as exited.
	self, _ := supervise.Self()
	err := address{URL: s.url, Mode: s.mode, Owner: self, Since: time.Now(), ID: s.id}.write(s.cfg.DataDir)
	if err == nil {
		err = s.remember()
	}
	if err != nil {
		return unwritable(s.cfg.DataDir, err)
	}
	return nil
}

// unpublish removes the address that publish wrote.
func (s *Server) unpublish() error {
	a, err := readAddress(s.cfg.DataDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil || a.ID != s.id {
		return err
	}
	return os.Remove(addressPath(s.cfg.DataDir))
}

// Discover returns the address of the Redis of the orchestrator that runs on the data directory, or ran there until it
// crashed. The Redis has replied to a ping. Discover returns ErrNotRunning if there is no orchestrator.
func Discover(ctx context.Context, dataDir string) (string, error) {
	dataDir, err := filepath.Abs(dataDir)
	if err != nil {
		return "", fmt.Errorf("data directory: %w", err)
	}
	a, err := readAddress(dataDir)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%w on data directory %s: run `muster start`, or name another directory with --data-dir or a Redis with --redis", ErrNotRunning, dataDir)
	}
	if errors.Is(err, fs.ErrPermission) {
		return "", fmt.Errorf("the Redis of data directory %s needs the password in %s, which only its owner can read: %w; run this as that user, or name another Redis with --redis", dataDir, PasswordFile(dataDir), err)
	}
	if err != nil {
		return "", err
	}
	err = Ping(ctx, a.URL, 2*time.Second)
	if err != nil && a.Owner.Alive() {
		return "", fmt.Errorf("the Redis of the orchestrator that runs on data directory %s does not respond (%w): see its log, or name another Redis with --redis", dataDir, err)
	}
	if err != nil {
		return "", fmt.Errorf("%w on data directory %s; the last one was killed (%w): run `muster start`, or name another directory with --data-dir or a Redis with --redis", ErrNotRunning, dataDir, err)
	}
	return a.URL, nil
}

// remember records that the jobs of the directory are in the current Redis, and adds a warning if they were in another.
func (s *Server) remember() error {
	before, err := s.cfg.folder().external()
	if err != nil {
		return err
	}
	if s.mode != External {
		if before == "" {
			return nil
		}
		s.warnings = append(s.warnings, fmt.Sprintf("earlier jobs of this data directory are in the Redis at %s and not in the current one; to go back, use that address with --redis", before))
		return os.Remove(s.cfg.folder().externalFile())
	}
	now := withoutPassword(s.url)
	if now == before || s.cfg.folder().isOwn(s.url) {
		return nil
	}
	switch {
	case before != "":
		s.warnings = append(s.warnings, fmt.Sprintf("earlier jobs of this data directory are in the Redis at %s, not in the Redis at %s", before, now))
	case s.cfg.folder().hasAppendOnly():
		s.warnings = append(s.warnings, fmt.Sprintf("earlier jobs of this data directory are in a child Redis, not in the Redis at %s; to use it again, set redis.mode to child", now))
	case s.cfg.folder().hasEmbedded():
		s.warnings = append(s.warnings, fmt.Sprintf("earlier jobs of this data directory are in an embedded Redis, not in the Redis at %s; to use it again, set redis.mode to embedded; to move them, see muster store copy", now))
	}
	return atomicfile.WriteBytes(s.cfg.folder().externalFile(), 0o600, []byte(now+"\n"))
}

// ErrNoStore means that a data directory contains no Redis data.
var ErrNoStore = errors.New("no store")

// Exists returns ErrNoStore if Start with cfg would create an empty Redis. It changes nothing.
func Exists(ctx context.Context, cfg Config) error {
	cfg, err := cfg.withDefaults()
	if err != nil || cfg.URL != "" {
		return err
	}
	if _, err := Discover(ctx, cfg.DataDir); err == nil {
		return nil
	}
	external, err := cfg.folder().external()
	switch {
	case err != nil:
		return err
	case cfg.Mode == External, cfg.Mode == Auto && external != "", cfg.Mode != Embedded && cfg.folder().hasAppendOnly(), cfg.Mode != Child && cfg.folder().hasEmbedded():
		return nil
	}
	return fmt.Errorf("%w in data directory %s: run `muster start`, or name another directory with --data-dir or a Redis with --redis", ErrNoStore, cfg.DataDir)
}

// useRemembered uses the external Redis that stores the jobs of the directory, if any.
func (s *Server) useRemembered(ctx context.Context) (used bool, err error) {
	url, err := s.cfg.folder().external()
	if err != nil || url == "" {
		return false, err
	}
	if err := s.useExternal(ctx, url); err != nil {
		return false, fmt.Errorf("the jobs of data directory %s are in another Redis (see %s): %w; start it, or use its complete address with --redis; to continue without those jobs, use another address with --redis, or set redis.mode to child or embedded (MUSTER_REDIS__MODE=child)", s.cfg.DataDir, s.cfg.folder().externalFile(), err)
	}
	return true, nil
}
