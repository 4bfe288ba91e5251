package monitor

import (
	"encoding/json"
	"io"
	"sync"
	"time"
)

// eventEvery is the minimum interval between progress events of a track.
const eventEvery = 250 * time.Millisecond

// Event is one line of the JSON format.
type Event struct {
	Time    time.Time `json:"time"`
	Event   string    `json:"event"` // start, progress, done, failed
	Job     string    `json:"job"`
	Done    int64     `json:"done"`
	Total   int64     `json:"total"` // 0 while unknown
	Unit    string    `json:"unit,omitempty"`
	Note    string    `json:"note,omitempty"`
	Elapsed float64   `json:"elapsed"` // seconds

	State   string             `json:"state,omitempty"`   // reason for missing progress, or empty
	Numbers map[string]float64 `json:"numbers,omitempty"` // for a scrape: ok, skipped, errors, queued, delayed, records, rate (per second), eta (seconds)
}

// events writes one JSON object per line.
type events struct {
	mu  sync.Mutex // guards the fields below
	w   io.Writer
	enc *json.Encoder
	at  map[*Track]time.Time // time of the last event of a track
}

func newEvents(w io.Writer) *events {
	return &events{w: w, enc: json.NewEncoder(w), at: map[*Track]time.Time{}}
}

func (e *events) Write(p []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.w.Write(p)
}

func (e *events) start(t *Track) { e.emit(t, "start", Progress{}) }
func (e *events) close()         {}

func (e *events) update(t *Track, p Progress) {
	e.mu.Lock()
	recent := time.Since(e.at[t]) < eventEvery
	if !recent {
		e.at[t] = time.Now()
	}
	e.mu.Unlock()
	if !recent {
		e.emit(t, "progress", p)
	}
}

func (e *events) end(t *Track, p Progress, ok bool) {
	if ok {
		e.emit(t, "done", p)
	} else {
		e.emit(t, "failed", p)
	}
}

func (e *events) emit(t *Track, event string, p Progress) {
	took := t.took
	if took == 0 {
		took = time.Since(t.Started)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	// A closed reader must not stop the job.
	_ = e.enc.Encode(Event{
		Time: time.Now().UTC(), Event: event, Job: t.Name, Done: p.Done, Total: p.Total,
		Unit: p.Unit, Note: p.Note, Elapsed: took.Seconds(), State: p.State, Numbers: p.Numbers,
	})
}
