package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// ProxyUsage counts the responses of a job by proxy. The pool counts requests without a response.
type ProxyUsage struct {
	Proxies   int     `json:"proxies"`
	Responses int     `json:"responses"`
	Failures  int     `json:"failures"`
	Worst     []Proxy `json:"worst,omitempty"` // up to five proxies with the most failures
}

// Proxy counts the responses of a job through a proxy.
type Proxy struct {
	Proxy     string `json:"proxy"`
	Responses int    `json:"responses"`
	Failures  int    `json:"failures"` // responses without a page: blocked, errors, unreadable bodies
}

const maxWorst = 5

// UsageOf sums up the usage of proxies, or returns nil if there are none. counts are numbers of responses by "good PROXY" and
// "bad PROXY".
func UsageOf(counts map[string]int) *ProxyUsage {
	proxies := map[string]Proxy{}
	for name, n := range counts {
		kind, proxy, _ := strings.Cut(name, " ")
		p := proxies[proxy]
		p.Proxy = proxy
		p.Responses += n
		if kind == "bad" {
			p.Failures += n
		}
		proxies[proxy] = p
	}
	if len(proxies) == 0 {
		return nil
	}
	u := &ProxyUsage{Proxies: len(proxies)}
	for _, p := range proxies {
		u.Responses += p.Responses
		u.Failures += p.Failures
		if p.Failures > 0 {
			u.Worst = append(u.Worst, p)
		}
	}
	slices.SortFunc(u.Worst, func(a, b Proxy) int {
		return cmp.Or(b.Failures-a.Failures, a.Responses-b.Responses, strings.Compare(a.Proxy, b.Proxy))
	})
	u.Worst = u.Worst[:min(len(u.Worst), maxWorst)]
	return u
}

// String formats the usage in one line.
func (u *ProxyUsage) String() string {
	worst := ""
	if len(u.Worst) > 0 {
		worst = fmt.Sprintf("; worst %s with %d of %d", u.Worst[0].Proxy, u.Worst[0].Failures, u.Worst[0].Responses)
	}
	return fmt.Sprintf("%d used, %d responses, %d of them failed%s", u.Proxies, u.Responses, u.Failures, worst)
}
