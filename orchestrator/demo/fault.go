package demo

import (
	"net/http"
	"time"
)

// A Fault is an injected failure of a request.
type Fault string

// The faults of a site. All are temporary: the page is served after a few requests.
const (
	NoFault     Fault = ""
	TooMany     Fault = "429"       // 429 with Retry-After: 1
	ServerError Fault = "500"       // 500 with an HTML body
	Slow        Fault = "slow"      // the page after the delay slowness
	Challenge   Fault = "challenge" // soft block: challenge page with status 200
	Empty       Fault = "empty"     // status 200 without a body
)

// slowness is the delay of a slow page. Together with the Retry-After of 429, it determines the duration of the demo.
const slowness = 600 * time.Millisecond

// plan is the fault of a path: the first requests get it.
type plan struct {
	fault Fault
	times int
}

// at returns the fault of the n-th request, starting at 1. It is deterministic.
func (p plan) at(n int) Fault {
	if n <= p.times {
		return p.fault
	}
	return NoFault
}

// cycle is the order of the faults on the pages of a site.
var cycle = []Fault{ServerError, Slow, TooMany, Challenge, Empty}

// planFor returns the plan of the n-th path, starting at 0: every gap-th path fails once, and every second server error occurs
// twice.
func planFor(n, gap int) plan {
	if n%gap != gap/2 {
		return plan{}
	}
	turn := n / gap
	p := plan{fault: cycle[turn%len(cycle)], times: 1}
	if p.fault == ServerError && turn/len(cycle)%2 == 1 {
		p.times = 2
	}
	return p
}

// serve responds to the request with the fault and reports whether it did. After a slow fault the caller must serve the page.
func (f Fault) serve(w http.ResponseWriter, r *http.Request) (done bool) {
	switch f {
	case TooMany:
		w.Header().Set("Retry-After", "1")
		serveText(w, http.StatusTooManyRequests, "Too many requests", "You are asking faster than we can pour. Come back in a second.")
	case ServerError:
		serveText(w, http.StatusInternalServerError, "Something broke", "The kettle fell over. We are on it.")
	case Challenge:
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		_, _ = w.Write(challengePage) // the client may have disconnected
	case Empty:
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Length", "0")
		w.WriteHeader(http.StatusOK)
	case Slow:
		wait := time.NewTimer(slowness)
		defer wait.Stop()
		select {
		case <-wait.C:
			return false
		case <-r.Context().Done():
		}
	default:
		return false
	}
	return true
}
