package definition

import (
	"strings"
	"testing"
)

func TestSettings(t *testing.T) {
	t.Parallel()
	const text = `site: shop.example
base_url: https://shop.example
start: [/a, {url: /b}]
listing: {next: a.next}
records:
  item:
    fields:
      name: h1
      price: {css: .price, type: price}
      sub: [h2, {meta: sub}]
politeness: {delay: 1s}
headers: {X-A: b}
session: {max: 2, profiles: [{name: p, headers: {X-B: c}}]}
`
	def, err := Parse("shop.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, s := range def.Settings() {
		if _, twice := got[s.Key]; twice {
			t.Errorf("%s: got it twice, want it once", s.Key)
		}
		got[s.Key] = s.Value + " " + s.From
	}
	for key, want := range map[string]string{
		"site": "shop.example shop.yaml:1", "start[0].url": "/a shop.yaml:3", "start[0].as": "listing default", "start[1].url": "/b shop.yaml:3",
		"listing.next.css": "a.next shop.yaml:4", "listing.format": "html default", "hosts[0]": "shop.example default",
		"records.item.from": "detail default", "records.item.fields.name.css": "h1 shop.yaml:8", "records.item.fields.name.type": "text default",
		"records.item.fields.price.type": "price shop.yaml:9", "records.item.fields.sub.any[1].meta": "sub shop.yaml:10", "records.item.fields.sub.any[0].css": "h2 shop.yaml:10",
		"politeness.delay": "1s shop.yaml:11", "politeness.robots": "true default", "limits.max_depth": "0 default", "headers.X-A": "b shop.yaml:12",
		"session.max": "2 shop.yaml:13", "session.max_age": "50m0s default", "session.profiles[0].headers.X-B": "c shop.yaml:13",
	} {
		if got[key] != want {
			t.Errorf("%s: got %q, want %q", key, got[key], want)
		}
	}
	for key := range got {
		if strings.HasSuffix(key, ".from") && strings.HasPrefix(key, "start") || strings.HasSuffix(key, ".of") {
			t.Errorf("%s: got it, want it omitted: it does not apply", key)
		}
	}
}
