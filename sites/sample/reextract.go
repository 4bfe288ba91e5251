package sample

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"muster/sites/definition"
	"muster/sites/extract"
)

// Difference is a difference between a sample and the current extraction of its page.
type Difference struct {
	Sample string `json:"sample"`
	What   string `json:"what"` // for example: product 3 price, next, links
	Want   string `json:"want"`
	Got    string `json:"got"`
}

// Test extracts the pages of all samples in a directory again. It returns the names of the samples, their optional fields with
// unparsable text, and the differences. A directory without samples is an error.
func Test(def *definition.Definition, dir string) (names []string, unparsed map[string][]string, diffs []Difference, err error) {
	unparsed = map[string][]string{}
	err = each(dir, func(name, path string) error {
		want, got, rerr := reextract(def, path)
		names = append(names, name)
		if len(got.Unparsed) > 0 {
			unparsed[name] = got.Unparsed
		}
		if rerr != nil {
			var broken *brokenError
			if errors.As(rerr, &broken) {
				return rerr
			}
			diffs = append(diffs, Difference{Sample: name, What: "page", Want: "readable", Got: rerr.Error()})
			return nil
		}
		for _, d := range compare(want, got.Sample) {
			d.Sample = name
			diffs = append(diffs, d)
		}
		return nil
	})
	return names, unparsed, diffs, err
}

// Accept replaces the samples in a directory by the current results and returns their names.
func Accept(def *definition.Definition, dir string) (names []string, err error) {
	err = each(dir, func(name, path string) error {
		_, got, err := reextract(def, path)
		if err != nil {
			return err
		}
		names = append(names, name)
		return got.write(path + ".json")
	})
	return names, err
}

// each calls fn with the name of every sample in a directory, and with its path without the extension.
func each(dir string, fn func(name, path string) error) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("list samples: %w", err)
	}
	found := false
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), ".json")
		if !ok || e.IsDir() {
			continue
		}
		found = true
		if err := fn(name, filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("sample %s: %w", filepath.Join(dir, name+".json"), err)
		}
	}
	if !found {
		return fmt.Errorf("no samples in %s; save one with muster sites test --capture URL", dir)
	}
	return nil
}

// brokenError is the error of an invalid sample.
type brokenError struct{ error }

func (e *brokenError) Unwrap() error { return e.error }

// reextract reads a sample and extracts its page again.
func reextract(def *definition.Definition, path string) (want Sample, got View, err error) {
	text, err := os.ReadFile(path + ".json")
	if err != nil {
		return want, got, &brokenError{err}
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&want); err != nil {
		return want, got, &brokenError{fmt.Errorf("invalid sample: %w", err)}
	}
	body, err := os.ReadFile(path + ".page")
	if err != nil {
		return want, got, &brokenError{fmt.Errorf("missing page: %w", err)}
	}
	u, err := url.Parse(want.URL)
	if err != nil || u.Host == "" {
		return want, got, &brokenError{fmt.Errorf("invalid URL %q", want.URL)}
	}
	if def, err = def.WithBase(want.BaseURL); err != nil {
		return want, got, &brokenError{err}
	}
	got, err = Of(def, extract.Page{
		URL: u, Requested: cmp.Or(want.Requested, want.URL), Kind: want.Kind, Post: want.Post, Carry: want.Carry, Status: http.StatusOK,
		Header: want.header(), Body: body, FetchedAt: want.FetchedAt,
	})
	return want, got, err
}

// compare returns the differences between two samples.
func compare(want, got Sample) []Difference {
	var diffs []Difference
	add := func(what, want, got string) {
		if want != got {
			diffs = append(diffs, Difference{What: what, Want: want, Got: got})
		}
	}
	add("number of records", fmt.Sprint(len(want.Records)), fmt.Sprint(len(got.Records)))
	for i := range min(len(want.Records), len(got.Records)) {
		diffs = append(diffs, fields(i, want.Records[i], got.Records[i])...)
	}
	add("next", orNone(want.Next), orNone(got.Next))
	add("charset", orNone(want.Charset), orNone(got.Charset))
	for _, list := range []struct {
		what      string
		want, got []string
	}{{"link", want.Links, got.Links}, {"invalid record", want.Invalid, got.Invalid}, {"unparsed field", want.Unparsed, got.Unparsed}} {
		for _, l := range list.want {
			if !slices.Contains(list.got, l) {
				add(list.what, l, "none such")
			}
		}
		for _, l := range list.got {
			if !slices.Contains(list.want, l) {
				add(list.what, "none such", l)
			}
		}
	}
	return diffs
}

func orNone(s string) string { return cmp.Or(s, "none") }

// fields returns the fields in which two records differ.
func fields(i int, want, got json.RawMessage) []Difference {
	var w, g map[string]json.RawMessage
	if err := errors.Join(json.Unmarshal(want, &w), json.Unmarshal(got, &g)); err != nil {
		return []Difference{{What: fmt.Sprintf("record %d", i+1), Want: "an object", Got: err.Error()}}
	}
	var typ string
	if json.Unmarshal(w["_type"], &typ) != nil || typ == "" {
		typ = "record"
	}
	all := maps.Clone(w)
	maps.Copy(all, g)
	var diffs []Difference
	for _, n := range slices.Sorted(maps.Keys(all)) {
		if !bytes.Equal(compact(w[n]), compact(g[n])) {
			diffs = append(diffs, Difference{What: fmt.Sprintf("%s %d, %s", typ, i+1, n), Want: shortJSON(w[n]), Got: shortJSON(g[n])})
		}
	}
	return diffs
}

func compact(raw json.RawMessage) []byte {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return raw
	}
	return b.Bytes()
}

func shortJSON(raw json.RawMessage) string {
	if raw == nil {
		return "nothing"
	}
	return string(compact(raw))
}
