package sites

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"muster/sites/definition"
	"muster/sites/fetch"
	"muster/sites/internal/store"
	"muster/sites/report"
	"muster/tasks/workqueue"
)

// errNoStart fails a job whose first pages all failed, after their retries.
var errNoStart = errors.New("no start page could be fetched")

// collected is the result of the listing pages of a job.
type collected struct {
	Counts  report.Counts `json:"counts"`
	Details int           `json:"details"` // detail pages to fetch
	Cut     []string      `json:"cut,omitempty"`
}

// collect walks the listing pages and cuts what they lead to into chunks.
//
// It keeps no state between runs: each run walks the same pages in the same
// order, and reads the stored results of those that are done.
func (j *job) collect(ctx context.Context, worker string) ([]store.Chunk, error) {
	return newWalk(j, worker).collect(ctx)
}

func (w *walk) collect(ctx context.Context) ([]store.Chunk, error) {
	j := w.job
	if err := j.requeue(ctx); err != nil {
		return nil, err
	}
	if err := j.crawler.leases.returnPending(ctx); err != nil {
		return nil, err
	}
	if _, err := j.queue.ExpireWorker(ctx, w.ahead()); err != nil {
		return nil, fmt.Errorf("take over pages: %w", err)
	}
	var front []visit
	for _, p := range j.def.StartPages() {
		v := visit{URL: p.URL, Kind: p.Kind, Post: p.Post}
		if p.Kind == definition.KindSitemap {
			v.Start = p.Start
		}
		if p.Kind == definition.KindDetail {
			w.detail(v)
			continue
		}
		front = append(front, v)
	}
	if err := w.enqueueDetails(ctx); err != nil {
		return nil, err
	}
	// Detail pages are fetched beside the listing pages, so that neither kind
	// waits for all pages of the other.
	atOnce := max(j.def.Politeness.MaxPerDomain/2, 1)
	starts := len(front)
	for len(front) > 0 && !w.enough() {
		if reached, err := j.crawler.admission.budget.spent(ctx); err != nil {
			return nil, err
		} else if len(reached) > 0 {
			break
		}
		n := min(atOnce, len(front))
		next, err := w.wave(ctx, front[:n])
		if err != nil {
			return nil, err
		}
		front = append(front[n:], next...)
		if starts -= n; starts <= 0 && w.sum.Counts.Pages == 0 && len(w.details) == 0 {
			return nil, fmt.Errorf("%w: %s", errNoStart, w.sum.Counts.FirstFailure())
		}
	}
	w.sum.Details = len(w.details)
	stored, err := json.Marshal(w.sum)
	if err != nil {
		return nil, fmt.Errorf("encode the result of the listing pages: %w", err)
	}
	if err := j.rdb.Set(ctx, store.CollectedKey(j.id), stored, store.Keep).Err(); err != nil {
		return nil, fmt.Errorf("store the result of the listing pages: %w", err)
	}
	return j.split(ctx, w.details)
}

// requeue puts the failed pages of the resumed job back into the queue, once.
func (j *job) requeue(ctx context.Context) error {
	if j.req.Resume == "" {
		return nil
	}
	done, err := j.rdb.Exists(ctx, store.ResumedKey(j.run)).Result()
	if err != nil {
		return fmt.Errorf("resume job %s: %w", j.id, err)
	}
	if done > 0 {
		return nil
	}
	ids, err := j.queue.Requeue(ctx, workqueue.RequeueOptions{})
	if err != nil {
		return fmt.Errorf("put back the failed pages of job %s: %w", j.id, err)
	}
	j.log.InfoContext(ctx, "failed pages are tried again", "pages", len(ids))
	if err := j.rdb.Set(ctx, store.ResumedKey(j.run), len(ids), store.Keep).Err(); err != nil {
		return fmt.Errorf("resume job %s: %w", j.id, err)
	}
	return nil
}

// walk is one run over the listing pages of a job.
type walk struct {
	*job
	worker  string
	began   time.Time
	slice   timeslice           // begins with the first page that no earlier walk has reached
	seen    map[pageID]struct{} // pages that were found
	prints  map[string]bool     // of pages, to recognize repeated ones
	records map[string]int      // records by type, from listing pages
	details []pageID            // detail pages, in the order in which they were found
	fresh   []visit             // the last of details, which are not in the queue yet
	fetched int                 // how many of details this walk has fetched
	sum     collected
}

func newWalk(j *job, worker string) *walk {
	return &walk{
		job: j, worker: worker, began: time.Now(), slice: timeslice{length: collectSlice},
		seen: map[pageID]struct{}{}, prints: map[string]bool{}, records: map[string]int{},
	}
}

// wave fetches listing pages and returns the listing pages that they lead to.
func (w *walk) wave(ctx context.Context, front []visit) ([]visit, error) {
	var fresh []visit
	for _, v := range front {
		id := pageIDOf(w.itemID(v))
		if _, ok := w.seen[id]; ok {
			continue
		}
		if len(w.seen) >= w.def.Limits.MaxPages {
			w.cut(fmt.Sprintf("limits.max_pages (%d) was reached", w.def.Limits.MaxPages))
			break
		}
		w.seen[id] = struct{}{}
		fresh = append(fresh, v)
	}
	ids := make([]string, len(fresh))
	for i, v := range fresh {
		ids[i] = w.itemID(v)
	}
	infos, err := w.results(ctx, ids)
	if err != nil {
		return nil, err
	}
	if over(infos, ids) {
		w.fetched = min(w.fetched+w.beside(len(ids)), len(w.details)) // as far as the earlier walk came
	} else {
		if w.slice.over() {
			return nil, later{}
		}
		w.beginSlice()
		if err := w.fetch(ctx, ids, fresh); err != nil {
			return nil, err
		}
		if infos, err = w.results(ctx, ids); err != nil {
			return nil, err
		}
	}
	var next []visit
	for i, id := range ids {
		next = append(next, w.add(fresh[i], infos[id])...)
	}
	return next, w.enqueueDetails(ctx)
}

// beginSlice begins the time for new pages at the first call. The time is long
// compared with what it took to read the pages of earlier walks again.
func (w *walk) beginSlice() {
	if w.slice.began.IsZero() {
		w.slice.length = max(w.slice.length, 10*time.Since(w.began))
		w.slice.begin()
	}
}

// over reports whether all pages are in the queue and terminal.
func over(infos map[string]workqueue.Info, ids []string) bool {
	return !slices.ContainsFunc(ids, func(id string) bool { return !infos[id].State.Terminal() })
}

// fetch fetches listing pages until all are terminal, and beside them detail
// pages.
func (w *walk) fetch(ctx context.Context, ids []string, pages []visit) error {
	if err := w.enqueueAs(ctx, ids, pages); err != nil {
		return err
	}
	nothing := func(yield) ([]string, error) { return nil, nil }
	var g errgroup.Group
	if len(ids) < w.def.Politeness.MaxPerDomain {
		g.Go(func() error { return w.fetchDetails(ctx, w.beside(len(ids))) })
	}
	if err := errors.Join(w.crawler.work(ctx, w.worker, ids, len(ids), &w.slice, nothing), g.Wait()); err != nil {
		return err
	}
	if len(ids) >= w.def.Politeness.MaxPerDomain {
		return w.fetchDetails(ctx, 1)
	}
	return nil
}

// beside returns how many detail pages are fetched beside a number of listing
// pages.
func (w *walk) beside(lists int) int { return max(w.def.Politeness.MaxPerDomain-lists, 1) }

// enqueueDetails puts the detail pages that were found into the queue.
func (w *walk) enqueueDetails(ctx context.Context) error {
	err := w.enqueueAs(ctx, itemIDs(w.details[len(w.details)-len(w.fresh):]), w.fresh)
	w.fresh = nil
	return err
}

// ahead is the name under which fetchDetails leases: work takes over the leases
// of w.worker.
func (w *walk) ahead() string { return w.worker + " ahead" }

// fetchDetails fetches up to n detail pages. Those that must wait, or fail, are
// left to their chunks.
func (w *walk) fetchDetails(ctx context.Context, n int) error {
	n = min(n, len(w.details)-w.fetched)
	if n <= 0 {
		return nil
	}
	if d, err := w.crawler.admission.backlog(ctx); err != nil || d.action != admit {
		return nil // a chunk returns the error
	}
	leases, _, _, err := w.queue.LeaseIDs(ctx, w.ahead(), itemIDs(w.details[w.fetched:w.fetched+n]))
	if err != nil {
		return fmt.Errorf("lease pages: %w", err)
	}
	w.fetched += n
	if _, err := w.crawler.batch(ctx, leases, n); err != nil && !errors.As(err, new(later)) {
		return err
	}
	return nil
}

// add counts a terminal listing page and returns the listing pages it leads to.
func (w *walk) add(v visit, info workqueue.Info) []visit {
	y := yieldOf(info) // of a sitemap it may be large
	p := pageOf(v.URL, info, y)
	p.End = isGoneEnd(v, y)
	w.sum.Counts.Add(p)
	if info.State != workqueue.StateDone {
		if info.State == workqueue.StateError || !p.End && y.Class != fetch.Enough {
			w.cut("listing page " + v.URL + " could not be fetched: " + info.Note)
		}
		return nil
	}
	news := !w.prints[y.Print]
	w.prints[y.Print] = true
	var next []visit
	fresh := 0
	for _, l := range y.Links {
		if l.Kind != definition.KindDetail {
			next = append(next, l)
			continue
		}
		if w.detail(l) {
			fresh++
		}
	}
	records := 0
	for typ, n := range y.Records {
		w.records[typ] += n
		records += n
	}
	if y.Next != nil && (!y.Counted || (news && fresh+records > 0)) {
		to := *y.Next
		if !news {
			to.Idle = v.Idle + 1
		}
		if to.Idle < maxIdle {
			next = append(next, to)
		} else {
			w.cut(fmt.Sprintf("%d listing pages in a row, up to %s, brought nothing new", maxIdle, v.URL))
		}
	}
	return next
}

// maxIdle ends an endless chain of listing pages without anything new, such as
// a calendar.
const maxIdle = 20

// isGoneEnd reports whether a counted listing page does not exist because the
// count has ended.
func isGoneEnd(v visit, y yield) bool {
	return v.N > 0 && y.Class == fetch.Gone
}

// detail adds a detail page, unless the limits forbid it, and reports whether the
// page was new.
func (w *walk) detail(v visit) bool {
	id := pageIDOf(w.itemID(v))
	if _, ok := w.seen[id]; ok {
		return false
	}
	if w.req.Limit > 0 && len(w.details) >= w.req.Limit {
		return true // new, and beyond the limit
	}
	if len(w.seen) >= w.def.Limits.MaxPages {
		w.cut(fmt.Sprintf("limits.max_pages (%d) was reached", w.def.Limits.MaxPages))
		return false
	}
	w.seen[id] = struct{}{}
	w.details = append(w.details, id)
	w.fresh = append(w.fresh, v)
	return true
}

// cut notes why the job is incomplete.
func (w *walk) cut(why string) {
	if !slices.Contains(w.sum.Cut, why) && len(w.sum.Cut) < 20 {
		w.sum.Cut = append(w.sum.Cut, why)
	}
}

// enough reports whether the limit of the scrape is reached.
func (w *walk) enough() bool {
	limit := w.req.Limit
	if limit == 0 {
		return false
	}
	sitemaps := slices.ContainsFunc(w.def.Start, func(s definition.Start) bool { return s.Sitemap != "" })
	if (sitemaps || len(w.def.Listing.Links) > 0) && len(w.details) < limit {
		return false
	}
	for _, r := range w.def.RecordsFrom(definition.KindListing) {
		if w.records[r.Name] < limit {
			return false
		}
	}
	return true
}

// chunk fetches the pages of a chunk and what they lead to.
func (j *job) chunk(ctx context.Context, worker string, c store.Chunk) (report.Counts, error) {
	all, err := j.pageIDs(ctx, c)
	if err != nil {
		return report.Counts{}, err
	}
	known := map[string]bool{}
	for _, id := range all {
		known[id] = true
	}
	grow := func(y yield) ([]string, error) {
		var more []string
		for _, v := range y.Links {
			if id := j.itemID(v); !known[id] {
				known[id] = true
				all = append(all, id)
				more = append(more, id)
			}
		}
		return more, nil
	}
	// Pages that an earlier run has fetched may have led to others.
	for at := 0; at < len(all); {
		part := all[at:]
		at = len(all)
		infos, err := j.results(ctx, part)
		if err != nil {
			return report.Counts{}, err
		}
		for _, id := range part {
			if info := infos[id]; info.State == workqueue.StateDone {
				if _, err := grow(yieldOf(info)); err != nil {
					return report.Counts{}, err
				}
			}
		}
	}
	slice := &timeslice{length: chunkSlice}
	slice.begin()
	if err := j.crawler.work(ctx, worker, slices.Clone(all), 1, slice, grow); err != nil {
		return report.Counts{}, err
	}
	infos, err := j.results(ctx, all)
	if err != nil {
		return report.Counts{}, err
	}
	var counts report.Counts
	for _, id := range all {
		var v visit
		if json.Unmarshal(infos[id].Payload, &v) == nil {
			counts.Add(pageOf(v.URL, infos[id], yieldOf(infos[id])))
		}
	}
	return counts, nil
}
