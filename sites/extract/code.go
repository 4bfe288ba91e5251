package extract

import (
	"fmt"
	"slices"
	"sync"

	"muster/sites/definition"
)

// A Func extracts records and links from a page in Go, for a site that a definition cannot describe. It may call Declared for the
// part that the definition describes. It must not do I/O and must be deterministic: a page may be extracted more than once.
type Func func(def *definition.Definition, d *Doc) (Result, error)

var code sync.Map // Func by site

// Register makes Run extract the pages of a site with fn. Call it before any page is extracted, in every program with workers.
// Registering a site twice panics.
func Register(site string, fn Func) {
	if _, twice := code.LoadOrStore(site, fn); twice {
		panic("extract: site " + site + " is registered twice")
	}
}

// Add adds a record from a Func to the result. As for declared records, the definition of records of that name determines checks,
// the key and the handling of invalid records. Values must have the type that Run returns for their field: string, float64,
// int64, bool, Price, or []any of these. Values without a field are dropped.
func (res *Result) Add(def *definition.Definition, d *Doc, name string, values ...Value) error {
	i := slices.IndexFunc(def.Records, func(r definition.Record) bool { return r.Name == name })
	if i < 0 {
		return fmt.Errorf("the definition of %[2]s has no records %[1]q", name, def.Site)
	}
	if res.Hits == nil {
		res.Hits = map[string]map[string]int{}
	}
	x := &run{def: def, doc: d, res: *res}
	rec := Record{Type: name, URL: d.Page.URL.String()}
	for _, f := range def.Records[i].Fields {
		var v any
		if at := slices.IndexFunc(values, func(v Value) bool { return v.Name == f.Name }); at >= 0 && !isNothing(values[at].Value) {
			v = values[at].Value
			rec.Fields = append(rec.Fields, Value{f.Name, v})
		}
		if why := x.check(&f, v, "0", name+"."+f.Name); why != "" {
			x.invalid(&rec, problem{f.Name, why})
		}
	}
	err := x.keep(&def.Records[i], rec)
	*res = x.res
	return err
}

func isNothing(v any) bool {
	if list, ok := v.([]any); ok {
		return len(list) == 0
	}
	return v == nil || v == ""
}
