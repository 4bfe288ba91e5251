// Package backup writes what the orchestrator keeps as JSON Lines that people
// can read, and restores it.
//
// The first line is a header with the version of the format. Then each line is
// an object with a kind:
//
//	job          its record, usage and last events; its items follow, and its end
//	item         an item of the job, or a stage that takes the job, with its state
//	end          of a job; or why the job could not be read
//	agent        the registration of an agent
//	pipeline     the file of a pipeline
//	paused_site  a site that is paused
//	request      a job to create, as people write it for a new store
//	done         the last line of a whole export
//
// Both directions hold a few hundred items in memory, however many there are.
package backup

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"muster/orchestrator/agent"
	"muster/orchestrator/job"
	"muster/orchestrator/store"
)

// Format is the version of the format that this program writes. It reads this one and those before it.
const Format = 1

// The kinds of lines.
const (
	kindHeader     = "muster-export"
	kindJob        = "job"
	kindItem       = "item"
	kindEnd        = "end"
	kindAgent      = "agent"
	kindPipeline   = "pipeline"
	kindPausedSite = "paused_site"
	kindRequest    = "request"
	kindDone       = "done"
)

// header is the first line.
type header struct {
	Kind    string    `json:"kind"`
	Format  int       `json:"format"`
	Schema  int       `json:"schema,omitempty"` // of the store that was exported
	Created time.Time `json:"created,omitzero"` // when the export began; not given by people who write a file
}

type jobLine struct {
	Kind string `json:"kind"`
	job.Saved
}

type itemLine struct {
	Kind string `json:"kind"`
	job.SavedItem
}

// endLine ends a job.
type endLine struct {
	Kind  string `json:"kind"`
	Job   string `json:"job"`
	Items int    `json:"items"`
	Error string `json:"error,omitempty"` // why the job could not be read: it is not restored
}

type agentLine struct {
	Kind string `json:"kind"`
	agent.Saved
}

type pipelineLine struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
	YAML string `json:"yaml"`
}

type siteLine struct {
	Kind string `json:"kind"`
	Site string `json:"site"`
}

// requestLine is a job to create. Its id is what makes a repeat change nothing.
type requestLine struct {
	Kind      string          `json:"kind"`
	ID        string          `json:"id"`
	Pipeline  string          `json:"pipeline"` // Defaults to the default one.
	Prompt    string          `json:"prompt"`
	Context   json.RawMessage `json:"context"`
	Priority  int             `json:"priority"`
	Labels    []string        `json:"labels"`
	After     []string        `json:"after"`
	OnFailure string          `json:"on_failure"`
	At        time.Time       `json:"at"`
	Cron      string          `json:"cron"`
}

// doneLine is the last line of an export.
type doneLine struct {
	Kind string `json:"kind"`
	Jobs int    `json:"jobs"`
}

// Files are the documents of jobs; *orchestrator.Documents are some.
type Files interface {
	// Open returns an error that wraps fs.ErrNotExist if there is none.
	Open(hash string) (io.ReadCloser, error)
}

// maxLine bounds a line, in bytes.
const maxLine = 64 << 20

// lines reads lines and counts them.
type lines struct {
	r *bufio.Reader
	n int // of the line that was read last
}

// next returns the next line that is not empty, which is valid until the call after it. At the end it returns io.EOF.
func (l *lines) next() ([]byte, error) {
	for {
		l.n++
		var line []byte
		for {
			part, err := l.r.ReadSlice('\n')
			if len(line)+len(part) > maxLine {
				return nil, fmt.Errorf("the line has more than %d bytes", maxLine)
			}
			if err == nil && line == nil {
				line = part
				break
			}
			line = append(line, part...)
			if errors.Is(err, io.EOF) && len(line) > 0 {
				break // without a line break at the end
			}
			if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
				return nil, err
			}
			if err == nil {
				break
			}
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			return line, nil
		}
	}
}

// decode reads a line, and refuses fields that it does not know.
func decode(line []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is something behind the object; write one object on a line")
	}
	return nil
}

// check returns what is wrong with the first line.
func (h header) check() error {
	switch {
	case h.Kind != kindHeader || h.Format < 1:
		return fmt.Errorf(`this is no export: the first line is not as in {"kind":%q,"format":%d}`, kindHeader, Format)
	case h.Format > Format:
		return fmt.Errorf("the export has format %d, written by a newer release; this one knows %d: upgrade this program", h.Format, Format)
	}
	return nil
}

// Store is where an export comes from, or an import goes to.
type Store struct {
	Schema *store.Store
	Jobs   *job.Archive
	Agents *agent.Service
	Sites  Sites
	Files  Files
	// Pipelines returns the files of pipelines that are not shipped, by name.
	Pipelines func() (map[string]string, error)
	// PipelineDir is the folder that pipelines are written to.
	PipelineDir string
}
