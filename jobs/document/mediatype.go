package document

import (
	"mime"
	"net/http"
	"path"
	"strings"
)

// typeOf are the media types of extensions in lower case. Unlike those of mime.TypeByExtension, they are the same on all
// machines.
var typeOf = map[string]string{
	".pdf": "application/pdf",
	".txt": "text/plain", ".text": "text/plain", ".log": "text/plain",
	".md": "text/markdown", ".markdown": "text/markdown",
	".csv": "text/csv",
	".tsv": "text/tab-separated-values",
	".htm": "text/html", ".html": "text/html",
	".xml":   "application/xml",
	".json":  "application/json",
	".jsonl": "application/x-ndjson", ".ndjson": "application/x-ndjson",
	".yaml": "application/yaml", ".yml": "application/yaml",
	".rtf":  "application/rtf",
	".doc":  "application/msword",
	".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
	".xls":  "application/vnd.ms-excel",
	".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
	".ppt":  "application/vnd.ms-powerpoint",
	".pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
	".odt":  "application/vnd.oasis.opendocument.text",
	".ods":  "application/vnd.oasis.opendocument.spreadsheet",
	".odp":  "application/vnd.oasis.opendocument.presentation",
	".epub": "application/epub+zip",
	".eml":  "message/rfc822",
}

// mediaType is the type of a document, by the extension of its name or else by its first bytes. It has no parameters:
// a charset would be a guess.
func mediaType(name string, head []byte) string {
	if t := typeOf[strings.ToLower(path.Ext(name))]; t != "" {
		return t
	}
	return withoutParameters(http.DetectContentType(head))
}

// withoutParameters returns the media type in a Content-Type, or "".
func withoutParameters(contentType string) string {
	t, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return ""
	}
	return t
}
