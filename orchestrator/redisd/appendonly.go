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

// manifest lists the parts of the append-only file, since version 7 of Redis.
func (d folder) manifest() string {
	return filepath.Join(d.redisDir(), "appendonlydir", "appendonly.aof.manifest")
}

// checkManifest returns an error if parts of the append-only file are missing in a way that redis-server does not notice:
// it would begin without them, and write over some. What it does notice it says itself.
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
		case strings.HasSuffix(name, ".incr.aof") && info.Size() > 0 && !listed[name]: // an empty one was being added
			return fmt.Errorf("%s has jobs of this data folder, and %s does not list it: %s", filepath.Join(dir, name), d.manifest(), d.wayOut())
		case strings.HasSuffix(name, ".base.rdb") && info.Size() == 0 && listed[name]:
			return fmt.Errorf("%s, which has jobs of this data folder, is empty: %s", filepath.Join(dir, name), d.wayOut())
		}
	}
	return nil
}

// wayOut says what to do when redis-server cannot read its data.
func (d folder) wayOut() string {
	return fmt.Sprintf("restore the folder %s from a backup; or cut off what cannot be read, after a copy, with redis-check-aof --fix %s; or move the folder away, to begin without those jobs",
		filepath.Dir(d.manifest()), d.manifest())
}

// unreadable are parts of what redis-server logs when it cannot read its data.
var unreadable = []string{
	"reading the append only file", "append log file", "AOF manifest", "AOF MANIFEST", "Unable to obtain the AOF file", "AOF loading aborted",
	"loading DB", "loading the DB", "rdb file reading", "RDB reading", "reading RDB file", "reading the RDB", "RDB CRC", "RDB checksum",
}

// isUnreadable reports whether redis-server has said since an offset of its log that it cannot read its data.
func (d folder) isUnreadable(since int64) bool {
	text := d.logSince(since)
	return slices.ContainsFunc(unreadable, func(says string) bool { return strings.Contains(text, says) })
}

// cutOff returns what redis-server has said in its log since an offset about an incomplete end of the append-only file.
func (d folder) cutOff(since int64) string {
	for line := range strings.Lines(d.logSince(since)) {
		if _, what, ok := strings.Cut(line, "Truncating the AOF "); ok {
			return strings.TrimSpace(what)
		}
	}
	return ""
}

// logSince returns what the log of redis-server has from an offset on, at most 64 KiB.
func (d folder) logSince(since int64) string {
	f, err := os.Open(d.logFile())
	if err != nil {
		return ""
	}
	defer f.Close()
	text := make([]byte, 64<<10)
	n, _ := f.ReadAt(text, since) // less: the log ends there
	return string(text[:n])
}
