package report

import (
	"time"

	"muster/sites/definition"
	"muster/sites/fetch"
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
