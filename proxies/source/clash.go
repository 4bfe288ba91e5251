package source

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"muster/internal/yamlstrict"
)

// clashStart is the line that the proxies of a Clash configuration stand below.
var clashStart = regexp.MustCompile(`(?m)^proxies:[ \t]*(#.*)?\n`)

// maxClash is how many entries of a Clash configuration are read: YAML costs much more than lines of text.
const maxClash = 100_000

// clash reads the proxies of a Clash configuration, and nothing else of it: its rules and name servers are addresses too.
// It returns false when there are none. Each entry is YAML of its own, so that what one costs is bounded. Those beyond
// maxClash are counted.
func (p *parser) clash(body []byte) bool {
	start := clashStart.FindIndex(body)
	if start == nil {
		return false
	}
	found := false
	var entry strings.Builder
	indent := -1 // of the dashes of entries
	flush := func() {
		if entry.Len() > 0 {
			found = p.clashEntry(entry.String()) || found
			entry.Reset()
		}
	}
	for line := range strings.Lines(string(body[start[1]:])) {
		text := strings.TrimLeft(line, " ")
		at := len(line) - len(text)
		switch dash := strings.HasPrefix(text, "- "); {
		case strings.TrimSpace(text) == "" || strings.HasPrefix(text, "#"):
			continue
		case dash && (indent < 0 || at == indent):
			flush()
			indent = at
		case at == 0: // the next key of the configuration
			flush()
			return found
		}
		if entry.Len() <= maxLine {
			entry.WriteString(line)
		}
	}
	flush()
	return found
}

var errTooMany = errors.New("the list has too many entries")

// tooMany returns an error if the list has more entries than are read.
func (p *parser) tooMany() error {
	if p.entries <= maxClash {
		return nil
	}
	return fmt.Errorf("%w: it has %d of a Clash configuration, and %d are read; split it", errTooMany, p.entries, maxClash)
}

// clashEntry takes one entry, or counts why not; false when it names no server.
func (p *parser) clashEntry(text string) bool {
	if len(text) > maxLine {
		p.out.Rejects[LongLine]++
		return false
	}
	if !strings.Contains(text, "server") {
		p.out.Rejects[Unparsed]++
		return false
	}
	if p.entries++; p.entries > maxClash {
		return true
	}
	row := clashRow(text)
	if row["server"] == "" || row["port"] == "" {
		p.out.Rejects[Unparsed]++
		return false
	}
	protocol := protocolOf(row["type"])
	if protocol == "" {
		p.out.Rejects[Unsupported]++
		return true
	}
	if protocol == "http" && row["tls"] == "true" {
		protocol = "https"
	}
	p.add(Candidate{Protocol: protocol, Host: row["server"], Username: row["username"], Password: row["password"]}, row["port"])
	return true
}

// clashRow returns the keys and values of an entry that are plain, as they are written.
func clashRow(text string) map[string]string {
	file, err := yamlstrict.Parse([]byte(text))
	if err != nil || len(file.Docs) != 1 {
		return nil
	}
	list, ok := file.Docs[0].Body.(*ast.SequenceNode)
	if !ok || len(list.Values) != 1 {
		return nil
	}
	entry, ok := list.Values[0].(ast.MapNode)
	if !ok {
		return nil
	}
	row := map[string]string{}
	for pairs := entry.MapRange(); pairs.Next(); {
		if value, ok := pairs.Value().(ast.ScalarNode); ok {
			row[pairs.Key().GetToken().Value] = value.GetToken().Value
		}
	}
	return row
}
