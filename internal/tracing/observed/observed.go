// Package observed has the types of package tracing for pages of sites. It needs no module of OpenTelemetry.
package observed

import "time"

// Page describes the fetch of a page of a site.
type Page struct {
	Site, Kind, URL string
	Item            string // ID in the queue of the job
	Attempt         int    // starting at 1
}

// End is the result of a fetch.
type End struct {
	Status  int           // HTTP status; 0 without a response
	Proxy   string        // proxy ID
	Class   string        // error class
	Delayed bool          // postponed without a request, because of the request rate or a stopping job; not a failure
	Took    time.Duration // response time; 0 without a page
	Records int
	Err     error
}
