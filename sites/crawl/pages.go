package crawl

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/url"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/sites/definition"
	"muster/sites/extract"
	"muster/sites/internal/store"
	"muster/sites/report"
	"muster/tasks/workqueue"
)

// pages are the request of a job and its pages, the items of a work queue. Their state is in Redis.
type pages struct {
	id         string // job with the pages
	run        string // workflow; differs from id if it resumes a job
	req        store.Request
	def        *definition.Definition
	extraction string // of def, if it has refetch
	rdb        redis.UniversalClient
	queue      *workqueue.Queue
	log        *slog.Logger
}

// startTime returns the start time of the job.
func (p *pages) startTime() time.Time { return time.UnixMilli(p.req.Began) }

// visit is a page to fetch: the payload of an item.
type visit struct {
	extract.Link
	Depth int `json:"depth,omitempty"` // distance from the start page
}

// yield is the result of a page, stored with its item.
type yield struct {
	report.Yield
	Broken string `json:"broken,omitempty"` // of a sitemap; see extract.Result
	// RetryAfter is the time from which the site allows the next request for a failed page, if known.
	RetryAfter time.Time `json:"retry_after,omitzero"`
	// Repeats is the address of an earlier listing page with the same links and records, if any. Unfollowed is the ID of the next
	// page after this one.
	Repeats    string `json:"repeats,omitempty"`
	Unfollowed string `json:"unfollowed,omitempty"`
	// Deep has the IDs of linked pages beyond limits.max_depth.
	Deep []string `json:"deep,omitempty"`

	next    *visit
	counted bool     // see extract.Result
	links   []visit  // without the next page
	print   string   // of the set of links and records of a listing page, or ""
	via     string   // proxy of the response
	outputs [][]byte // besides records
	types   []string // of the records, in order
}

// itemID returns the identity of a page in a job.
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
		id += fmt.Sprintf("\nstart %d", v.Start) // filters differ between entries of one sitemap
	}
	h := sha256.Sum256([]byte(id))
	return v.Kind[:1] + base64.RawURLEncoding.EncodeToString(h[:12])
}

// original returns the canonical URL of a detail page if it is another detail page of the job on the same host, or nil. Many
// sites name their home page or a missing page as canonical.
func (p *pages) original(ctx context.Context, v visit, doc *extract.Doc) *url.URL {
	if v.Kind != definition.KindDetail || !v.Post.IsZero() {
		return nil
	}
	to := doc.Canonical(p.def)
	if to == nil || p.def.Canonical(to) == p.def.Canonical(doc.Page.URL) {
		return nil
	}
	id := p.itemID(visit{Link: extract.Link{URL: to.String(), Kind: v.Kind}})
	infos, err := p.queue.Get(ctx, id)
	if err != nil {
		p.log.WarnContext(ctx, "cannot check a canonical URL; a duplicate page may be counted", "page", v.URL, "original", to.String(), "error", err)
		return nil
	}
	if id == p.itemID(v) || len(infos) == 0 || infos[0].State == workqueue.StateError || infos[0].State == workqueue.StateSkipped {
		return nil
	}
	return to
}

// items converts pages to items of the queue.
func (p *pages) items(visits []visit) ([]workqueue.Item, error) {
	items := make([]workqueue.Item, len(visits))
	for i, v := range visits {
		items[i] = workqueue.Item{ID: p.itemID(v), Kind: v.Kind}
		v.Kind = "" // the item has it
		var err error
		if items[i].Payload, err = json.Marshal(v); err != nil {
			return nil, fmt.Errorf("encode page: %w", err)
		}
	}
	return items, nil
}

func yieldOf(info workqueue.Info) yield {
	var y yield
	if len(info.Result) == 0 || json.Unmarshal(info.Result, &y) != nil {
		y.Class = "lost"
	}
	return y
}
