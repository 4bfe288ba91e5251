package redisd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// manifest returns the path of the list of append-only files (Redis 7 and later).
func (d folder) manifest() string {
	return filepath.Join(d.redisDir(), "appendonlydir", "appendonly.aof.manifest")
}

// checkManifest returns an error for damage of the append-only files that redis-server does not detect: it would start without
// them and overwrite some.
func (d folder) checkManifest() error {
	dir := filepath.Dir(d.manifest())
	text, err := os.ReadFile(d.manifest())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	listed := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) > 1 && words[0] == "file" {
			listed[words[1]] = true
		}
	}
	parts, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, part := range parts {
		info, err := part.Info()
		if err != nil {
			continue
		}
		switch name := part.Name(); {
		case strings.HasSuffix(name, ".incr.aof") && info.Size() > 0 && !listed[name]: // an empty file is the remainder of an interrupted rotation
			return fmt.Errorf("append-only file %s contains jobs of this data directory but is not listed in %s: %s", filepath.Join(dir, name), d.manifest(), d.wayOut())
		case strings.HasSuffix(name, ".base.rdb") && info.Size() == 0 && listed[name]:
			return fmt.Errorf("append-only file %s of this data directory is empty: %s", filepath.Join(dir, name), d.wayOut())
		}
	}
	return nil
}

// wayOut returns advice for data that redis-server cannot read.
func (d folder) wayOut() string {
	return fmt.Sprintf("restore the directory %s from a backup; or copy it and truncate the unreadable part with redis-check-aof --fix %s; or move the directory away to start without those jobs",
		filepath.Dir(d.manifest()), d.manifest())
}

// unreadable lists the log messages of redis-server about unreadable data.
var unreadable = []string{
	"reading the append only file", "append log file", "AOF manifest", "AOF MANIFEST", "Unable to obtain the AOF file", "AOF loading aborted",
	"loading DB", "loading the DB", "rdb file reading", "RDB reading", "reading RDB file", "reading the RDB", "RDB CRC", "RDB checksum",
}

// isUnreadable reports whether redis-server has logged unreadable data after an offset of its log.
func (d folder) isUnreadable(since int64) bool {
	text := d.logSince(since)
	return slices.ContainsFunc(unreadable, func(message string) bool { return strings.Contains(text, message) })
}

// cutOff returns the log message of redis-server about a truncated append-only file after an offset of its log, or "".
func (d folder) cutOff(since int64) string {
	for line := range strings.Lines(d.logSince(since)) {
		if _, message, ok := strings.Cut(line, "Truncating the AOF "); ok {
			return strings.TrimSpace(message)
		}
	}
	return ""
}

// logSince returns at most 64 KiB of the log of redis-server, starting at an offset.
func (d folder) logSince(since int64) string {
	f, err := os.Open(d.logFile())
	if err != nil {
		return ""
	}
	defer f.Close()
	text := make([]byte, 64<<10)
	n, _ := f.ReadAt(text, since) // a short read is the end of the log
	return string(text[:n])
}
