package sites

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"muster/sites/definition"
	"muster/sites/internal/store"
)

// maxChunks bounds the chunks of a job: a million pages must not become a hundred
// thousand tasks.
const maxChunks = 2000

// chunkSize is how many pages a chunk has.
func chunkSize(def *definition.Definition) int {
	if n := def.Politeness.MaxPerDomain * 10; n >= 10 {
		return min(n, 200)
	}
	return 25
}

// pageID is the id of an item in few bytes: a job may have a million.
type pageID [13]byte

func pageIDOf(id string) (p pageID) {
	p[0] = id[0]
	_, _ = hex.Decode(p[1:], []byte(id[1:])) // made by itemID
	return p
}

func (p pageID) String() string { return string(p[:1]) + hex.EncodeToString(p[1:]) }

func itemIDs(pages []pageID) []string {
	ids := make([]string, len(pages))
	for i, p := range pages {
		ids[i] = p.String()
	}
	return ids
}

// split cuts pages into chunks and stores the pages of each. A second call with
// the same pages changes nothing.
func (j *job) split(ctx context.Context, pages []pageID) ([]store.Chunk, error) {
	chunks := []store.Chunk{}
	size := max(chunkSize(j.def), (len(pages)+maxChunks-1)/maxChunks)
	pipe := j.rdb.Pipeline()
	flush := func() error {
		pipe.Expire(ctx, store.ChunksKey(j.run), store.Keep)
		if _, err := pipe.Exec(ctx); err != nil {
			return fmt.Errorf("store the chunks of job %s: %w", j.run, err)
		}
		return nil
	}
	for at := 0; at < len(pages); at += size {
		part := pages[at:min(at+size, len(pages))]
		packed := make([]byte, 0, len(part)*len(pageID{}))
		for _, p := range part {
			packed = append(packed, p[:]...)
		}
		pipe.HSet(ctx, store.ChunksKey(j.run), strconv.Itoa(len(chunks)), packed)
		chunks = append(chunks, store.Chunk{Site: j.def.Site, Part: len(chunks), Pages: len(part)})
		if pipe.Len() == 100 {
			if err := flush(); err != nil {
				return nil, err
			}
		}
	}
	return chunks, flush()
}

// errNoChunk fails a chunk whose list of pages has expired.
var errNoChunk = errors.New("the list of its pages has expired; resume the job")

// pageIDs returns the ids of the pages of a chunk.
func (j *job) pageIDs(ctx context.Context, c store.Chunk) ([]string, error) {
	packed, err := j.rdb.HGet(ctx, store.ChunksKey(j.run), strconv.Itoa(c.Part)).Bytes()
	size := len(pageID{})
	if errors.Is(err, redis.Nil) || err == nil && len(packed) != c.Pages*size {
		return nil, fmt.Errorf("chunk %d of job %s: %w", c.Part, j.run, errNoChunk)
	}
	if err != nil {
		return nil, fmt.Errorf("read chunk %d of job %s: %w", c.Part, j.run, err)
	}
	ids := make([]string, c.Pages)
	for i := range ids {
		ids[i] = pageID(packed[i*size:]).String()
	}
	return ids, nil
}
