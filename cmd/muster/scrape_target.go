package main

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"muster/sites"
	"muster/sites/definition"
)

// resolve turns the arguments of scrape into site names: a definition file is
// added to the registry, and a URL selects the site that it belongs to.
func (a *scrapeArgs) resolve(env environment, registry *sites.Registry) error {
	for i, name := range a.names {
		switch {
		case isDefinitionFile(name):
			def, err := loadDefinition(name)
			if err != nil {
				return err
			}
			a.defs = append(a.defs, def)
			registry.Add(def)
			a.names[i] = def.Site
		case strings.Contains(name, "://"):
			site, err := siteOfPage(registry, name)
			if err != nil {
				return usageError{err}
			}
			fmt.Fprintf(env.stderr, "muster: %s is of the site %s, which is scraped from its start\n", withoutPassword(name), site)
			a.names[i] = site
		default:
			if _, err := registry.Definition(name); err != nil {
				return noSite(err)
			}
		}
	}
	if errs := registry.MissingSecrets(os.LookupEnv, a.names...); len(errs) > 0 && len(a.names) > 0 {
		return usageError{errors.Join(errs...)}
	}
	return nil
}

// isDefinitionFile reports whether an argument is a file rather than the name of a site.
func isDefinitionFile(name string) bool {
	ext := filepath.Ext(name)
	return ext == ".yaml" || ext == ".yml"
}

// loadDefinition reads a definition that the user has named.
func loadDefinition(file string) (*definition.Definition, error) {
	if _, err := os.Stat(file); err != nil {
		return nil, usageError{fmt.Errorf("read site definition: %w", err)}
	}
	return definition.Load(file)
}

// siteOfPage returns the site that starts at the host of a page.
func siteOfPage(registry *sites.Registry, page string) (string, error) {
	u, err := url.Parse(page)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", fmt.Errorf("%q is neither a site, nor a definition in a .yaml file, nor an http or https URL", withoutPassword(page))
	}
	var found []string
	for _, name := range registry.Names() {
		def, err := registry.Definition(name)
		if err != nil {
			return "", err
		}
		if slices.ContainsFunc(def.StartPages(), func(p definition.StartPage) bool {
			start, err := url.Parse(p.URL)
			return err == nil && strings.EqualFold(start.Host, u.Host)
		}) {
			found = append(found, name)
		}
	}
	switch len(found) {
	case 0:
		return "", fmt.Errorf("no site starts at %s; draft a definition with muster sites init %s --out FILE.yaml, then muster scrape FILE.yaml", u.Host, u.Redacted())
	case 1:
		return found[0], nil
	}
	return "", fmt.Errorf("%d sites start at %s: name one of %s", len(found), u.Host, strings.Join(found, ", "))
}
