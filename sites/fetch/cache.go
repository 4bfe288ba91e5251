package fetch

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"

	"muster/internal/atomicfile"
	"muster/internal/wrap"
	"muster/sites/extract"
)

// cachedPage is the head of a page in a cache: JSON in the first line of its file. The body follows.
type cachedPage struct {
	URL string `json:"url"`
	extract.Page
}

// cacheFile returns the file of a request in the cache of a site. A cache has one directory per site.
func cacheFile(dir, site string, r request) string {
	sum := sha256.Sum256([]byte(r.kind + " " + r.url + "\n" + r.post.Type + "\n" + r.post.Text))
	return filepath.Join(dir, site, hex.EncodeToString(sum[:16]))
}

// keep stores a page that was fetched for a request.
func (c *Client) keep(r request, p extract.Page) error {
	head := cachedPage{p.URL.String(), p}
	head.Header, head.FetchedAt = http.Header{}, p.FetchedAt.UTC()
	for _, name := range []string{"Content-Type", "Link"} { // cookies may be secret
		head.Header[name] = p.Header.Values(name)
	}
	data, err := json.Marshal(head)
	path := cacheFile(c.cfg.Cache, c.def.Site, r)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	}
	if err == nil {
		err = atomicfile.WriteBytes(path, 0o600, append(append(data, '\n'), p.Body...))
	}
	return wrap.Err(err, "store %s in the cache", p.Requested)
}

// readCached reads a page of a cache. The error is fs.ErrNotExist if there is none.
func readCached(path string) (extract.Page, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return extract.Page{}, err
	}
	var head cachedPage
	line, body, _ := bytes.Cut(data, []byte("\n"))
	if err := json.Unmarshal(line, &head); err != nil {
		return extract.Page{}, fmt.Errorf("%s of the cache: %w", path, err)
	}
	if head.Page.URL, err = url.Parse(head.URL); err != nil {
		return extract.Page{}, fmt.Errorf("%s of the cache: %w", path, err)
	}
	head.Body = body
	return head.Page, nil
}

// CachedPages calls fn with each page of a site in a cache. A cache without pages of the site is an error.
func CachedPages(dir, site string, fn func(extract.Page) error) error {
	files, err := os.ReadDir(filepath.Join(dir, site))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("list the pages in the cache: %w", err)
	}
	if len(files) == 0 {
		return fmt.Errorf("no pages of %s in %s; fetch some with muster scrape --cache %s", site, dir, dir)
	}
	for _, f := range files {
		page, err := readCached(filepath.Join(dir, site, f.Name()))
		if err == nil {
			err = fn(page)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
