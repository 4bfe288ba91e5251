package fetch

import (
	"bytes"
	_ "embed" // signatures.yaml
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/goccy/go-yaml"

	"muster/sites/definition"
)

//go:embed signatures.yaml
var signaturesFile []byte

// builtinSignatures returns the content of signatures.yaml.
var builtinSignatures = sync.OnceValue(func() signatures {
	all, err := parseSignatures(signaturesFile)
	if err != nil {
		panic(err) // a test parses the same file
	}
	return all
})

// signatures is the content of signatures.yaml.
type signatures struct {
	Headings   []string     `yaml:"headings"`
	Phrases    []string     `yaml:"phrases"`
	Signatures []*signature `yaml:"signatures"`
}

// signature describes the block pages of a vendor; see signatures.yaml.
type signature struct {
	Vendor   string                `yaml:"vendor"`
	Source   string                `yaml:"source"`
	Headers  []string              `yaml:"headers"`
	Cookies  []string              `yaml:"cookies"`
	Titles   []string              `yaml:"titles"`
	Elements []definition.Selector `yaml:"elements"`
	Markup   []string              `yaml:"markup"`
	Alone    []definition.Selector `yaml:"alone"`
}

func parseSignatures(data []byte) (all signatures, err error) {
	if err = yaml.UnmarshalWithOptions(data, &all, yaml.Strict()); err != nil {
		err = fmt.Errorf("read signatures: %w", err)
	}
	return all, err
}

// in returns the matching part of the signature, or "".
func (s *signature) in(page pageView) string {
	for _, h := range s.Headers {
		name, value, _ := strings.Cut(h, ": ")
		if strings.EqualFold(page.doc.Page.Header.Get(name), value) {
			return "the header " + h
		}
	}
	if len(s.Cookies) > 0 {
		for _, c := range cookiesIn(page.doc.Page.Header) {
			if c.Value != "" && c.MaxAge >= 0 && slices.ContainsFunc(s.Cookies, func(name string) bool { return strings.HasPrefix(c.Name, name) }) {
				return "the cookie " + c.Name
			}
		}
	}
	for _, t := range s.Titles {
		if strings.EqualFold(page.title, t) {
			return fmt.Sprintf("the title %q", page.title)
		}
	}
	if page.chars > shortText {
		return ""
	}
	for _, m := range s.Markup {
		if bytes.Contains(page.doc.Page.Body, []byte(m)) {
			return "the markup " + m
		}
	}
	if page.doc.Root == nil {
		return ""
	}
	for _, e := range s.Elements {
		if e.First(page.doc.Root) != nil {
			return "the element " + e.Text
		}
	}
	if page.chars > nearlyEmpty || page.form || elements.app.First(page.doc.Root) != nil {
		return ""
	}
	for _, e := range s.Alone {
		if e.First(page.doc.Root) != nil {
			return fmt.Sprintf("the element %s on a page of %d characters", e.Text, page.chars)
		}
	}
	return ""
}
