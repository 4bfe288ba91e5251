// Package artifact converts lines of JSON to items of a work queue, and downloads their URLs to a directory.
//
// An artifact is a JSON object with an ID, and usually with a URL. [Item] determines the resources of an artifact, its resolver
// and the host of its URL, to which the limits of the queue apply. [Import] reads a file of artifacts of any length. [Fetcher]
// handles items of kind [FetchKind].
package artifact

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"muster/internal/limit"
	"muster/tasks/workqueue"
)

// FetchKind is the default kind of an artifact, which is downloaded.
const FetchKind = "http.fetch"

// Prefixes of resource keys.
const (
	ResolverKey = "resolver:"
	HostKey     = "host:"
)

// The fields of the resolver and the URL of an artifact, in order of precedence.
var (
	resolverFields = []string{"resolver_hint", "resolver", "resolver_name"}
	urlFields      = []string{"url", "source_url", "origin_url", "download_url", "landing_url", "pdf_url"}
	urlLists       = []string{"urls", "landing_urls", "pdf_urls"}
)

// Parse parses an artifact: a JSON object with the field id or artifact_id.
func Parse(data []byte) (workqueue.Item, error) {
	fields, err := object(data)
	if err != nil {
		return workqueue.Item{}, err
	}
	id := text(fields, "id", "artifact_id")
	if id == "" {
		return workqueue.Item{}, errors.New(`no ID; set "id" or "artifact_id"`)
	}
	return item(id, data, fields)
}

// Item returns the queue item of an artifact with a known ID.
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
			return workqueue.Item{}, fmt.Errorf("invalid priority %.40s: must be an integer", p)
		}
	}
	if r := text(fields, resolverFields...); r != "" {
		it.ResourceKeys = append(it.ResourceKeys, ResolverKey+r)
	}
	// Errors of the URL are returned by Doubt.
	if h, _ := limit.ParseHostKey(urlOf(fields)); h != "" {
		it.ResourceKeys = append(it.ResourceKeys, HostKey+strings.ToValidUTF8(h[:min(len(h), maxHost)], ""))
	}
	return it, nil
}

// maxHost is larger than any host name with port. A string that is not a host is truncated to it.
const maxHost = 300

// Doubt returns an error for an enqueued item whose URL has no host. The limit per host does not apply to such an item.
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
			return nil, fmt.Errorf("an artifact must be a JSON object, not %s", kind.Value)
		}
		return nil, err
	}
	if fields == nil {
		return nil, errors.New("an artifact must be a JSON object, not null")
	}
	return fields, nil
}

// text returns the first nonblank string among the named fields.
func text(fields map[string]json.RawMessage, names ...string) string {
	for _, n := range names {
		var s string
		if json.Unmarshal(fields[n], &s) == nil && strings.TrimSpace(s) != "" {
			return strings.TrimSpace(s)
		}
	}
	return ""
}

// urlOf returns the URL of an artifact, or "".
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
