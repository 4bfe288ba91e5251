package polite

import (
	"bytes"
	"cmp"
	"regexp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"

	"muster/sites/definition"
)

// maxRobots is the maximum size of a robots.txt; RFC 9309 requires at least 500 KiB.
const maxRobots = 512 << 10

// Rules are the rules of a robots.txt for one agent (RFC 9309): the merged groups that name the agent, or else the groups for
// every agent.
type Rules struct {
	rules []rule
	delay time.Duration
}

type rule struct {
	pattern string
	allow   bool
}

// AllowAll allows everything, like a missing robots.txt.
var AllowAll = &Rules{}

// ParseRobots parses a robots.txt for an agent: a product token such as "muster", or a User-Agent header that begins with one. It
// skips unknown lines.
func ParseRobots(data []byte, agent string) *Rules {
	if len(data) >= maxRobots {
		// The last line may be truncated, such as "disallow: /" of "disallow: /cart".
		data = data[:maxRobots]
		data = data[:bytes.LastIndexAny(data, "\r\n")+1]
	}
	if plain, _, err := transform.Bytes(unicode.BOMOverride(transform.Nop), data); err == nil {
		data = plain
	}
	p := rulesParser{token: productToken(agent)}
	for line := range bytes.FieldsFuncSeq(data, func(r rune) bool { return r == '\n' || r == '\r' }) {
		text, _, _ := strings.Cut(string(line), "#")
		if key, value, ok := cutField(text); ok {
			p.field(key, value)
		}
	}
	if p.named {
		return &p.own
	}
	return &p.all
}

// rulesParser collects the rules for an agent.
type rulesParser struct {
	token          string // of the agent
	own, all       Rules  // for the agent, and for every agent
	named          bool   // a group names the agent
	mine, everyone bool   // whether the current group is for the agent, and for every agent
	inAgents       bool   // the last known line was a user-agent line
}

// field processes a line.
func (p *rulesParser) field(key, value string) {
	switch key {
	case "user-agent", "useragent", "user agent":
		p.agent(value)
	case "allow":
		p.rule(value, true)
	case "disallow", "dissallow", "dissalow", "disalow", "diasllow", "disallaw":
		p.rule(value, false)
	case "crawl-delay", "crawldelay":
		p.delay(value)
	}
}

func (p *rulesParser) agent(value string) {
	if !p.inAgents {
		p.mine, p.everyone = false, false
	}
	p.inAgents = true
	if name := strings.Fields(value); len(name) > 0 && name[0] == "*" {
		p.everyone = true
	} else if t := productToken(value); t != "" && strings.EqualFold(t, p.token) {
		p.mine, p.named = true, true
	}
}

func (p *rulesParser) rule(pattern string, allow bool) {
	p.inAgents = false
	if pattern == "" {
		return
	}
	if !strings.ContainsRune("/*$", rune(pattern[0])) {
		pattern = "/" + pattern
	}
	r := rule{definition.NormalEscapes(pattern), allow}
	p.add(func(rules *Rules) { rules.rules = append(rules.rules, r) })
}

// delay processes a crawl delay. It is not part of the RFC, so its line must not split a group.
func (p *rulesParser) delay(value string) {
	f, err := strconv.ParseFloat(leadingNumber.FindString(value), 64)
	if err != nil || f > 1e6 {
		return
	}
	d := time.Duration(f * float64(time.Second))
	p.add(func(rules *Rules) { rules.delay = max(rules.delay, d) })
}

// add applies a change to the rules of the agents of the current group.
func (p *rulesParser) add(change func(*Rules)) {
	if p.mine {
		change(&p.own)
	}
	if p.everyone {
		change(&p.all)
	}
}

// Allowed reports whether a URL, given as its escaped path with its query, may be fetched. The longest matching rule wins, and of
// two equally long rules the one that allows.
func (r *Rules) Allowed(pathAndQuery string) bool {
	p := definition.NormalEscapes(cmp.Or(pathAndQuery, "/"))
	if p == "/robots.txt" {
		return true
	}
	best, allowed := -1, true
	for _, rule := range r.rules {
		if n := len(rule.pattern); n >= best && matches(rule.pattern, p) {
			if n > best || rule.allow {
				allowed = rule.allow
			}
			best = n
		}
	}
	return allowed
}

// CrawlDelay returns the crawl delay of the file, or 0.
func (r *Rules) CrawlDelay() time.Duration { return r.delay }

// cutField splits a line at its colon or, without one, at its first space, like common parsers.
func cutField(line string) (key, value string, ok bool) {
	line = strings.TrimSpace(line)
	key, value, ok = strings.Cut(line, ":")
	if !ok {
		key, value, ok = strings.Cut(line, " ")
		if strings.ContainsAny(strings.TrimSpace(value), " \t") {
			return "", "", false
		}
	}
	return strings.ToLower(strings.TrimSpace(key)), strings.TrimSpace(value), ok
}

var (
	leadingNumber = regexp.MustCompile(`^[0-9.]*`)
	leadingToken  = regexp.MustCompile(`^[A-Za-z_-]*`)
)

// productToken returns the leading letters, dashes and underscores of an agent.
func productToken(agent string) string { return leadingToken.FindString(strings.TrimSpace(agent)) }

// matches reports whether a pattern with * and a final $ matches the beginning of a path. Its time is at most proportional to the
// product of the lengths.
func matches(pattern, path string) bool {
	pattern, anchored := strings.CutSuffix(pattern, "$")
	parts := strings.Split(pattern, "*")
	if !strings.HasPrefix(path, parts[0]) {
		return false
	}
	rest := path[len(parts[0]):]
	for i, part := range parts[1:] {
		if anchored && i == len(parts)-2 {
			return strings.HasSuffix(rest, part)
		}
		at := strings.Index(rest, part)
		if at < 0 {
			return false
		}
		rest = rest[at+len(part):]
	}
	return !anchored || rest == ""
}
