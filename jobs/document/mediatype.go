package document

import (
	"mime"
	"net/http"
	"path"
	"strings"
)

// typeOf returns the media type of an extension in lower case, or "". Unlike mime.TypeByExtension, it is the same on
// all machines.
func typeOf(ext string) string {
	switch ext {
	case ".pdf":
		return "application/pdf"
	case ".txt", ".text", ".log":
		return "text/plain"
	case ".md", ".markdown":
		return "text/markdown"
	case ".csv":
		return "text/csv"
	case ".tsv":
		return "text/tab-separated-values"
	case ".htm", ".html":
		return "text/html"
	case ".xml":
		return "application/xml"
	case ".json":
		return "application/json"
	case ".jsonl", ".ndjson":
		return "application/x-ndjson"
	case ".yaml", ".yml":
		return "application/yaml"
	case ".rtf":
		return "application/rtf"
	case ".doc":
		return "application/msword"
	case ".docx":
		return "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
	case ".xls":
		return "application/vnd.ms-excel"
	case ".xlsx":
		return "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
	case ".ppt":
		return "application/vnd.ms-powerpoint"
	case ".pptx":
		return "application/vnd.openxmlformats-officedocument.presentationml.presentation"
	case ".odt":
		return "application/vnd.oasis.opendocument.text"
	case ".ods":
		return "application/vnd.oasis.opendocument.spreadsheet"
	case ".odp":
		return "application/vnd.oasis.opendocument.presentation"
	case ".epub":
		return "application/epub+zip"
	case ".eml":
		return "message/rfc822"
	}
	return ""
}

// mediaType is the type of a document, by the extension of its name or else by its first bytes. It has no parameters:
// a charset would be a guess.
func mediaType(name string, head []byte) string {
	if t := typeOf(strings.ToLower(path.Ext(name))); t != "" {
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
