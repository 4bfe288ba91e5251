package store

import (
	"muster/sites/extract"
	"muster/sites/fetch"
	"muster/sites/report"
)

// PageType is the type of a [Page] among the outputs of a job and the ledgers of its site. Types of records cannot have this name.
const PageType = "_page"

// Page is the state of a detail page in a site's ledger: what a later job needs to keep the records of the page without fetching it.
type Page struct {
	Type       string         `json:"_type"`           // PageType
	ID         string         `json:"_key"`            // in the queues of jobs
	Extraction string         `json:"extraction"`      // see definition.Extraction
	At         int64          `json:"at"`              // last response, in unix milliseconds
	Carry      string         `json:"carry,omitempty"` // hash of the carried values
	Records    []Ref          `json:"records,omitempty"`
	Links      []extract.Link `json:"links,omitempty"`
	Yield      report.Yield   `json:"yield"`
	fetch.Validators
}

// FileType is the type of a [File] among the outputs of a job.
const FileType = "_file"

// File is a downloaded file.
type File struct {
	Type string `json:"_type"` // FileType
	Name string `json:"_key"`
	Data []byte `json:"_data"`
}

// Ref is an output of a job: the record in the ledger of its type.
type Ref struct {
	Type string `json:"_type"`
	Key  string `json:"_key"`
	Same bool   `json:"_same,omitempty"` // distinguishes the output from a record
}
