package embedded

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/gob"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"muster/internal/atomicfile"
	"muster/internal/trust"
)

// The data of a directory is one file: a line with the version, then batches, each the length and the CRC-32C of its content, and
// records in the encoding gob. The last record of a key counts. A batch has all keys that were changed at one moment, so the file is
// consistent after each of them. The file is written anew at each start, and when it has grown.
const (
	dataFile     = "store.data"
	previousFile = "store.previous" // before the last time that it was written anew
	versionLine  = "muster store 1\n"
	atOnce       = 1000     // records of a batch of a new file
	grownBy      = 16 << 20 // bytes, and twice the size at its begin
)

// ErrNewer means that a newer release wrote the data.
var ErrNewer = errors.New("a newer release wrote the data; install that release, or use another directory")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// record is a key.
type record struct {
	Key     string
	Type    string   // as of TYPE; empty for a key that does not exist
	Expires int64    // unix ms; 0 for never
	Values  []string // a string; fields and values, elements, members, members and scores; for entries of a stream their ID, a number and as many fields and values
}

// newRecord reads a key. The errors are those of keys that have expired.
func newRecord(db *miniredis.RedisDB, key string) record {
	r := record{Key: key, Type: db.Type(key)}
	switch r.Type {
	case "string":
		value, _ := db.Get(key)
		r.Values = []string{value}
	case "hash":
		fields, _ := db.HKeys(key)
		for _, f := range fields {
			r.Values = append(r.Values, f, db.HGet(key, f))
		}
	case "list":
		r.Values, _ = db.List(key)
	case "set":
		r.Values, _ = db.Members(key)
	case "zset":
		scores, _ := db.SortedSet(key)
		for _, m := range slices.Sorted(maps.Keys(scores)) {
			r.Values = append(r.Values, m, strconv.FormatFloat(scores[m], 'g', -1, 64))
		}
	case "stream":
		entries, _ := db.Stream(key)
		for _, e := range entries {
			r.Values = append(append(r.Values, e.ID, strconv.Itoa(len(e.Values))), e.Values...)
		}
	default:
		r.Type = ""
	}
	if ttl := db.TTL(key); ttl > 0 {
		r.Expires = time.Now().Add(ttl).UnixMilli()
	}
	return r
}

func (r record) equal(o record) bool {
	return r.Key == o.Key && r.Type == o.Type && r.Expires == o.Expires && slices.Equal(r.Values, o.Values)
}

// restore writes the key to a new database.
func (r record) restore(db *miniredis.RedisDB) (err error) {
	switch r.Type {
	case "string":
		err = db.Set(r.Key, r.Values[0])
	case "hash":
		db.HSet(r.Key, r.Values...)
	case "list":
		_, err = db.Push(r.Key, r.Values...)
	case "set":
		_, err = db.SetAdd(r.Key, r.Values...)
	case "zset":
		for i := 0; i+1 < len(r.Values) && err == nil; i += 2 {
			score, _ := strconv.ParseFloat(r.Values[i+1], 64)
			_, err = db.ZAdd(r.Key, score, r.Values[i])
		}
	case "stream":
		err = r.entries(func(id string, values []string) error {
			_, err := db.XAdd(r.Key, id, values)
			return err
		})
	}
	if err == nil && r.Expires > 0 {
		db.SetTTL(r.Key, time.Until(time.UnixMilli(r.Expires)))
	}
	return err
}

// entries calls f for each entry of a stream.
func (r record) entries(f func(id string, values []string) error) error {
	for i := 0; i+1 < len(r.Values); {
		n, err := strconv.Atoi(r.Values[i+1])
		if err != nil || i+2+n > len(r.Values) {
			return fmt.Errorf("entry %s of stream %s is incomplete", r.Values[i], r.Key)
		}
		if err := f(r.Values[i], r.Values[i+2:i+2+n]); err != nil {
			return err
		}
		i += 2 + n
	}
	return nil
}

// copyTo writes the key to a Redis in which it does not exist, and compares its size.
func (r record) copyTo(ctx context.Context, to redis.UniversalClient) error {
	size := map[string]string{"string": "STRLEN", "hash": "HLEN", "list": "LLEN", "set": "SCARD", "zset": "ZCARD", "stream": "XLEN"}[r.Type]
	want, write := len(r.Values), map[string]string{"string": "SET", "hash": "HSET", "list": "RPUSH", "set": "SADD", "zset": "ZADD"}[r.Type]
	var err error
	switch r.Type {
	case "stream":
		want = 0
		err = r.entries(func(id string, values []string) error {
			want++
			return to.XAdd(ctx, &redis.XAddArgs{Stream: r.Key, ID: id, Values: values}).Err()
		})
	case "string":
		want = len(r.Values[0])
	case "hash":
		want /= 2
	case "zset":
		want /= 2
		for pair := range slices.Chunk(r.Values, 2) {
			slices.Reverse(pair)
		}
	}
	for part := range slices.Chunk(r.Values, 1000) {
		if write == "" || err != nil {
			break
		}
		args := []any{write, r.Key}
		for _, v := range part {
			args = append(args, v)
		}
		err = to.Do(ctx, args...).Err()
	}
	if err == nil && r.Expires > 0 {
		err = to.PExpireAt(ctx, r.Key, time.UnixMilli(r.Expires)).Err()
	}
	if err != nil {
		return err
	}
	if got, err := to.Do(ctx, size, r.Key).Int(); err != nil || got != want && time.Now().UnixMilli() < r.Expires-1000 || r.Expires == 0 && got != want {
		return fmt.Errorf("%s is %d, want %d (%w)", strings.ToLower(size), got, want, err)
	}
	return nil
}

// Exists reports whether a directory has data of an embedded Redis.
func Exists(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, dataFile))
	_, previous := os.Stat(filepath.Join(dir, previousFile)) // alone after a crash between two renames
	return err == nil || previous == nil
}

// load returns the keys of a directory that have not expired, by name.
func load(dir string, log *slog.Logger) ([]record, error) {
	for _, name := range []string{dataFile, previousFile} {
		path := filepath.Join(dir, name)
		f, err := trust.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		keys, good, err := readFile(f)
		err = errors.Join(err, f.Close())
		switch {
		case errors.Is(err, ErrNewer):
			return nil, err
		case errors.Is(err, io.ErrUnexpectedEOF):
			log.Warn("the last write of the embedded Redis was cut off; its earlier data is used", "file", path, "bytes", good)
		case err != nil:
			aside := fmt.Sprintf("%s.damaged-%s", path, time.Now().UTC().Format("20060102T150405"))
			if err := os.Link(path, aside); err != nil {
				return nil, fmt.Errorf("keep the damaged file: %w", err)
			}
			log.Error("the data of the embedded Redis is damaged; what was written before the damage is used", "error", err, "kept", aside)
			if good == 0 {
				continue
			}
		}
		now, records := time.Now().UnixMilli(), make([]record, 0, len(keys))
		for _, r := range keys {
			if r.Type != "" && (r.Expires == 0 || r.Expires > now) {
				records = append(records, r)
			}
		}
		slices.SortFunc(records, func(a, b record) int { return strings.Compare(a.Key, b.Key) })
		return records, nil
	}
	return nil, nil
}

// readFile returns the keys of a file up to its end or its first damage, and the offset of that. The error is io.ErrUnexpectedEOF if the
// last batch is incomplete.
func readFile(f *os.File) (keys map[string]record, good int64, err error) {
	path := f.Name()
	info, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	r := bufio.NewReaderSize(f, 1<<20)
	line, err := r.ReadString('\n')
	var version int
	switch n, _ := fmt.Sscanf(line, "muster store %d\n", &version); {
	case n == 1 && version > 1:
		return nil, 0, fmt.Errorf("%s: %w", path, ErrNewer)
	case err != nil || line != versionLine:
		return nil, 0, fmt.Errorf("%s does not begin with %q", path, versionLine)
	}
	keys, good = map[string]record{}, int64(len(line))
	for {
		var head [12]byte
		if _, err := io.ReadFull(r, head[:]); err == io.EOF {
			return keys, good, nil
		} else if err != nil {
			return keys, good, err
		}
		size := int64(binary.LittleEndian.Uint64(head[:8]))
		if size < 0 || size > info.Size()-good-int64(len(head)) {
			return keys, good, io.ErrUnexpectedEOF
		}
		content := make([]byte, size)
		if _, err := io.ReadFull(r, content); err != nil {
			return keys, good, err
		}
		var batch []record
		if crc32.Checksum(content, castagnoli) != binary.LittleEndian.Uint32(head[8:]) {
			return keys, good, fmt.Errorf("%s: wrong checksum after %d bytes", path, good)
		}
		if err := gob.NewDecoder(bytes.NewReader(content)).Decode(&batch); err != nil {
			return keys, good, fmt.Errorf("%s: after %d bytes: %w", path, good, err)
		}
		for _, k := range batch {
			keys[k.Key] = k
		}
		good += int64(len(head)) + size
	}
}

// file is the open data file of a directory.
type file struct {
	*os.File
	dir         string
	begin, size int64 // bytes: when it was written anew, and now
}

// create writes the file of a directory anew, and keeps the one before. The file is in use if it is not nil, even with an error.
func create(dir string, records []record) (*file, error) {
	path := filepath.Join(dir, dataFile)
	next := path + ".next"
	err := atomicfile.Write(next, 0o600, func(w io.Writer) error {
		if _, err := io.WriteString(w, versionLine); err != nil {
			return err
		}
		for part := range slices.Chunk(records, atOnce) {
			b, err := encode(part)
			if err != nil {
				return err
			}
			if _, err := w.Write(b); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(next, os.O_RDWR, 0o600) // before the renames: the file with the name dataFile is always the one that append writes to
	if err != nil {
		return nil, err
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err == nil {
		if err = os.Rename(path, filepath.Join(dir, previousFile)); err == nil || errors.Is(err, fs.ErrNotExist) {
			err = os.Rename(next, path)
		}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &file{f, dir, size, size}, atomicfile.SyncDir(dir)
}

func encode(records []record) ([]byte, error) {
	b := bytes.NewBuffer(make([]byte, 12))
	if err := gob.NewEncoder(b).Encode(records); err != nil {
		return nil, err
	}
	content := b.Bytes()[12:]
	binary.LittleEndian.PutUint64(b.Bytes(), uint64(len(content)))
	binary.LittleEndian.PutUint32(b.Bytes()[8:], crc32.Checksum(content, castagnoli))
	return b.Bytes(), nil
}

// append writes a batch. If that fails, the file is as before. A file that has grown is written anew.
func (f *file) append(records []record) error {
	if len(records) == 0 {
		return nil
	}
	b, err := encode(records)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(b, f.size)
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		return errors.Join(err, f.Truncate(f.size))
	}
	if f.size += int64(len(b)); f.size < 2*f.begin+grownBy {
		return nil
	}
	all, err := load(f.dir, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	next, err := create(f.dir, all)
	if next != nil {
		err = errors.Join(err, f.Close())
		*f = *next
	}
	if err != nil {
		return fmt.Errorf("write the data anew: %w", err)
	}
	return nil
}
