package document

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"time"

	"muster/internal/addressfilter"
	"muster/jobs"
)

// Bounds of a download.
const (
	fetchTimeout = 10 * time.Minute // of all
	answerWait   = 30 * time.Second // until the header of a response
	maxRedirects = 5
	userAgent    = "muster/1.0"
)

// Fetch downloads a document over http or https and stores it; see Put. It follows up to five redirects and takes at
// most ten minutes. A URL that cannot be used is a *jobs.FieldError. Errors and the source of the document contain neither
// the credentials nor the query of the URL, which may be secret.
func (s *Store) Fetch(ctx context.Context, rawURL string) (jobs.Document, error) {
	if err := s.open(ctx); err != nil {
		return jobs.Document{}, err
	}
	u, err := url.Parse(rawURL)
	if err != nil {
		return jobs.Document{}, badURL("it cannot be parsed")
	}
	if err := checkURL(u); err != nil {
		return jobs.Document{}, badURL(err.Error())
	}
	ctx, cancel := context.WithTimeoutCause(ctx, fetchTimeout, fmt.Errorf("it takes longer than %s", fetchTimeout))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return jobs.Document{}, badURL("it cannot be requested")
	}
	req.Header.Set("User-Agent", userAgent)

	transport := s.cfg.Filter.Transport()
	transport.ResponseHeaderTimeout = answerWait
	transport.DisableKeepAlives = true // a document is fetched once
	client := &http.Client{Transport: transport, CheckRedirect: checkRedirect}
	res, err := client.Do(req)
	if err != nil {
		return jobs.Document{}, fetchError(ctx, u, err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode < 200 || res.StatusCode > 299 {
		return jobs.Document{}, fmt.Errorf("%w of %s: the server responds with %d %s", ErrDownload, redactURL(u), res.StatusCode, http.StatusText(res.StatusCode))
	}
	name := nameIn(res)
	if res.ContentLength > s.cfg.Limit {
		return jobs.Document{}, &TooLargeError{Name: name, Limit: s.cfg.Limit}
	}
	in := incoming{name: name, source: redactURL(u), from: downloaded{res.Body}}
	if t := withoutParameters(res.Header.Get("Content-Type")); t != "application/octet-stream" && t != "binary/octet-stream" {
		in.mediaType = t
	}
	doc, err := s.put(ctx, in)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return doc, fmt.Errorf("%w of %s: %w", ErrDownload, redactURL(u), cause)
		}
		return doc, err
	}
	return doc, nil
}

// ErrDownload means that the server of a URL did not return a document.
var ErrDownload = errors.New("download failed")

// downloaded marks errors of a body with ErrDownload.
type downloaded struct{ body io.Reader }

func (d downloaded) Read(p []byte) (int, error) {
	n, err := d.body.Read(p)
	if err != nil && err != io.EOF {
		err = fmt.Errorf("%w: %w", ErrDownload, err)
	}
	return n, err
}

func badURL(why string) error { return &jobs.FieldError{Field: "document_url", Why: why} }

// redactURL returns a URL without parts that may be secret.
func redactURL(u *url.URL) string {
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}).String()
}

func checkURL(u *url.URL) error {
	if u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return errors.New("want an http or https URL, as in https://files.example/report.pdf")
	}
	return nil
}

func checkRedirect(req *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects {
		return fmt.Errorf("more than %d redirects", maxRedirects)
	}
	if err := checkURL(req.URL); err != nil {
		return errors.New("a redirect does not lead to an http or https URL")
	}
	return nil
}

// fetchError returns the error of a request without the URL, which may hold secrets.
func fetchError(ctx context.Context, u *url.URL, err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	if refused, ok := errors.AsType[*addressfilter.Error](err); ok {
		return badURL(fmt.Sprintf("%s is not connected to: %v", redactURL(u), refused))
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	return fmt.Errorf("%w of %s: %w", ErrDownload, redactURL(u), err)
}

// nameIn returns the name of the document in a response: from Content-Disposition, or else the end of its URL.
func nameIn(res *http.Response) string {
	if _, params, err := mime.ParseMediaType(res.Header.Get("Content-Disposition")); err == nil && params["filename"] != "" {
		return baseName(params["filename"])
	}
	return baseName(res.Request.URL.Path)
}
