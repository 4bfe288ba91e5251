package sites

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"muster/sites/fetch"
	"muster/sites/internal/store"
)

// Way is a proxy that answers of a job came by.
type Way struct {
	Proxy    string `json:"proxy"`
	Answers  int    `json:"answers"`
	Failures int    `json:"failures"` // answers that were no page: refusals, errors, bodies that cannot be read
}

// Ways is by which proxies the answers of a job came. Requests that no answer
// came to are the pool's to count.
type Ways struct {
	Proxies  int   `json:"proxies"`
	Answers  int   `json:"answers"`
	Failures int   `json:"failures"`
	Worst    []Way `json:"worst,omitempty"` // those with the most failures, up to five
}

const maxWorst = 5

// noteWay counts an answer for the report of the job. An answer that came
// directly costs nothing.
func (j *pages) noteWay(ctx context.Context, via string, failure error) error {
	if fe, ok := errors.AsType[*fetch.Error](failure); ok && via == "" && fe.Status != 0 {
		via = fe.Via
	}
	if via == "" {
		return nil
	}
	field := "good "
	if class := fetch.ClassOf(failure); class != fetch.OK && class != fetch.Gone {
		field = "bad "
	}
	key := store.ProxyUsageKey(j.id)
	_, err := j.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.HIncrBy(ctx, key, field+via, 1)
		p.Expire(ctx, key, store.Keep)
		return nil
	})
	if err != nil {
		return fmt.Errorf("count what came by a proxy: %w", err)
	}
	return nil
}

// ways adds up what noteWay counted, or returns nil when no proxy was used.
func (j *pages) ways(ctx context.Context) (*Ways, error) {
	all, err := j.rdb.HGetAll(ctx, store.ProxyUsageKey(j.id)).Result()
	if err != nil {
		return nil, fmt.Errorf("count the proxies of job %s: %w", j.id, err)
	}
	if len(all) == 0 {
		return nil, nil
	}
	by := map[string]*Way{}
	w := &Ways{}
	for field, text := range all {
		kind, proxy, _ := strings.Cut(field, " ")
		n, _ := strconv.Atoi(text) // nobody else writes it
		if by[proxy] == nil {
			by[proxy] = &Way{Proxy: proxy}
		}
		by[proxy].Answers += n
		w.Answers += n
		if kind == "bad" {
			by[proxy].Failures += n
			w.Failures += n
		}
	}
	w.Proxies = len(by)
	for _, way := range by {
		if way.Failures > 0 {
			w.Worst = append(w.Worst, *way)
		}
	}
	slices.SortFunc(w.Worst, func(a, b Way) int {
		return cmp.Or(b.Failures-a.Failures, a.Answers-b.Answers, strings.Compare(a.Proxy, b.Proxy))
	})
	w.Worst = w.Worst[:min(len(w.Worst), maxWorst)]
	return w, nil
}
