package sites

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/sites/definition"
	"muster/sites/extract"
	"muster/sites/fetch"
	"muster/sites/internal/store"
	"muster/tasks/workqueue"
)

// pages are the request of a job and its pages, which are the items of a work
// queue. Their state is in Redis.
type pages struct {
	id    string // of the job that has the pages
	run   string // of the workflow; the same unless it resumes another
	req   store.Request
	def   *definition.Definition
	rdb   redis.UniversalClient
	queue *workqueue.Queue
	log   *slog.Logger
}

// began is when the job began.
func (p *pages) began() time.Time { return time.UnixMilli(p.req.Began) }

// visit is a page to fetch: the payload of an item.
type visit struct {
	URL   string `json:"url"`
	Kind  string `json:"kind"`
	N     int    `json:"n,omitempty"`
	Depth int    `json:"depth,omitempty"`
	Start int    `json:"start,omitempty"` // of a sitemap: see definition.InSitemap
	Idle  int    `json:"idle,omitempty"`  // how many listing pages before it in its chain had nothing new

	Post definition.Post `json:"post,omitzero"` // how it is requested
}

// yield is the result of a page, which is stored with its item.
type yield struct {
	Class   fetch.Class    `json:"class"`
	Next    *visit         `json:"next,omitempty"`
	Counted bool           `json:"counted,omitempty"`
	Links   []visit        `json:"links,omitempty"`
	Records map[string]int `json:"records,omitempty"` // by type
	Invalid int            `json:"invalid,omitempty"`
	Took    int64          `json:"took,omitempty"`  // milliseconds; see extract.Page
	Print   string         `json:"print,omitempty"` // of records and links, to recognize repeated pages
	// Hits and Faults are the field coverage of the page; see extract.Result.
	Hits   map[string]map[string]int `json:"hits,omitempty"`
	Faults extract.Faults            `json:"faults,omitempty"`
	Bytes  int                       `json:"bytes,omitempty"` // of the page, unpacked
	// RetryAfter is when the site allows the next request for a failed page, if it named a time.
	RetryAfter time.Time `json:"retry_after,omitzero"`
	// Duplicate is the address of a page with the same content, or "".
	Duplicate string   `json:"duplicate,omitempty"`
	via       string   // the proxy that it came through
	types     []string // of its records, in their order
}

// itemID is the identity of a page in a job.
func (p *pages) itemID(v visit) string {
	canonical := v.URL
	if u, err := url.Parse(v.URL); err == nil {
		canonical = p.def.Canonical(u)
	}
	id := "GET " + canonical
	if !v.Post.IsZero() {
		id = "POST " + canonical + "\n" + v.Post.Type + "\n" + v.Post.Text
	}
	if v.Start > 1 {
		id += fmt.Sprintf("\nstart %d", v.Start) // which other URLs of the same sitemap may be fetched for
	}
	h := sha256.Sum256([]byte(id))
	return v.Kind[:1] + hex.EncodeToString(h[:12])
}

func item(id string, v visit) (workqueue.Item, error) {
	payload, err := json.Marshal(v)
	if err != nil {
		return workqueue.Item{}, fmt.Errorf("encode page: %w", err)
	}
	return workqueue.Item{ID: id, Kind: v.Kind, Payload: payload}, nil
}

// enqueue puts pages into the queue and returns their ids.
func (p *pages) enqueue(ctx context.Context, visits []visit) ([]string, error) {
	ids := make([]string, len(visits))
	for i, v := range visits {
		ids[i] = p.itemID(v)
	}
	return ids, p.enqueueAs(ctx, ids, visits)
}

// enqueueAs is enqueue of pages whose ids are known.
func (p *pages) enqueueAs(ctx context.Context, ids []string, visits []visit) error {
	for at := 0; at < len(visits); at += enqueueBatch {
		end := min(at+enqueueBatch, len(visits))
		items := make([]workqueue.Item, 0, end-at)
		for i := at; i < end; i++ {
			item, err := item(ids[i], visits[i])
			if err != nil {
				return err
			}
			items = append(items, item)
		}
		if _, err := p.queue.Enqueue(ctx, items...); err != nil {
			return fmt.Errorf("store pages to fetch: %w", err)
		}
	}
	return nil
}

// enqueueBatch is how many pages are put into the queue at a time.
const enqueueBatch = 5000

// results reads the items of pages, by id.
func (p *pages) results(ctx context.Context, ids []string) (map[string]workqueue.Info, error) {
	infos := make(map[string]workqueue.Info, len(ids))
	for part := range slices.Chunk(ids, 500) {
		got, err := p.queue.Get(ctx, part...)
		if err != nil {
			return nil, fmt.Errorf("read pages: %w", err)
		}
		for _, info := range got {
			infos[info.ID] = info
		}
	}
	return infos, nil
}

func yieldOf(info workqueue.Info) yield {
	var y yield
	if len(info.Result) == 0 || json.Unmarshal(info.Result, &y) != nil {
		y.Class = "lost"
	}
	return y
}
