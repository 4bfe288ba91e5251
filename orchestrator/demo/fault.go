package demo

import (
	"net/http"
	"time"
)

// A Fault is how a site fails a request, on purpose, before it serves the page.
type Fault string

// The faults a site knows. Every one of them passes: the page comes when it is asked for often enough.
const (
	NoFault     Fault = ""
	TooMany     Fault = "429"       // 429 with Retry-After: 1
	ServerError Fault = "500"       // 500 with an HTML body
	Slow        Fault = "slow"      // the right page, after slowness
	Challenge   Fault = "challenge" // a soft block: a challenge page with status 200
	Empty       Fault = "empty"     // status 200 and nothing
)

// slowness is how long a slow page takes.
const slowness = 1200 * time.Millisecond

// bout is what befalls a path: the first times requests for it meet the fault.
type bout struct {
	fault Fault
	times int
}

// at is the fault that the asked-th request meets, counted from 1. It depends on nothing else, so a
// run can be repeated.
func (b bout) at(asked int) Fault {
	if asked <= b.times {
		return b.fault
	}
	return NoFault
}

// cycle is the order in which faults are dealt out over the pages of a site.
var cycle = []Fault{ServerError, Slow, TooMany, Challenge, Empty}

// deal gives the path with number n, counted from 0, its bout: every gap-th path has one, so that never
// many come in a row, and every other server error comes twice.
func deal(n, gap int) bout {
	if n%gap != gap/2 {
		return bout{}
	}
	turn := n / gap
	b := bout{fault: cycle[turn%len(cycle)], times: 1}
	if b.fault == ServerError && turn/len(cycle)%2 == 1 {
		b.times = 2
	}
	return b
}

// strike serves the fault. It reports whether the request is answered; after a slow one the page is
// still to come.
func (f Fault) strike(w http.ResponseWriter, r *http.Request) (answered bool) {
	switch f {
	case TooMany:
		w.Header().Set("Retry-After", "1")
		serveText(w, http.StatusTooManyRequests, "Too many requests", "You are asking faster than we can pour. Come back in a second.")
	case ServerError:
		serveText(w, http.StatusInternalServerError, "Something broke", "The kettle fell over. We are on it.")
	case Challenge:
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		_, _ = w.Write(challengePage) // a client that left is its own business
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
