package demo

import (
	"net/http"
	"time"
)

// A Fault is a way in which a site fails a request on purpose.
type Fault string

// The faults of a site. Each is temporary: the page is served after some requests for it.
const (
	NoFault     Fault = ""
	TooMany     Fault = "429"       // 429 with Retry-After: 1
	ServerError Fault = "500"       // 500 with an HTML body
	Slow        Fault = "slow"      // the right page, after slowness
	Challenge   Fault = "challenge" // a soft block: a challenge page with status 200
	Empty       Fault = "empty"     // status 200 and nothing
)

// slowness is how long a slow page takes. With the Retry-After of 429 it decides how long the demo takes.
const slowness = 600 * time.Millisecond

// plan is how a path fails: the first requests for it get the fault.
type plan struct {
	fault Fault
	times int
}

// at returns the fault of the n-th request, counted from 1. It depends on nothing else, so that every run
// is the same.
func (p plan) at(n int) Fault {
	if n <= p.times {
		return p.fault
	}
	return NoFault
}

// cycle is the order of the faults over the pages of a site.
var cycle = []Fault{ServerError, Slow, TooMany, Challenge, Empty}

// planFor returns the plan of the n-th path, counted from 0: every gap-th path fails once, and every other
// one with a server error twice.
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

// serve answers the request with the fault. It reports whether the request is answered: after a slow one
// the caller serves the page.
func (f Fault) serve(w http.ResponseWriter, r *http.Request) (answered bool) {
	switch f {
	case TooMany:
		w.Header().Set("Retry-After", "1")
		serveText(w, http.StatusTooManyRequests, "Too many requests", "You are asking faster than we can pour. Come back in a second.")
	case ServerError:
		serveText(w, http.StatusInternalServerError, "Something broke", "The kettle fell over. We are on it.")
	case Challenge:
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		_, _ = w.Write(challengePage) // the client may have left
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
