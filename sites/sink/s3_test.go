package sink

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"muster/internal/testutil"
)

// store is an S3 store with one bucket, "data".
type store struct {
	mu      sync.Mutex // guards the fields below
	objects map[string][]byte
	parts   map[string]map[string][]byte // by upload: "KEY ID"
	uploads int
	fails   string // code of all errors; "AccessDenied" of listings only
	left    int    // parts until the store accepts no more requests, so that a client cannot remove its parts
	kill    func() // called then
}

func newStore(t *testing.T) *store {
	s := &store{objects: map[string][]byte{}, parts: map[string]map[string][]byte{}, left: -1}
	server := testutil.Serve(t, s)
	for name, value := range map[string]string{"AWS_ENDPOINT_URL": server.URL, "AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "hush", "AWS_REGION": "", "AWS_DEFAULT_REGION": ""} {
		t.Setenv(name, value)
	}
	return s
}

func (s *store) set(left int, kill func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left, s.kill = left, kill
}

func (s *store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left == 0 {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	body, _ := io.ReadAll(r.Body)
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	q := r.URL.Query()
	fail := s.fails
	if bucket != "data" {
		fail = "NoSuchBucket"
	}
	if fail != "" && (fail != "AccessDenied" || key == "") {
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprintf(w, "<Error><Code>%s</Code><Message>no</Message></Error>", fail)
		return
	}
	id := key + " " + q.Get("uploadId")
	switch {
	case r.Method == http.MethodGet: // ?uploads
		fmt.Fprint(w, "<ListMultipartUploadsResult>")
		for id := range s.parts {
			key, id, _ := strings.Cut(id, " ")
			fmt.Fprintf(w, "<Upload><Key>%s</Key><UploadId>%s</UploadId></Upload>", key, id)
		}
		fmt.Fprint(w, "</ListMultipartUploadsResult>")
	case r.Method == http.MethodPost && q.Has("uploads"):
		s.uploads++
		s.parts[fmt.Sprint(key, " ", s.uploads)] = map[string][]byte{}
		fmt.Fprintf(w, "<InitiateMultipartUploadResult><UploadId>%d</UploadId></InitiateMultipartUploadResult>", s.uploads)
	case r.Method == http.MethodPost:
		var whole []byte
		for _, n := range slices.SortedFunc(maps.Keys(s.parts[id]), func(a, b string) int { return cmp.Or(len(a)-len(b), strings.Compare(a, b)) }) {
			whole = append(whole, s.parts[id][n]...)
		}
		s.objects[key] = whole
		delete(s.parts, id)
		fmt.Fprint(w, "<CompleteMultipartUploadResult><Bucket>data</Bucket><ETag>x</ETag></CompleteMultipartUploadResult>")
	case r.Method == http.MethodDelete:
		delete(s.parts, id)
		w.WriteHeader(http.StatusNoContent)
	case r.Method == http.MethodPut && q.Has("uploadId"):
		if s.parts[id] == nil { // removed by the upload after the one that was killed
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, "<Error><Code>NoSuchUpload</Code></Error>")
			return
		}
		s.parts[id][q.Get("partNumber")] = body
		if s.left--; s.left == 0 {
			s.kill()
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("ETag", "x")
	default:
		s.objects[key] = body
		w.Header().Set("ETag", "x")
	}
}

func openStore(t *testing.T) *bucket {
	t.Helper()
	to := testutil.Must(Open(t.Context(), "s3://data/a/b", Options{}))(t)
	b := to.(*bucket)
	b.partSize = 5 << 20
	return b
}

// An upload that is killed at any part leaves no object. The next one removes its parts, and stores one whole object.
func TestUploadsStoreWholeObjectsOnce(t *testing.T) {
	s := newStore(t)
	file := filepath.Join(t.TempDir(), "item.jsonl")
	data := bytes.Repeat([]byte("0123456789abcde\n"), 3<<18+100)
	testutil.Ok(t, os.WriteFile(file, data, 0o600))
	for i := range 10 {
		s.set(-1, nil)
		b := openStore(t)
		ctx, kill := context.WithCancel(t.Context())
		s.set(1+i%3, kill)
		if err := b.Upload(ctx, file, "shop/j1/item.jsonl"); err == nil {
			t.Fatal("got no error of a killed upload")
		}
	}
	if len(s.objects) != 0 || len(s.parts) == 0 {
		t.Errorf("after the kills: got %d objects and %d uploads, want no object and an abandoned upload", len(s.objects), len(s.parts))
	}
	s.set(-1, nil)
	for range 2 {
		testutil.Ok(t, openStore(t).Upload(t.Context(), file, "shop/j1/item.jsonl"))
	}
	s.fails = "AccessDenied" // of listings
	testutil.Ok(t, os.WriteFile(file, []byte("{}\n"), 0o600))
	testutil.Ok(t, openStore(t).Upload(t.Context(), file, "shop/j1/teaser.jsonl"))
	if len(s.objects) != 2 || !bytes.Equal(s.objects["a/b/shop/j1/item.jsonl"], data) || string(s.objects["a/b/shop/j1/teaser.jsonl"]) != "{}\n" || len(s.parts) != 0 {
		t.Errorf("got %d objects, one of %d bytes, and %d uploads; want 2, one of %d bytes, and none", len(s.objects), len(s.objects["a/b/shop/j1/item.jsonl"]), len(s.parts), len(data))
	}
}

// A bucket that cannot be written is an error before the first record, with the remedy and without the secret.
func TestErrorsOfBucketsNameTheRemedy(t *testing.T) {
	s := newStore(t)
	for fails, want := range map[string]string{
		"InvalidAccessKeyId": "check AWS_ACCESS_KEY_ID", "SignatureDoesNotMatch": "check AWS_SECRET_ACCESS_KEY", "RequestTimeTooSkewed": "set the clock",
		"XMinioStorageFull": "free space",
	} {
		s.fails = fails
		if _, err := Open(t.Context(), "s3://data/a", Options{}); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: got %v, want %q", fails, err, want)
		}
	}
	s.fails = ""
	if _, err := Open(t.Context(), "s3://other", Options{}); err == nil || !strings.Contains(err.Error(), "create the bucket") {
		t.Errorf("got %v, want that there is no bucket", err)
	}
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("HOME", t.TempDir())
	if _, err := Open(t.Context(), "s3://data/a", Options{}); err == nil || !strings.Contains(err.Error(), "no credentials") {
		t.Errorf("got %v, want that there are no credentials", err)
	}
}
