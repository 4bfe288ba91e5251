// Package artifact turns lines of JSON into items of a work queue, and fetches
// their URLs into a folder.
//
// An artifact is a JSON object with an id, and usually with a URL. [Item] finds
// its resources: its resolver, and the host of its URL, so that limits for both
// hold and the queue needs to know neither. [Import] reads
// a file of them, however long. [Fetcher] is the handler of kind [FetchKind].
package artifact

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"muster/tasks/limit"
	"muster/tasks/workqueue"
)

// FetchKind is the kind of an artifact without one: it is downloaded.
const FetchKind = "http.fetch"

// Resource keys begin with these.
const (
	ResolverKey = "resolver:"
	HostKey     = "host:"
)

// The fields of an artifact's resolver and URL, in the order in which they are
// read.
var (
	resolverFields = []string{"resolver_hint", "resolver", "resolver_name"}
	urlFields      = []string{"url", "source_url", "origin_url", "download_url", "landing_url", "pdf_url"}
	urlLists       = []string{"urls", "landing_urls", "pdf_urls"}
)

// Parse reads an artifact: a JSON object with an id, or an artifact_id.
func Parse(data []byte) (workqueue.Item, error) {
	fields, err := object(data)
	if err != nil {
		return workqueue.Item{}, err
	}
	id := text(fields, "id", "artifact_id")
	if id == "" {
		return workqueue.Item{}, errors.New(`no id; give one in "id" or "artifact_id"`)
	}
	return item(id, data, fields)
}

// Item makes the item of an artifact whose id is known.
func Item(id string, data []byte) (workqueue.Item, error) {
	fields, err := object(data)
	if err != nil {
		return workqueue.Item{}, err
	}
	return item(id, data, fields)
}

func item(id string, data []byte, fields map[string]json.RawMessage) (workqueue.Item, error) {
	it := workqueue.Item{ID: id, Kind: text(fields, "kind"), Payload: bytes.Clone(bytes.TrimSpace(data))}
	if it.Kind == "" {
		it.Kind = FetchKind
	}
	if p, ok := fields["priority"]; ok {
		if err := json.Unmarshal(p, &it.Priority); err != nil {
			return workqueue.Item{}, fmt.Errorf("priority %.40s is not a whole number", p)
		}
	}
	if r := text(fields, resolverFields...); r != "" {
		it.ResourceKeys = append(it.ResourceKeys, ResolverKey+r)
	}
	// Doubt returns what is wrong with a URL.
	if h, _ := limit.ParseHostKey(urlOf(fields)); h != "" {
		it.ResourceKeys = append(it.ResourceKeys, HostKey+strings.ToValidUTF8(h[:min(len(h), maxHost)], ""))
	}
	return it, nil
}

// maxHost is more than the bytes of a host name with its port. A text that is not
// a host is cut to it.
const maxHost = 300

// Doubt returns what is wrong with an item that is enqueued anyway: its URL has
// no host, so that the limit per host is of that URL alone.
func Doubt(it workqueue.Item) error {
	for _, k := range it.ResourceKeys {
		host, ok := strings.CutPrefix(k, HostKey)
		if !ok {
			continue
		}
		if _, err := limit.ParseHostKey(host); err != nil {
			return fmt.Errorf("artifact %.80q: no host in %.80q: %w", it.ID, host, err)
		}
	}
	return nil
}

func object(data []byte) (map[string]json.RawMessage, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		if kind := new(json.UnmarshalTypeError); errors.As(err, &kind) {
			return nil, fmt.Errorf("an artifact is a JSON object, not %s", kind.Value)
		}
		return nil, err
	}
	if fields == nil {
		return nil, errors.New("an artifact is a JSON object, not null")
	}
	return fields, nil
}

// text returns the first of the fields that holds more than blanks.
func text(fields map[string]json.RawMessage, names ...string) string {
	for _, n := range names {
		var s string
		if json.Unmarshal(fields[n], &s) == nil && strings.TrimSpace(s) != "" {
			return strings.TrimSpace(s)
		}
	}
	return ""
}

// urlOf returns the URL of an artifact, "" if it has none.
func urlOf(fields map[string]json.RawMessage) string {
	if u := text(fields, urlFields...); u != "" {
		return u
	}
	for _, n := range urlLists {
		var list []string
		if json.Unmarshal(fields[n], &list) != nil {
			continue
		}
		for _, u := range list {
			if strings.TrimSpace(u) != "" {
				return strings.TrimSpace(u)
			}
		}
	}
	var plan map[string]json.RawMessage
	if json.Unmarshal(fields["plan"], &plan) == nil {
		return text(plan, "url")
	}
	return ""
}
