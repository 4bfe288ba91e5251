package sites

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"muster/internal/atomicfile"
	"muster/sites/extract"
	"muster/sites/fetch"
	"muster/sites/internal/store"
	"muster/tasks/workqueue"
)

// Failure is a page that was not had.
type Failure struct {
	URL      string      `json:"url"`
	Class    fetch.Class `json:"class"`
	Attempts int         `json:"attempts"`
	Error    string      `json:"error"`
}

// maxSamples bounds the failures that a summary shows; failed.jsonl has all.
const maxSamples = 10

// Counts is what pages came to.
type Counts struct {
	Pages   int                 `json:"pages"`   // fetched and read
	Skipped int                 `json:"skipped"` // gone, forbidden by robots.txt, or beyond the limits of the job
	Errors  int                 `json:"errors"`  // not had
	Invalid int                 `json:"invalid"` // records that did not pass their checks
	ByClass map[fetch.Class]int `json:"by_class,omitempty"`
	Samples []Failure           `json:"samples,omitempty"`
	Groups  []Group             `json:"groups,omitempty"` // of pages that were not had, by why
	Times   times               `json:"times,omitempty"`  // how long pages took
	// Extracted counts the valid records of the pages, those too that were met twice.
	Extracted int   `json:"extracted"`
	Bytes     int64 `json:"bytes"` // of the pages that were read, unpacked
	// Duplicates counts detail pages with the content of another page; DuplicateExample is the addresses of such a pair.
	Duplicates       int    `json:"duplicates,omitempty"`
	DuplicateExample string `json:"duplicate_example,omitempty"`
	// Fields has for type.field how often each alternative hit: "0" the
	// first, "none" when there was no value.
	Fields map[string]map[string]int `json:"fields,omitempty"`
	// Faults has for type.field what was wrong with it, also on pages that
	// were given up because none of their records is valid.
	Faults extract.Faults `json:"faults,omitempty"`
}

// invalidPage is why a page fails whose records are invalid, with what is
// known of them.
type invalidPage struct {
	error
	invalid int
	hits    map[string]map[string]int
	faults  extract.Faults
}

func (p *invalidPage) Unwrap() error { return p.error }

func invalidIn(res extract.Result, err error) error {
	return &invalidPage{err, len(res.Invalid), res.Hits, res.Faults}
}

// book counts a page that is terminal.
func (c *Counts) book(url string, info workqueue.Info, y yield) {
	if c.ByClass == nil {
		c.ByClass = map[fetch.Class]int{}
	}
	switch info.State {
	case workqueue.StateDone:
		c.Pages++
	case workqueue.StateSkipped:
		c.Skipped++
	default:
		c.Errors++
	}
	c.ByClass[y.Class]++
	c.Invalid += y.Invalid
	c.Bytes += int64(y.Bytes)
	if y.Duplicate != "" {
		c.Duplicates++
		c.DuplicateExample = cmp.Or(c.DuplicateExample, url+" and "+y.Duplicate)
	}
	c.addFields(y.Hits, y.Faults)
	for _, n := range y.Records {
		c.Extracted += n
	}
	if y.Took > 0 {
		c.Times.add(time.Duration(y.Took) * time.Millisecond)
	}
	if info.State == workqueue.StateError {
		c.group(Group{Class: y.Class, Error: strings.TrimPrefix(info.Note, string(y.Class)+": "), Pages: 1, Example: url})
	}
	if info.State != workqueue.StateDone && y.Class != fetch.Enough && len(c.Samples) < maxSamples {
		c.Samples = append(c.Samples, Failure{URL: url, Class: y.Class, Attempts: info.Attempts, Error: info.Note})
	}
}

func (c *Counts) addFields(hits map[string]map[string]int, faults extract.Faults) {
	for _, field := range slices.Sorted(maps.Keys(faults)) {
		c.Faults.Add(field, faults[field])
	}
	for field, by := range hits {
		if c.Fields == nil {
			c.Fields = map[string]map[string]int{}
		}
		if c.Fields[field] == nil {
			c.Fields[field] = map[string]int{}
		}
		for hit, n := range by {
			c.Fields[field][hit] += n
		}
	}
}

// add counts what another has counted.
func (c *Counts) add(o Counts) {
	c.Pages += o.Pages
	c.Skipped += o.Skipped
	c.Errors += o.Errors
	c.Invalid += o.Invalid
	c.Duplicates += o.Duplicates
	c.DuplicateExample = cmp.Or(c.DuplicateExample, o.DuplicateExample)
	if c.ByClass == nil {
		c.ByClass = map[fetch.Class]int{}
	}
	for class, n := range o.ByClass {
		c.ByClass[class] += n
	}
	c.addFields(o.Fields, o.Faults)
	c.Extracted += o.Extracted
	c.Bytes += o.Bytes
	for _, g := range o.Groups {
		c.group(g)
	}
	for b, n := range o.Times {
		if c.Times == nil {
			c.Times = times{}
		}
		c.Times[b] += n
	}
	for _, s := range o.Samples {
		if len(c.Samples) < maxSamples {
			c.Samples = append(c.Samples, s)
		}
	}
}

func (c *Counts) firstFailure() string {
	if len(c.Samples) == 0 {
		return "nobody knows why"
	}
	return fmt.Sprintf("%s: %s", c.Samples[0].URL, c.Samples[0].Error)
}

// The statuses of a Summary.
const (
	StatusComplete   = "COMPLETE"   // all listing pages were had, or as much as Limits allow; Errors counts detail pages that were not
	StatusIncomplete = "INCOMPLETE" // nobody knows what else there is; Missing says why
)

// Summary is what became of a scrape.
type Summary struct {
	Site    string         `json:"site"`
	JobID   string         `json:"job_id"`
	Status  string         `json:"status"`
	Records int            `json:"records"`
	ByType  map[string]int `json:"by_type"`
	Changes Changes        `json:"changes"` // since the last job of the site
	Files   []string       `json:"files"`
	Seconds float64        `json:"seconds"`
	Health  Health         `json:"health"`
	Failed  string         `json:"failed,omitempty"`  // the file with the pages that were not had
	Missing []string       `json:"missing,omitempty"` // why it is incomplete: listing pages that were not had, limits
	Limits  []string       `json:"limits,omitempty"`  // of the definition, that ended it: it has what it was to have, and there may be more
	Ways    *Ways          `json:"ways,omitempty"`    // by which proxies the pages came; nil when by none
	// Sessions is why sessions have ended before the job did, and how many; nil when the site has none.
	Sessions map[string]int `json:"sessions,omitempty"`
	Delays   map[string]int `json:"delays,omitempty"`  // how often pages waited, by Delay
	Breaker  string         `json:"breaker,omitempty"` // of the site, when the job ended: closed, open or half_open
	Reason   string         `json:"reason,omitempty"`  // NO_URLS when there was nothing to fetch
	Counts
}

// failure is why the job failed as a whole; nil when it did not.
func (s *Summary) failure() error {
	if s.Pages == 0 && s.Errors > 0 {
		return fmt.Errorf("none of %d pages was had; %s", s.Errors, s.firstFailure())
	}
	return nil
}

// aggregate adds everything up and has the files closed, here or by whoever
// sees them. While they cannot be, it returns later.
func (j *job) aggregate(ctx context.Context, chunks []Counts, lost []string) (Summary, error) {
	sum, ok, err := j.closed(ctx)
	if err != nil {
		return Summary{}, err
	}
	if !ok {
		if sum, err = j.sum(ctx, chunks, lost); err != nil {
			return Summary{}, err
		}
		data, err := json.Marshal(sum)
		if err != nil {
			return Summary{}, fmt.Errorf("encode the summary: %w", err)
		}
		if err := j.rdb.Set(ctx, store.CountedKey(j.run), data, store.Keep).Err(); err != nil {
			return Summary{}, fmt.Errorf("store the counts of job %s: %w", j.run, err)
		}
		switch sum, err = j.closeFiles(ctx, sum); {
		case errors.Is(err, errNotWriter):
			return Summary{}, later{100 * time.Millisecond}
		case err != nil && ctx.Err() == nil:
			// The writer says so. It also closes the job as soon as it can.
			return Summary{}, later{leastRest}
		case err != nil:
			return Summary{}, err
		}
	}
	if err := j.queue.Expire(ctx, store.Keep); err != nil {
		return Summary{}, fmt.Errorf("let the queue expire: %w", err)
	}
	return sum, nil
}

// sum adds up what Redis knows of a job.
func (j *job) sum(ctx context.Context, chunks []Counts, lost []string) (Summary, error) {
	sum := Summary{Site: j.def.Site, JobID: j.run, Status: StatusComplete}
	c, ok, err := store.ReadJSON[collected](ctx, j.rdb, store.CollectedKey(j.id))
	if err == nil && !ok {
		err = fmt.Errorf("what job %s collected is not known any more", j.id)
	}
	if err != nil {
		return Summary{}, err
	}
	sum.Counts = c.Counts
	sum.Missing = c.Cut
	for _, o := range chunks {
		sum.add(o)
	}
	// A chunk that failed as a whole has counted nothing; the queue has.
	stats, err := j.queue.Stats(ctx)
	if err != nil {
		return Summary{}, fmt.Errorf("count pages: %w", err)
	}
	for _, why := range lost {
		sum.Missing = append(sum.Missing, "a chunk was given up: "+why)
	}
	if len(lost) > 0 {
		sum.Pages, sum.Skipped, sum.Errors = int(stats.Done), int(stats.Skipped), int(stats.Error+stats.Open())
	}
	if n := sum.ByClass[fetch.Limit]; n > 0 {
		sum.Missing = append(sum.Missing, fmt.Sprintf("%d pages were left when limits.max_duration had passed", n))
	}
	if j.def.Session != nil {
		if sum.Sessions, err = j.crawler.ends.all(ctx); err != nil {
			return Summary{}, err
		}
	}
	if sum.Delays, err = j.crawler.delays.all(ctx); err != nil {
		return Summary{}, err
	}
	if sum.Ways, err = j.ways(ctx); err != nil {
		return Summary{}, err
	}
	if sum.Breaker, err = j.crawler.breaker.state(ctx); err != nil {
		j.log.Warn("the report lacks the breaker of the site", "error", err)
	}
	if sum.Limits, err = j.crawler.admission.budget.spent(ctx); err != nil {
		return Summary{}, err
	}
	if sum.Pages+sum.Errors+sum.Skipped == 0 {
		sum.Reason = "NO_URLS"
	}
	if len(sum.Missing) > 0 {
		sum.Status = StatusIncomplete
	}
	return sum, nil
}

// writeFailed lists the pages that were not had, with the reasons, in a file
// that appears as a whole.
func (j *job) writeFailed(ctx context.Context) (path string, err error) {
	path = filepath.Join(j.writer.dir, "failed.jsonl")
	err = atomicfile.Write(path, 0o644, func(w io.Writer) error {
		enc := json.NewEncoder(w)
		enc.SetEscapeHTML(false)
		for offset := 0; ; {
			ids, err := j.queue.Failed(ctx, offset, 500)
			if err != nil {
				return fmt.Errorf("list failed pages: %w", err)
			}
			if len(ids) == 0 {
				return j.writer.still(ctx)
			}
			offset += len(ids)
			infos, err := j.results(ctx, ids)
			if err != nil {
				return err
			}
			for _, id := range ids {
				info := infos[id]
				var v visit
				if json.Unmarshal(info.Payload, &v) != nil {
					continue
				}
				if err := enc.Encode(Failure{URL: v.URL, Class: yieldOf(info).Class, Attempts: info.Attempts, Error: info.Note}); err != nil {
					return err
				}
			}
		}
	})
	return path, err
}

// Coverage is, for each type.field, the share of records that have it.
func (c *Counts) Coverage() map[string]float64 {
	shares := map[string]float64{}
	for field, by := range c.Fields {
		all, have := 0, 0
		for hit, n := range by {
			all += n
			if hit != "none" {
				have += n
			}
		}
		if all > 0 {
			shares[field] = float64(have) / float64(all)
		}
	}
	return shares
}

// Drifted lists the fields whose first alternative hit in less than half of
// the records that have the field: a sign that the site was redesigned.
func (c *Counts) Drifted() []string {
	var fields []string
	for field, by := range c.Fields {
		have := 0
		for hit, n := range by {
			if hit != "none" && hit != "default" {
				have += n
			}
		}
		if have >= 10 && by["0"]*2 < have {
			fields = append(fields, field)
		}
	}
	slices.Sort(fields)
	return fields
}
