// Package report says what became of the scrape of a site: the totals of its
// pages and records, the health of the site, and both as a text for people.
//
// It is computed from what the caller passes in; nothing here reads Redis or
// files.
package report

// The statuses of a Summary.
const (
	StatusComplete   = "COMPLETE"   // all pages that are wanted were fetched; Errors counts detail pages that were not
	StatusIncomplete = "INCOMPLETE" // it is not known what else there is; Missing says why
)

// Summary is the result of a scrape.
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
	Failed  string         `json:"failed,omitempty"`  // the file with the pages that were not fetched
	Missing []string       `json:"missing,omitempty"` // why it is incomplete: listing pages that were not fetched, and limits with the number of pages left
	Limits  []string       `json:"limits,omitempty"`  // of the definition, that ended it: it has all that it may have, and there may be more
	Proxies *ProxyUsage    `json:"ways,omitempty"`    // nil when no proxy was used
	// Sessions is why sessions have ended before the job did, and how many; nil when the site has none.
	Sessions map[string]int `json:"sessions,omitempty"`
	Delays   map[string]int `json:"delays,omitempty"`  // how often pages waited, by sites.Delay
	Breaker  string         `json:"breaker,omitempty"` // of the site, when the job ended: closed, open or half_open
	Reason   string         `json:"reason,omitempty"`  // NO_URLS when there was nothing to fetch
	// Response has what Times has, in seconds.
	Response *Percentiles `json:"response_seconds,omitempty"`
	Counts
}

// Percentiles are response times in seconds, to 10 %.
type Percentiles struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P95  float64 `json:"p95"`
	P99  float64 `json:"p99"`
}

// Changes counts records by what became of them since the last job.
type Changes struct {
	New       int    `json:"new"`
	Changed   int    `json:"changed"`
	Unchanged int    `json:"unchanged"`
	Gone      int    `json:"gone"`
	File      string `json:"file,omitempty"` // with what is new, changed or gone, and the fields that differ
}

// HasEverything reports whether records that the job does not have no longer
// exist on the site.
func (s *Summary) HasEverything() bool {
	return s.Status == StatusComplete && s.Errors == 0 && len(s.Limits) == 0 && s.Invalid*20 <= s.Records
}
