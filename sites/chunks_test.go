package sites

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"testing"

	"muster/sites/internal/store"
	"muster/tasks/redistest"
)

// A job may have more pages than a task could answer with.
func TestChunksOfMany(t *testing.T) {
	t.Parallel()
	site := newShop(t, 1, 1)
	j := begin(t, newService(t, redistest.New(t)), "j1", site.definition(t, ""), ScrapeOptions{BaseURL: site.URL})
	pages := make([]pageID, 700_001)
	for i := range pages {
		pages[i][0] = 'd'
		binary.BigEndian.PutUint64(pages[i][1:], uint64(i))
	}
	chunks, err := j.split(t.Context(), pages)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := json.Marshal(chunks)
	if err != nil || len(answer) > 1<<20 || len(chunks) > maxChunks {
		t.Errorf("got %d chunks in %d bytes, error %v, want at most %d in 1 MiB", len(chunks), len(answer), err, maxChunks)
	}
	at := 0
	for i, c := range chunks {
		if i%100 == 0 || i == len(chunks)-1 {
			ids, err := j.pageIDs(t.Context(), c)
			if err != nil || ids[0] != pages[at].String() || ids[len(ids)-1] != pages[at+c.Pages-1].String() {
				t.Fatalf("chunk %d: got %d ids, error %v, want %d from %s", i, len(ids), err, c.Pages, pages[at])
			}
		}
		at += c.Pages
	}
	if at != len(pages) {
		t.Errorf("the chunks have %d pages, want %d", at, len(pages))
	}
	if _, err := j.chunk(t.Context(), "chunk", store.Chunk{Part: len(chunks), Pages: 1}); !errors.Is(err, errNoChunk) {
		t.Errorf("got %v, want that the chunk is not known", err)
	}
}
