package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"muster/orchestrator/api/client"
)

const (
	maxBody      = 1 << 20  // bytes of most requests
	maxItemsBody = 16 << 20 // bytes of a request with items
	bodyTime     = 30 * time.Second
)

// readJSON reads a JSON body, for operations whose body huma does not read.
func readJSON(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, *Problem) {
	ct := r.Header.Get("Content-Type")
	if media, _, err := mime.ParseMediaType(ct); ct != "" && (err != nil || media != "application/json" && !strings.HasSuffix(media, "+json")) {
		return nil, problem(http.StatusUnsupportedMediaType, "the body must be application/json, not %.100q", ct)
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTime)) // not supported by a recorder
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	switch {
	case errors.As(err, new(*http.MaxBytesError)):
		return nil, bodyTooLarge(limit)
	case err != nil:
		return nil, badField("body", "read the body: %v", err)
	case len(data) == 0:
		return nil, badField("body", "a JSON object is required")
	case !json.Valid(data):
		return nil, badField("body", "invalid JSON")
	}
	return data, nil
}

// keyOf returns a key for a location, or a short form of a long one.
func keyOf(raw []byte) string {
	if len(raw) > 100 {
		return string(bytes.ToValidUTF8(raw[:100], nil)) + "…"
	}
	return string(raw)
}

// plainText returns why a text of a query, path or form cannot be kept, or "".
func plainText(text string) string {
	switch {
	case !utf8.ValidString(text):
		return "the text is not valid UTF-8"
	case strings.ContainsRune(text, 0):
		return "the text has a NUL character"
	}
	return ""
}

// Object is a JSON object as it was sent.
type Object = client.Object
