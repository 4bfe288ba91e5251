package source

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"muster/internal/contentencoding"
	"muster/internal/testutil"
)

// The candidates of a list are given in the form protocol://user:password@host:port country.
func TestParseFormats(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		text string
		want []string // protocol://user:password@host:port country
	}{
		"address":                 {"8.8.8.8:8080", []string{"8.8.8.8:8080"}},
		"scheme and credentials":  {"socks5://u:p@8.8.8.8:1080", []string{"socks5://u:p@8.8.8.8:1080"}},
		"escaped credentials":     {"http://user-1:p%40ss_w%2Frd@8.8.8.8:8080", []string{"http://user-1:p@ss_w/rd@8.8.8.8:8080"}},
		"paid list":               {"8.8.8.8:8080:user:pass", []string{"user:pass@8.8.8.8:8080"}},
		"paid list, odd password": {"8.8.8.8:8080:user:p@ss:w/rd", []string{"user:p@ss:w/rd@8.8.8.8:8080"}},
		"credentials first":       {"user:pass:8.8.8.8:8080", []string{"user:pass@8.8.8.8:8080"}},
		"at the end":              {"8.8.8.8:8080@user:pass", []string{"user:pass@8.8.8.8:8080"}},
		"at the end, number":      {"8.8.8.8:8080@user:12", []string{"user:12@8.8.8.8:8080"}},
		"escapes only in a URL": {"8.8.8.8:80:u:%41\nv:%41:8.8.8.8:80\nw:%41@8.8.8.8:80\n8.8.8.8:80@x:%41\nsocks5://8.8.8.8:80:y:%41\nhttp://z:%41@8.8.8.8:80",
			[]string{"u:%41@8.8.8.8:80", "v:%41@8.8.8.8:80", "w:%41@8.8.8.8:80", "x:%41@8.8.8.8:80", "socks5://y:%41@8.8.8.8:80", "http://z:A@8.8.8.8:80"}},
		"paid list with scheme":          {"socks5://8.8.8.8:1080:user:p@ss:w/rd#1?2", []string{"socks5://user:p@ss:w/rd#1?2@8.8.8.8:1080"}},
		"paid list, address in password": {"8.8.8.8:8080:user:p@ss.io:12", []string{"user:p@ss.io:12@8.8.8.8:8080"}},
		"URL with a path":                {"http://u:p@8.8.8.8:80/a?b#c", []string{"http://u:p@8.8.8.8:80"}},
		"paid list with country":         {"8.8.8.8:8080:user:pass BG socks5", []string{"socks5://user:pass@8.8.8.8:8080 BG"}},
		"paid list with IPv6":            {"[2606:4700::1111]:80:u:p:w\nu:p:[2606:4700::2222]:80\n[2606:4700::3333]:80@u:p", []string{"u:p:w@[2606:4700::1111]:80", "u:p@[2606:4700::2222]:80", "u:p@[2606:4700::3333]:80"}},
		"text before a login":            {"HTTP: u:p@8.8.8.8:80", []string{"u:p@8.8.8.8:80"}},
		"name":                           {"gate1.proxy.io:7000", []string{"gate1.proxy.io:7000"}},
		"IPv6":                           {"[2606:4700::1111]:8080", []string{"[2606:4700::1111]:8080"}},
		"IPv6 with scheme":               {"socks5://[2606:4700::1111]:8080", []string{"socks5://[2606:4700::1111]:8080"}},
		"v4 in v6":                       {"[::ffff:8.8.8.8]:80", []string{"8.8.8.8:80"}},
		"JSON, port as string":           {`{"ip":"8.8.8.8","port":"8080"}`, []string{"8.8.8.8:8080"}},
		"JSON, port as number": {`[{"host":"8.8.8.8","port":8080,"protocol":"SOCKS5","username":"u","password":"p","country":"BG"}]`,
			[]string{"socks5://u:p@8.8.8.8:8080 BG"}},
		"JSON of any nesting": {`{"status":1,"data":{"list":[{"x":[{"addr":"8.8.8.8","port":80}]},{"proxy":"socks4://9.9.9.9:1080"}]}}`,
			[]string{"8.8.8.8:80", "socks4://9.9.9.9:1080"}},
		"JSON with several protocols": {`{"data":[{"ip":"8.8.8.8","port":"1","protocols":["http","socks4"]}]}`, []string{"http://8.8.8.8:1", "socks4://8.8.8.8:1"}},
		"JSON strings":                {`["8.8.8.8:80","http://9.9.9.9:81"]`, []string{"8.8.8.8:80", "http://9.9.9.9:81"}},
		"JSON lines":                  {"{\"ip\":\"8.8.8.8\",\"port\":1}\n{\"ip\":\"9.9.9.9\",\"port\":2}\n", []string{"8.8.8.8:1", "9.9.9.9:2"}},
		"HTML table": {`<html><table><tr><th>IP</th><th>Port</th></tr><tr><td>8.8.8.8</td><td>8080</td><td>US</td><td>SOCKS5</td></tr>
			<tr><td> <b>9.9.9.9</b> </td><td>81</td></tr></table></html>`, []string{"socks5://8.8.8.8:8080 US", "9.9.9.9:81"}},
		"HTML table, one cell per line": {"<!doctype html><style>1.1.1.1:1</style><tr>\n<td>8.8.8.8</td>\n<td>80</td>\n<td>Peru</td>\n<td>elite proxy</td>\n</tr><tr><td>9.9.9.9:81<br>x</td></tr>",
			[]string{"8.8.8.8:80", "9.9.9.9:81"}},
		"HTML text":                            {"<html><body><pre>8.8.8.8:80\n9.9.9.9:81</pre></body></html>", []string{"8.8.8.8:80", "9.9.9.9:81"}},
		"tabs":                                 {"8.8.8.8\t8080\tBG\tsocks4", []string{"socks4://8.8.8.8:8080 BG"}},
		"spaces":                               {"8.8.8.8   8080", []string{"8.8.8.8:8080"}},
		"CSV with a header":                    {"ip,port,protocol,country\n8.8.8.8,8080,http,BG\n\"9.9.9.9\",\"1080\",\"socks5\",\"US\"", []string{"http://8.8.8.8:8080 BG", "socks5://9.9.9.9:1080 US"}},
		"CSV in another order":                 {"country;port;host\nBG;8080;8.8.8.8", []string{"8.8.8.8:8080 BG"}},
		"CSV with a quoted separator":          {"alive,asname,ip,port\ntrue,\"DigitalOcean, LLC\",8.8.4.4,8080\ntrue,\"A \"\"B\"\" C\",9.9.9.9,81\n\"x,8.8.8.8,82", []string{"8.8.4.4:8080", "9.9.9.9:81", "8.8.8.8:82"}},
		"CSV with another separator in a cell": {"ip,port,note\n8.8.4.4,8080,fast; elite\n9.9.9.9,81,a|b\tc", []string{"8.8.4.4:8080", "9.9.9.9:81"}},
		"CSV without header":                   {"8.8.8.8,8080", []string{"8.8.8.8:8080"}},
		"spys.me":                              {"8.8.8.8:8080 US-A-S +", []string{"8.8.8.8:8080 US"}},
		"label before":                         {"socks5 8.8.8.8:1080", []string{"socks5://8.8.8.8:1080"}},
		"free text":                            {"try 8.8.8.8:80, or (9.9.9.9:81) and note:1 too", []string{"8.8.8.8:80", "9.9.9.9:81"}},
		"comments":                             {"# 7.7.7.7:1\n// 7.7.7.7:2\n8.8.8.8:80", []string{"8.8.8.8:80"}},
		"byte order mark":                      {"\xef\xbb\xbf8.8.8.8:80\r\n9.9.9.9:81\r\n", []string{"8.8.8.8:80", "9.9.9.9:81"}},
		"one line":                             {strings.Repeat("8.8.8.8:80 9.9.9.9:81 ", 300), []string{"8.8.8.8:80", "9.9.9.9:81"}},
		"trailing slash":                       {"http://8.8.8.8:80/", []string{"http://8.8.8.8:80"}},
		"invalid UTF-8":                        {"8.8.8.8:80 \xff\xfe caf\xe9", []string{"8.8.8.8:80"}},
		"upper case name":                      {"GATE.Example.ORG:80", []string{"gate.example.org:80"}},
		"nothing":                              {"", nil},
		"CR line endings":                      {"8.8.8.8:80\r9.9.9.9:81\r", []string{"8.8.8.8:80", "9.9.9.9:81"}},
		"gzip":                                 {zipped("8.8.8.8:80\n"), []string{"8.8.8.8:80"}},
		"gzip of JSON":                         {zipped(`[{"ip":"8.8.8.8","port":80}]`), []string{"8.8.8.8:80"}},
		"gzip, several members":                {zipped("8.8.8.8:80\n") + zipped("9.9.9.9:81\n"), []string{"8.8.8.8:80", "9.9.9.9:81"}},
		"password of punctuation":              {"8.8.8.8:80:u:*p_`", []string{"u:*p_`@8.8.8.8:80"}},
		"text that starts like JSON":           {"[x\n8.8.8.8:80", []string{"8.8.8.8:80"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			parsed := testutil.Must(Parse(strings.NewReader(test.text), Options{}))(t)
			var got []string
			for _, c := range parsed.Candidates {
				text := c.Address()
				if c.Username != "" || c.Password != "" {
					text = c.Username + ":" + c.Password + "@" + text
				}
				if c.Protocol != "" {
					text = c.Protocol + "://" + text
				}
				if c.Country != "" {
					text += " " + c.Country
				}
				got = append(got, text)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got %q\nwant %q\nrejects %v", got, test.want, parsed.Rejects)
			}
		})
	}
}

func zipped(s string) string {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, _ = z.Write([]byte(s)) // a bytes.Buffer does not fail
	_ = z.Close()
	return out.String()
}

// Decompression is limited while reading, and a truncated archive is rejected.
func TestDecompressionLimits(t *testing.T) {
	t.Parallel()
	bomb := zipped(strings.Repeat("8.8.8.8:80\n", 1<<20)) // 11 MiB in 12 kB
	for name, test := range map[string]struct{ text, want string }{
		"too large": {bomb, "too large"},
		"cut":       {zipped("8.8.8.8:80\n")[:20], "unexpected EOF"},
		"damaged":   {strings.Replace(zipped("8.8.8.8:80\n"), "\x1f\x8b\x08", "\x1f\x8b\x08\xff", 1), "decompress list"},
	} {
		parsed, err := Parse(strings.NewReader(test.text), Options{MaxBytes: 1 << 20})
		if err == nil || !strings.Contains(err.Error(), test.want) || len(parsed.Candidates) != 0 {
			t.Errorf("%s: got %d candidates and %v, want none and %s", name, len(parsed.Candidates), err, test.want)
		}
	}
}

func TestRejectsAreCounted(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Reject{
		"10.0.0.1:80": Private, "192.168.1.1:80": Private, "127.0.0.1:80": Private, "169.254.1.1:80": Private, "100.64.0.1:80": Private,
		"[::1]:80": Private, "[fe80::1]:80": Private, "[fc00::1]:80": Private, "0.1.2.3:80": Reserved, "224.0.0.1:80": Reserved, "168.63.129.16:80": Reserved, "[fec0::1]:80": Private, "[64:ff9b::7f00:1]:80": Private, "[::ffff:10.0.0.1]:80": Private, "192.0.2.1:80": Reserved,
		"198.51.100.7:80": Reserved, "203.0.113.9:80": Reserved, "255.255.255.255:80": Reserved, "[2001:db8::1]:80": Reserved,
		"8.8.8.8:0": BadPort, "8.8.8.8:65536": BadPort, "999.1.1.1:80": BadAddress, "http://localhost:80": SingleLabel,
		"8.8.8.8:80\n8.8.8.8:80": Duplicate, "hello world": Unparsed, "1.2.3.0/30:80": Unparsed, strings.Repeat("x", 5000): Unparsed, "<tr><td>8.8.8.8<td><img>": Unparsed,
		"8.8.8.8:80\n8.8.4.4:80\n9.9.9.9:80": Capped,
		"user:a b@8.8.8.8:80":                Unparsed, "user:a,b:c@8.8.8.8:80": Unparsed, "http://user:a\"b@8.8.8.8:80": Unparsed, "user:a b:c:8.8.8.8:80": Unparsed,
		"8.8.8.8:80:user:a b": Unparsed, "8.8.8.8:80@user:a,b": Unparsed, "socks5://8.8.8.8:80:user:a\tb": Unparsed, `["8.8.8.8:80:user:a b"]`: Unparsed,
	} {
		t.Run(fmt.Sprintf("%.20s", text), func(t *testing.T) {
			t.Parallel()
			parsed, err := Parse(strings.NewReader(text), Options{Max: 2})
			if err != nil || parsed.Rejects[want] != 1 || len(parsed.Candidates) > 2 || want == Unparsed && len(parsed.Candidates) > 0 {
				t.Errorf("%.40q: got %v and %d candidates, want one %s", text, parsed.Rejects, len(parsed.Candidates), want)
			}
		})
	}
}

func TestAllowLocal(t *testing.T) {
	t.Parallel()
	parsed, err := Parse(strings.NewReader("127.0.0.1:80\n10.0.0.1:81\nlocalhost:82\n"), Options{AllowLocal: true, Protocol: "socks5", Name: "n"})
	if err != nil || len(parsed.Candidates) != 3 {
		t.Fatalf("got %v %v %v", parsed.Candidates, parsed.Rejects, err)
	}
	for _, c := range parsed.Candidates {
		if c.Protocol != "socks5" || !slices.Equal(c.Sources, []string{"n"}) {
			t.Errorf("got %#v", c)
		}
	}
}

func TestMerge(t *testing.T) {
	t.Parallel()
	c := func(protocol, host, user, from string) Candidate {
		return Candidate{Protocol: protocol, Host: host, Port: 1, Username: user, Sources: []string{from}}
	}
	got := Merge([]List{
		{Parsed: Parsed{Candidates: []Candidate{c("", "a.b", "", "1"), c("socks5", "c.d", "", "1"), c("http", "c.d", "", "1")}}},
		{Parsed: Parsed{Candidates: []Candidate{c("http", "a.b", "", "2"), c("", "c.d", "", "2"), c("http", "a.b", "u", "2"), c("http", "c.d", "", "2")}}},
	})
	var text []string
	for _, c := range got {
		text = append(text, c.Key()+" "+strings.Join(c.Sources, "+"))
	}
	want := []string{"http|a.b:1|| 1+2", "socks5|c.d:1|| 1", "http|c.d:1|| 1+2", "http|a.b:1|u| 2"}
	if !slices.Equal(text, want) {
		t.Errorf("got  %q\nwant %q", text, want)
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"1.2.3.4:80", "socks5://u:p@h.com:1", `{"ip":"8.8.8.8","port":1}`, "<tr><td>8.8.8.8<td>80", "ip,port\n8.8.8.8,80", "a:b:8.8.8.8:1", "[::1]:2", "\xff\xfe1",
		zipped("8.8.8.8:80"), zipped("8.8.8.8:80")[:15], "a\rb"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		parsed, err := Parse(strings.NewReader(text), Options{Max: 1000, MaxBytes: 1 << 20})
		if err != nil && (len(parsed.Candidates) > 0 || !errors.Is(err, contentencoding.ErrTooLarge) && !strings.HasPrefix(err.Error(), "decompress list")) {
			t.Fatalf("%q gives %v and %v", text, parsed.Candidates, err)
		}
		for _, c := range parsed.Candidates {
			if c.Port == 0 || c.Host == "" || strings.ContainsAny(c.Host, " /@\x00\r\n") {
				t.Fatalf("%q gives %#v", text, c)
			}
		}
	})
}

// The memory use of hostile lists is proportional to their size. Not parallel: it counts allocations of the process.
func TestMemoryIsProportionalToListSize(t *testing.T) {
	const most = 3000 // the race detector increases the allocations of regexps
	for name, l := range map[string]struct{ head, part, tail string }{
		"JSON, arrays":     {"", "[", ""},
		"JSON, closed":     {strings.Repeat("[", 9000), "1,", "1" + strings.Repeat("]", 9000)},
		"JSON, objects":    {"", `{"a":`, ""},
		"JSON, flat":       {"[", `{"ip":"8.8.8.8","port":1},`, "{}]"},
		"JSON, deep keys":  {`{"a":[`, `{"b":[{"c":[]}]},`, "1]}"},
		"JSON lines":       {"", `{"a":[[[]]]}` + "\n", ""},
		"HTML, nested":     {"<html>", "<div>", ""},
		"HTML, formatting": {"<html>", "<b><i>", ""},
		"HTML, tables":     {"<html>", "<table><tr><td>", ""},
		"HTML, rows":       {"<table><tr><th>ip<th>port", "<tr><td>8.8.8.8<td>80", ""},
		"CSV, columns":     {"", "ip,port,", "\n"},
		"CSV, quotes":      {"ip,port\n", `"`, ""},
		"CSV, rows":        {"ip,port\n", "8.8.8.8,80\n", ""},
		"colons":           {"", ":", ""},
		"one line":         {"", "8.8.8.8:80 ", ""},
	} {
		const size = 1 << 20
		text := l.head + strings.Repeat(l.part, size/len(l.part)) + l.tail
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := Parse(strings.NewReader(text), Options{Max: 1000}); err != nil {
			t.Errorf("%s: got %v", name, err)
		}
		runtime.ReadMemStats(&after)
		if got := (after.TotalAlloc - before.TotalAlloc) / uint64(size); got > most {
			t.Errorf("%s: got %d bytes allocated per unit, want at most %d", name, got, most)
		} else if testing.Verbose() {
			t.Logf("%s: %d", name, got)
		}
	}
}

// FuzzGateway checks that errors of the gateway parser do not contain the password, and that only literal
// placeholders are replaced.
func FuzzGateway(f *testing.F) {
	for _, s := range []string{"http://u-{country}:", "http://${USER}:", "socks5://:", "ftp://u:", "http://{session}", "://", "http://@:"} {
		f.Add(s, "@gate.example:31112")
		f.Add(s, "@h:{session}")
	}
	f.Fuzz(func(t *testing.T, before, after string) {
		const password = "s3cr3tw0rd"
		text := before + password + after
		g, err := parseGateway(text)
		if err != nil {
			if strings.Contains(err.Error(), password) {
				t.Errorf("%q: the error is %v", text, err)
			}
			return
		}
		if g.host == "" || g.scheme == "" || !strings.HasSuffix(text, g.host+":"+g.port) {
			t.Errorf("%q: got %q, %q, %q", text, g.scheme, g.host, g.port)
		}
	})
}

// FuzzCandidate checks that a candidate is parsed again from its URL, and that its string does not contain the
// password.
func FuzzCandidate(f *testing.F) {
	for _, s := range []string{"1.2.3.4:80", "socks5://u:p@h.example:1", "http://u%40:%2F@[2001:db8::1]:8080", "8.8.8.8:1:user:pass", "https://h:1", "u:p:8.8.8.8:1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		if strings.ContainsAny(line, "\n\r") {
			return
		}
		parsed, err := Parse(strings.NewReader(line), Options{Max: 10})
		if err != nil {
			return
		}
		for _, c := range parsed.Candidates {
			if len(c.Password) > 8 && !strings.Contains(c.Address()+c.Username, c.Password) && strings.Contains(c.String()+c.GoString(), c.Password) {
				t.Errorf("%q: the string is %s", line, c)
			}
			if strings.ContainsAny(c.Username+c.Password, " \t\x00<>\"'`|,;") { // these characters terminate a URL in text
				continue
			}
			again, err := Parse(strings.NewReader(c.URL().String()), Options{Max: 10})
			if err != nil || len(again.Candidates) != 1 {
				t.Errorf("%q: %q is read as %v, %v", line, c.URL(), again.Candidates, err)
				continue
			}
			got := again.Candidates[0]
			if got.Address() != c.Address() || got.Username != c.Username || got.Password != c.Password {
				t.Errorf("%q: wrote %#v, read %#v from %q", line, c.URL().String(), got.URL().String(), line)
			}
		}
	})
}
