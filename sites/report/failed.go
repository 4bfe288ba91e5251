package report

import (
	"time"

	"muster/sites/definition"
	"muster/sites/fetch"
)

// FailedPage is a line of failed.jsonl: a page that was not fetched when a run of its job ended.
type FailedPage struct {
	Status PageStatus `json:"status"`
	Failure
	RetryAfter time.Time       `json:"retry_after,omitzero"` // when the site allows the next request, if it named a time
	Post       definition.Post `json:"post,omitzero"`        // if it is requested by POST
	Item       string          `json:"item"`                 // of the job's queue
}

// PageStatus says what becomes of a page that was not fetched.
type PageStatus string

// The statuses.
const (
	PagePending       PageStatus = "pending"        // the next run of the job may fetch it
	PageCaptchaNeeded PageStatus = "captcha_needed" // a block page stood in its place, such as one with a captcha
	PagePermanent     PageStatus = "permanent"      // it fails in the same way until the page, the definition or a setting changes
	PageResolved      PageStatus = "resolved"       // a later run of the job has fetched it
)

// StatusOf returns the status of a page that failed with a class.
func StatusOf(class fetch.Class) PageStatus {
	switch class {
	case fetch.SoftBlock:
		return PageCaptchaNeeded
	case fetch.Gone, fetch.Robots, fetch.ClientError, fetch.TooBig, fetch.BadType, fetch.Redirect, fetch.Parse, fetch.Address:
		return PagePermanent
	}
	return PagePending
}
