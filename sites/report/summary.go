// Package report computes the result of a scrape: the totals of its pages and records, the health of the site, and a text of
// both.
//
// It uses only the arguments of its functions and reads neither Redis nor files.
package report

import (
	"time"

	"muster/sites/definition"
	"muster/sites/fetch"
)

// Statuses of a Summary.
const (
	StatusComplete   = "COMPLETE"   // all required pages were fetched; Errors counts failed detail pages
	StatusIncomplete = "INCOMPLETE" // an unknown number of pages is missing; Missing has the reasons
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
	Failed  string         `json:"failed,omitempty"`  // file with the failed pages
	Missing []string       `json:"missing,omitempty"` // reasons for INCOMPLETE: failed listing pages, and limits with the number of remaining pages
	Limits  []string       `json:"limits,omitempty"`  // limits of the definition that ended the job; the site may have more
	Proxies *ProxyUsage    `json:"proxies,omitempty"` // nil if no proxy was used
	// Sessions counts ended sessions by reason; nil if the site has none.
	Sessions map[string]int `json:"sessions,omitempty"`
	Delays   map[string]int `json:"delays,omitempty"`           // number of waits of pages, by crawl.Delay
	Breaker  string         `json:"breaker,omitempty"`          // at the end of the job: closed, open or half_open
	Reason   string         `json:"reason,omitempty"`           // NO_URLS if there was nothing to fetch
	Response *Percentiles   `json:"response_seconds,omitempty"` // nil without a fetched page
	Counts
}

// Percentiles are response times in seconds.
type Percentiles struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P95  float64 `json:"p95"`
	P99  float64 `json:"p99"`
}

// Changes counts records by their change since the last job.
type Changes struct {
	New       int    `json:"new"`
	Changed   int    `json:"changed"`
	Unchanged int    `json:"unchanged"`
	Gone      int    `json:"gone"`
	File      string `json:"file,omitempty"` // file of new, changed and missing records, with the changed fields
}

// HasEverything reports whether records that are missing from the job no longer exist on the site.
func (s *Summary) HasEverything() bool {
	return s.Status == StatusComplete && s.Errors == 0 && len(s.Limits) == 0 && s.Invalid*20 <= s.Records
}

// Direct is the reason why a scrape uses no proxies. If it is empty, the definition and the settings of the worker decide.
type Direct string

// Reasons for a scrape without proxies.
const (
	// DirectAsked means that the sender requested it. All workers obey.
	DirectAsked Direct = "asked"
	// DirectUnproxied means that the sender has no proxies and the definition has no fallback. A worker with proxies uses them.
	DirectUnproxied Direct = "unproxied"
)

// FailedPage is a line of failed.jsonl: a page that had failed when a run of its job ended.
type FailedPage struct {
	Status PageStatus `json:"status"`
	Failure
	RetryAfter time.Time       `json:"retry_after,omitzero"` // from Retry-After of the site, if known
	Post       definition.Post `json:"post,omitzero"`        // body of a POST
	Item       string          `json:"item"`                 // ID in the job's queue
}

// PageStatus is the further processing of a failed page.
type PageStatus string

// Statuses of failed pages.
const (
	PagePending       PageStatus = "pending"        // the next run of the job may fetch it
	PageCaptchaNeeded PageStatus = "captcha_needed" // replaced by a block page, such as a captcha
	PagePermanent     PageStatus = "permanent"      // fails until the page, the definition or a setting changes
	PageResolved      PageStatus = "resolved"       // fetched by a later run of the job
)

// StatusOf returns the status of a page with a failure class.
func StatusOf(class fetch.Class) PageStatus {
	switch class {
	case fetch.SoftBlock:
		return PageCaptchaNeeded
	case fetch.Gone, fetch.Robots, fetch.ClientError, fetch.TooBig, fetch.BadType, fetch.Redirect, fetch.Parse, fetch.Address:
		return PagePermanent
	}
	return PagePending
}
