package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// ProxyUsage counts the answers of a job by the proxies that they came through.
// The pool counts requests without an answer.
type ProxyUsage struct {
	Proxies  int     `json:"proxies"`
	Answers  int     `json:"answers"`
	Failures int     `json:"failures"`
	Worst    []Proxy `json:"worst,omitempty"` // those with the most failures, up to five
}

// Proxy is a proxy that answers of a job came through.
type Proxy struct {
	Proxy    string `json:"proxy"`
	Answers  int    `json:"answers"`
	Failures int    `json:"failures"` // answers that were no page: blocked, errors, bodies that cannot be read
}

const maxWorst = 5

// UsageOf adds up what each proxy did, or returns nil when no proxy was used.
func UsageOf(proxies []Proxy) *ProxyUsage {
	if len(proxies) == 0 {
		return nil
	}
	u := &ProxyUsage{Proxies: len(proxies)}
	for _, p := range proxies {
		u.Answers += p.Answers
		u.Failures += p.Failures
		if p.Failures > 0 {
			u.Worst = append(u.Worst, p)
		}
	}
	slices.SortFunc(u.Worst, func(a, b Proxy) int {
		return cmp.Or(b.Failures-a.Failures, a.Answers-b.Answers, strings.Compare(a.Proxy, b.Proxy))
	})
	u.Worst = u.Worst[:min(len(u.Worst), maxWorst)]
	return u
}

// String is a line for people.
func (u *ProxyUsage) String() string {
	worst := ""
	if len(u.Worst) > 0 {
		worst = fmt.Sprintf("; worst %s with %d of %d", u.Worst[0].Proxy, u.Worst[0].Failures, u.Worst[0].Answers)
	}
	return fmt.Sprintf("%d used, %d answers, %d of them no page%s", u.Proxies, u.Answers, u.Failures, worst)
}
