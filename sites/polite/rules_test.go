package polite

import (
	"strings"
	"testing"
	"time"
)

// robotsCase is a robots.txt, and whether FooBot may fetch a path. The cases restate the RFC and the public test suites
// of its parsers.
type robotsCase struct {
	name, file, path string
	want             bool
}

func checkRobots(t *testing.T, cases []robotsCase) {
	t.Helper()
	for _, c := range cases {
		if got := ParseRobots([]byte(c.file), "FooBot/1.2 (+mailto:a@b)").Allowed(c.path); got != c.want {
			t.Errorf("%s: got %v, want %v, for %s in\n%s", c.name, got, c.want, c.path, c.file)
		}
	}
}

// The groups that name the agent apply, or else the groups for every agent.
func TestRobotsGroups(t *testing.T) {
	t.Parallel()
	checkRobots(t, []robotsCase{
		{"no groups", "disallow: /", "/x", true},
		{"allow all", "user-agent: FooBot\ndisallow:\n", "/x", true},
		{"disallow all", "user-agent: FooBot\ndisallow: /\n", "/x", false},
		{"other agent", "user-agent: BarBot\ndisallow: /\n", "/x", true},
		{"every agent", "user-agent: *\ndisallow: /\n", "/x", false},
		{"own group wins over *", "user-agent: *\ndisallow: /\nuser-agent: foobot\nallow: /\n", "/x", true},
		{"own empty group wins over *", "user-agent: *\ndisallow: /\n\nuser-agent: foobot\ncrawl-delay: 1\n", "/x", true},
		{"agent without case", "USER-AGENT: fOObOT\nDISALLOW: /\n", "/x", false},
		{"agent with version in file", "user-agent: FooBot/9\ndisallow: /\n", "/x", false},
		{"prefix of the agent", "user-agent: Foo\ndisallow: /\n", "/x", true},
		{"agent is not longer", "user-agent: FooBotX\ndisallow: /\n", "/x", true},
		{"* with a comment", "user-agent: * # all\ndisallow: /\n", "/x", false},
		{"groups of an agent are merged", "user-agent: foobot\ndisallow: /a\n\nuser-agent: barbot\ndisallow: /\n\nuser-agent: foobot\ndisallow: /b\n", "/b", false},
		{"merged, the first too", "user-agent: foobot\ndisallow: /a\n\nuser-agent: foobot\ndisallow: /b\n", "/a", false},
		{"two agents, one group", "user-agent: barbot\nuser-agent: foobot\ndisallow: /\n", "/x", false},
		{"agent with a space", "user-agent: Foo Bar\ndisallow: /\n", "/x", true},
		{"agent cut at a space", "user-agent: FooBot Bar\ndisallow: /\n", "/x", false},
		{"two groups of all are merged", "user-agent: *\ndisallow: /a\n\nuser-agent: *\ndisallow: /b\n", "/a", false},
		{"a star within a name matches no agent", "user-agent: *WordPress*\ndisallow: /\n", "/x", true},
		{"a star before a name matches no agent", "user-agent: *foobot\ndisallow: /\n", "/x", true},
		{"two stars match no agent", "user-agent: **\ndisallow: /\n", "/x", true},
		{"a star within a name takes nothing from every agent", "user-agent: *\ndisallow: /a\n\nuser-agent: *WordPress*\ndisallow: /\n", "/a", false},
		{"a star within a name adds nothing to every agent", "user-agent: *\ndisallow: /a\n\nuser-agent: *WordPress*\ndisallow: /\n", "/x", true},
		{"a star within a name beside every agent", "user-agent: *WordPress*\nuser-agent: *\ndisallow: /\n", "/x", false},
		{"a star and a word after it is every agent", "user-agent: * baz\ndisallow: /\n", "/x", false},
		{"rules before an agent apply to none", "disallow: /\nuser-agent: foobot\nallow: /a\n", "/x", true},
	})
}

// The longest matching pattern wins.
func TestRobotsPatterns(t *testing.T) {
	t.Parallel()
	checkRobots(t, []robotsCase{
		{"longest wins", "user-agent: *\ndisallow: /x/page.html\nallow: /x/\n", "/x/page.html", false},
		{"longest allows", "user-agent: *\nallow: /x/page.html\ndisallow: /x/\n", "/x/page.html", true},
		{"tie allows", "user-agent: *\ndisallow: /x\nallow: /x\n", "/x", true},
		{"tie allows, other order", "user-agent: *\nallow: /x\ndisallow: /x\n", "/x", true},
		{"wildcards count", "user-agent: *\ndisallow: /x/page.html\nallow: /x/*.html\n", "/x/page.html", false},
		{"prefix", "user-agent: *\ndisallow: /fish\n", "/fishheads/yummy.html", false},
		{"case matters in paths", "user-agent: *\ndisallow: /fish\n", "/Fish", true},
		{"folder", "user-agent: *\ndisallow: /fish/\n", "/fish", true},
		{"star", "user-agent: *\ndisallow: /*.php\n", "/dir/a.php?x", false},
		{"star to the end", "user-agent: *\ndisallow: /fish*\n", "/fish", false},
		{"dollar", "user-agent: *\ndisallow: /*.php$\n", "/a.php", false},
		{"dollar and more", "user-agent: *\ndisallow: /*.php$\n", "/a.php?x", true},
		{"dollar after repeats", "user-agent: *\ndisallow: /*.php$\n", "/a.php/b.php", false},
		{"dollar inside is a letter", "user-agent: *\ndisallow: /a$b\n", "/a$bc", false},
		{"query", "user-agent: *\ndisallow: /*?\n", "/a?b", false},
		{"escape against letter", "user-agent: *\ndisallow: /a%3cd.html\n", "/a%3Cd.html", false},
		{"unreserved escape", "user-agent: *\ndisallow: /%7ejoe/\n", "/~joe/index.html", false},
		{"letter against escape", "user-agent: *\ndisallow: /~joe/\n", "/%7Ejoe/index.html", false},
		{"escaped slash", "user-agent: *\ndisallow: /a%2fb\n", "/a/b", true},
		{"beyond ASCII", "user-agent: *\ndisallow: /ツ\n", "/%E3%83%84", false},
		{"star escaped", "user-agent: *\ndisallow: /a%2A\n", "/ab", true},
		{"longest wins, whatever the order", "user-agent: *\nallow: /folder\ndisallow: /folder/sub\nallow: /folder/sub/open\n", "/folder/sub/open/x", true},
		{"star and dollar", "user-agent: *\nallow: /p\ndisallow: /*.pdf$\n", "/p.pdf", false},
		{"escaped beyond ASCII in the file", "user-agent: *\ndisallow: /%E3%83%84\n", "/ツ/x", false},
		{"robots.txt itself", "user-agent: *\ndisallow: /\n", "/robots.txt", true},
		{"root only", "user-agent: *\ndisallow: /$\n", "/", false},
		{"root only, another page", "user-agent: *\ndisallow: /$\n", "/x", true},
	})
}

// Lines are parsed like in common parsers.
func TestRobotsLines(t *testing.T) {
	t.Parallel()
	checkRobots(t, []robotsCase{
		{"empty file", "", "/x", true},
		{"blank lines do not end agents", "user-agent: foobot\n\n\ndisallow: /\n", "/x", false},
		{"a sitemap does not split a group", "user-agent: foobot\nsitemap: http://x/s.xml\ndisallow: /\n", "/x", false},
		{"an unknown line does not split a group", "user-agent: foobot\nfoo: bar\ndisallow: /\n", "/x", false},
		{"no colon", "user-agent foobot\ndisallow /\n", "/x", false},
		{"space before the colon", "user-agent : foobot\ndisallow : /\n", "/x", false},
		{"BOM", "\xef\xbb\xbfuser-agent: *\ndisallow: /\n", "/x", false},
		{"CR", "user-agent: *\rdisallow: /\r", "/x", false},
		{"CRLF", "user-agent: *\r\ndisallow: /\r\n", "/x", false},
		{"comment at the end", "user-agent: *\ndisallow: / # all\n", "/x", false},
		{"typo", "user-agent: *\ndissallow: /\n", "/x", false},
		{"no slash", "user-agent: *\ndisallow: x\n", "/x", false},
		{"empty allow", "user-agent: *\nallow:\ndisallow: /\n", "/x", false},
		{"a rule after a stray line", "user-agent: *\nrubbish\ndisallow: /\n", "/x", false},
		{"tabs", "user-agent:\t*\t\ndisallow:\t/\t\n", "/x", false},
		{"HTML instead", "<html><body>user-agent: *<br>disallow: /</body></html>", "/x", true},
		{"junk does not end it", "\x00\xff\nCrawl-delay: 10#\nuser-agent: *\ndisallow: /\n", "/x", false},
	})
}

// A sitemap line is not part of a group and does not end one.
func TestCrawlDelay(t *testing.T) {
	t.Parallel()
	const file = "Sitemap: http://x/a.xml\nuser-agent: *\nsitemap: http://x/b.xml\ncrawl-delay: 10\nuser-agent: foobot\nCrawl-delay: 1.5 # s\n"
	r := ParseRobots([]byte(file), "foobot")
	if r.CrawlDelay() != 1500*time.Millisecond {
		t.Errorf("got %s, want 1.5s", r.CrawlDelay())
	}
	if d := ParseRobots([]byte(file), "other").CrawlDelay(); d != 10*time.Second {
		t.Errorf("got %s for others, want 10s", d)
	}
	for _, bad := range []string{"x", "-1", "1e99", ""} {
		if d := ParseRobots([]byte("user-agent: *\ncrawl-delay: "+bad), "a").CrawlDelay(); d > time.Second {
			t.Errorf("crawl-delay %q: got %s, want at most 1s", bad, d)
		}
	}
}

// A hostile file takes little time.
func TestRobotsHostile(t *testing.T) {
	t.Parallel()
	huge := "user-agent: *\n" + strings.Repeat("disallow: /"+strings.Repeat("*a", 200)+"$\n", 25_000)
	began := time.Now()
	r := ParseRobots([]byte(huge), "foobot")
	r.Allowed("/" + strings.Repeat("a", 2000))
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("got %s, want at most 30s", took)
	}
}

// A file that is too long is truncated before its last, incomplete line.
func TestRobotsTooLong(t *testing.T) {
	t.Parallel()
	head := "user-agent: *\ndisallow: /a\n"
	for name, c := range map[string]struct {
		file string
		path string
		want bool
	}{
		"rules at the beginning": {head + strings.Repeat("# long comment\n", 1<<20), "/a", false},
		"rules beyond the limit": {head + strings.Repeat("#"+strings.Repeat("x", 98)+"\n", maxRobots/100+1) + "disallow: /b\n", "/b", true},
		"a rule cut in two":      {head + strings.Repeat("#", maxRobots-len(head)-len("\ndisallow: /")) + "\ndisallow: /cart\n", "/b", true},
		"one endless line":       {strings.Repeat("x", 10<<20), "/b", true},
	} {
		if got := ParseRobots([]byte(c.file), "foobot").Allowed(c.path); got != c.want {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}

func FuzzRobots(f *testing.F) {
	f.Add([]byte("user-agent: *\ndisallow: /*a$"), "/a")
	f.Fuzz(func(t *testing.T, file []byte, path string) {
		ParseRobots(file, "foobot").Allowed(path)
	})
}
