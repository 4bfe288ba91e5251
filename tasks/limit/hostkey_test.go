package limit_test

import (
	"bytes"
	"log"
	"os"
	"strings"
	"testing"

	"muster/tasks/limit"
)

func TestHostKey(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"https://api.crossref.org/works":       "api.crossref.org",
		"https://api.example.com:443/x":        "api.example.com",
		"http://example.com:80/":               "example.com",
		"http://example.com:443/":              "example.com:443",
		"https://example.com:80/":              "example.com:80",
		"http://example.com:8080/d":            "example.com:8080",
		"https://API.Crossref.ORG/":            "api.crossref.org",
		"HTTPS://API.Crossref.ORG:443/":        "api.crossref.org",
		"https://user:pass@example.com/":       "example.com",
		"user:pass@example.com/x":              "example.com",
		"http://[::1]:8080/a":                  "[::1]:8080",
		"http://[2001:DB8::1]/":                "[2001:db8::1]",
		"https://[2001:db8::1]:443/":           "[2001:db8::1]",
		"https://[2001:db8:0:0::1]/":           "[2001:db8::1]",
		"https://example.com./x":               "example.com",
		"http://bücher.de/":                    "xn--bcher-kva.de",
		"http://xn--bcher-kva.de/":             "xn--bcher-kva.de",
		"example.com/path":                     "example.com",
		"example.com:8080/path":                "example.com:8080",
		"//example.com/path":                   "example.com",
		"":                                     "",
		"  ":                                   "",
		"http://example.com:99999/":            "http://example.com:99999/",
		"http://example.com:080/":              "example.com",
		"http://example.com:/":                 "example.com",
		"http://":                              "http://",
		"http://a b/":                          "http://a b/",
		"::::":                                 "::::",
		"http://under_score.example/":          "under_score.example",
		"http://127.0.0.1:8080":                "127.0.0.1:8080",
		"ftp://example.com:80/":                "example.com:80",
		"http://[fe80::1%25eth0]/":             "[fe80::1%eth0]",
		"\x00":                                 "\x00",
		"http://%zz/":                          "http://%zz/",
		"http://me:secret@example.com:99999/":  "http://example.com:99999/",
		"http://me:sec/ret@a b/":               "http://a b/",
		"me:secret@[x]:y":                      "[x]:y",
		"https://example.com?x=http://other/":  "example.com",
		"https://example.com#http://other.org": "example.com",
	} {
		if got := limit.HostKey(url); got != want {
			t.Errorf("HostKey(%q) is %q, want %q", url, got, want)
		}
	}
}

// A string that is not a URL has a key without credentials, and a warning.
func TestHostKeyWarns(t *testing.T) {
	var said bytes.Buffer // not parallel: the log is global
	log.SetOutput(&said)
	t.Cleanup(func() { log.SetOutput(os.Stderr) })
	for url, why := range map[string]string{
		"http://me:secret@example.com:99999/x": "the port 99999 is above 65535",
		"http://me:secret@a b/":                "invalid URL",
		"http://me:sec%ret@example.com/":       "invalid URL",
		"http://":                              "has no host",
		"1:2:3":                                "is not an IPv6 address",
		"http://" + strings.Repeat("x", 254):   "the host has 254 bytes",
	} {
		said.Reset()
		key := limit.HostKey(url)
		for _, want := range []string{"WARN", why, key} {
			if !strings.Contains(said.String(), want) {
				t.Errorf("%s: got log %q, want %q", url, &said, want)
			}
		}
		if strings.Contains(said.String()+key, "secret") {
			t.Errorf("%s: got key %s and log %s, want both without the secret", url, key, &said)
		}
	}
	said.Reset()
	if limit.HostKey("http://example.com:80/"); said.Len() > 0 {
		t.Errorf("a good host: got log %s, want none", &said)
	}
}

// ParseHostKey returns the reason as an error, together with a key.
func TestParseHostKey(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]struct{ key, err string }{
		"https://API.example.com:443/x":        {"api.example.com", ""},
		" ":                                    {"", ""},
		"http://me:secret@example.com:99999/x": {"http://example.com:99999/x", "the port 99999 is above 65535"},
	} {
		key, err := limit.ParseHostKey(url)
		if key != want.key || (err == nil) != (want.err == "") || err != nil && !strings.Contains(err.Error(), want.err) {
			t.Errorf("%s: got %q, %v; want %q and an error %q", url, key, err, want.key, want.err)
		}
	}
}

func FuzzHostKey(f *testing.F) {
	f.Add("https://user:pass@example.com:443/x")
	f.Fuzz(func(t *testing.T, url string) {
		key := limit.HostKey(url)
		if again := limit.HostKey(url); again != key {
			t.Fatalf("%q: got key %q, want %q again", url, again, key)
		}
	})
}
