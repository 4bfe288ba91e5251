// Package artifact converts lines of JSON to items of a work queue, and downloads their URLs to a directory.
//
// An artifact is a JSON object with an ID, and usually with a URL. [Item] determines the resources of an artifact, its resolver
// and the host of its URL, to which the limits of the queue apply. [Import] reads a file of artifacts of any length. [Fetcher]
// handles items of kind [FetchKind].
package artifact

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"muster/internal/limit"
	"muster/tasks/workqueue"
)

// FetchKind is the default kind of an artifact, which is downloaded.
const FetchKind = "http.fetch"

// Prefixes of resource keys.
const (
	ResolverKey = "resolver:"
	HostKey     = "host:"
)

// The fields of the resolver and the URL of an artifact, in order of precedence.
var (
	resolverFields = []string{"resolver_hint", "resolver", "resolver_name"}
	urlFields      = []string{"url", "source_url", "origin_url", "download_url", "landing_url", "pdf_url"}
	urlLists       = []string{"urls", "landing_urls", "pdf_urls"}
)

// Parse parses an artifact: a JSON object with the field id or artifact_id.
func Parse(data []byte) (workqueue.Item, error) {
	fields, err := object(data)
	if err != nil {
		return workqueue.Item{}, err
	}
	id := text(fields, "id", "artifact_id")
	if id == "" {
		return workqueue.Item{}, errors.New(`no ID; set "id" or "artifact_id"`)
	}
	return item(id, data, fields)
}

// Item returns the queue item of an artifact with a known ID.
func Item(id string, data []byte) (workqueue.Item, error) {
	fields, err := object(data)
	if err != nil {
		return workqueue.Item{}, err
	}
	return item(id, data, fields)
}

func item(id string, data []byte, fields map[string]json.RawMessage) (workqueue.Item, error) {
	it := workqueue.Item{ID: id, Kind: text(fields, "kind"), Payload: bytes.Clone(bytes.TrimSpace(data))}
	if it.Kind == "" {
		it.Kind = FetchKind
	}
	if p, ok := fields["priority"]; ok {
		if err := json.Unmarshal(p, &it.Priority); err != nil {
			return workqueue.Item{}, fmt.Errorf("invalid priority %.40s: must be an integer", p)
		}
	}
	if r := text(fields, resolverFields...); r != "" {
		it.ResourceKeys = append(it.ResourceKeys, ResolverKey+r)
	}
	// Errors of the URL are returned by Doubt.
	if h, _ := limit.ParseHostKey(urlOf(fields)); h != "" {
		it.ResourceKeys = append(it.ResourceKeys, HostKey+strings.ToValidUTF8(h[:min(len(h), maxHost)], ""))
	}
	return it, nil
}

// maxHost is larger than any host name with port. A string that is not a host is truncated to it.
const maxHost = 300

// Doubt returns an error for an enqueued item whose URL has no host. The limit per host does not apply to such an item.
func Doubt(it workqueue.Item) error {
	for _, k := range it.ResourceKeys {
		host, ok := strings.CutPrefix(k, HostKey)
		if !ok {
			continue
		}
		if _, err := limit.ParseHostKey(host); err != nil {
			return fmt.Errorf("artifact %.80q: no host in %.80q: %w", it.ID, host, err)
		}
	}
	return nil
}

func object(data []byte) (map[string]json.RawMessage, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		if kind := new(json.UnmarshalTypeError); errors.As(err, &kind) {
			return nil, fmt.Errorf("an artifact must be a JSON object, not %s", kind.Value)
		}
		return nil, err
	}
	if fields == nil {
		return nil, errors.New("an artifact must be a JSON object, not null")
	}
	return fields, nil
}

// text returns the first nonblank string among the named fields.
func text(fields map[string]json.RawMessage, names ...string) string {
	for _, n := range names {
		var s string
		if json.Unmarshal(fields[n], &s) == nil && strings.TrimSpace(s) != "" {
			return strings.TrimSpace(s)
		}
	}
	return ""
}

// urlOf returns the URL of an artifact, or "".
func urlOf(fields map[string]json.RawMessage) string {
	if u := text(fields, urlFields...); u != "" {
		return u
	}
	for _, n := range urlLists {
		var list []string
		if json.Unmarshal(fields[n], &list) != nil {
			continue
		}
		for _, u := range list {
			if strings.TrimSpace(u) != "" {
				return strings.TrimSpace(u)
			}
		}
	}
	var plan map[string]json.RawMessage
	if json.Unmarshal(fields["plan"], &plan) == nil {
		return text(plan, "url")
	}
	return ""
}

// ImportConfig configures Import.
type ImportConfig struct {
	Limit    int                           // maximum number of artifacts. Default: all.
	MaxLine  int                           // maximum length of a line in bytes. Default: 8 MiB.
	Progress func(Report)                  // called after each batch. Optional.
	BadLine  func(number int64, err error) // called for each invalid line. Optional.
	Doubtful func(number int64, err error) // called for each item for which Doubt returns an error. Optional.
}

// Report contains the line counts of an import.
type Report struct {
	New       int   `json:"new"`
	Duplicate int   `json:"duplicate"`
	Errors    int   `json:"errors"`
	Lines     int64 `json:"lines"`
}

// importBatch is the maximum number of artifacts per batch.
const importBatch = 1000

// importBytes is the maximum size of a batch.
const importBytes = 8 << 20

// Import enqueues the artifacts in r, one JSON object per line, plain or compressed with gzip. It reports and skips invalid lines
// and ignores blank lines. An interrupted import can be repeated: existing items count as duplicates.
func Import(ctx context.Context, q *workqueue.Queue, r io.Reader, cfg ImportConfig) (Report, error) {
	if cfg.MaxLine <= 0 {
		cfg.MaxLine = 8 << 20
	}
	var rep Report
	in, err := plain(r)
	if err != nil {
		return rep, err
	}
	batch, size, read := make([]workqueue.Item, 0, importBatch), 0, 0
	flush := func() error {
		added, err := q.Enqueue(ctx, batch...)
		rep.New += added
		if err != nil {
			return fmt.Errorf("import before line %d: %w; repeat the import, which skips enqueued items", rep.Lines+1, err)
		}
		rep.Duplicate += len(batch) - added
		batch, size = batch[:0], 0
		if cfg.Progress != nil {
			cfg.Progress(rep)
		}
		return nil
	}
	bad := func(err error) {
		rep.Errors++
		if cfg.BadLine != nil {
			cfg.BadLine(rep.Lines, err)
		}
	}
	for cfg.Limit <= 0 || read < cfg.Limit {
		if err := ctx.Err(); err != nil {
			return rep, context.Cause(ctx)
		}
		line, err := readLine(in, cfg.MaxLine)
		if errors.Is(err, io.EOF) {
			break
		}
		rep.Lines++
		if errors.Is(err, errLong) {
			bad(fmt.Errorf("longer than %d bytes", cfg.MaxLine))
			continue
		}
		if err != nil {
			rep.Lines--
			return rep, errors.Join(fmt.Errorf("read line %d: %w; the artifacts before it are in the queue", rep.Lines+1, err), flush())
		}
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		it, err := parseLine(line)
		if err == nil {
			err = q.Check(it)
		}
		if err != nil {
			bad(err)
			continue
		}
		if cfg.Doubtful != nil {
			if err := Doubt(it); err != nil {
				cfg.Doubtful(rep.Lines, err)
			}
		}
		read++
		batch = append(batch, it)
		if size += len(line); len(batch) == importBatch || size > importBytes {
			if err := flush(); err != nil {
				return rep, err
			}
		}
	}
	return rep, flush()
}

func parseLine(line []byte) (workqueue.Item, error) {
	if !utf8.Valid(line) {
		return workqueue.Item{}, errors.New("not valid UTF-8")
	}
	return Parse(line)
}

// ErrGzip means that a file starts like gzip but is invalid.
var ErrGzip = errors.New("read gzip")

// plain decompresses gzip and skips a byte order mark.
func plain(r io.Reader) (*bufio.Reader, error) {
	in := bufio.NewReaderSize(r, 64<<10)
	if magic, _ := in.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrGzip, err)
		}
		in = bufio.NewReaderSize(z, 64<<10)
	}
	if mark, _ := in.Peek(3); bytes.Equal(mark, []byte("\xef\xbb\xbf")) {
		_, _ = in.Discard(3)
	}
	return in, nil
}

var errLong = errors.New("the line is too long")

// readLine reads a line of at most n bytes. It skips a longer line and returns errLong.
func readLine(in *bufio.Reader, n int) ([]byte, error) {
	var line []byte
	long := false
	for {
		part, err := in.ReadSlice('\n')
		if !long {
			line = append(line, part...)
		}
		if len(line) > n {
			long, line = true, nil
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && (len(line) > 0 || long), err == nil:
			if long {
				return nil, errLong
			}
			return line, nil
		default:
			return nil, err
		}
	}
}
