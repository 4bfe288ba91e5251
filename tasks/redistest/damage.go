package redistest

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// Damages are ways to damage what a key holds: each value of a string, a hash, a list or a stream, each member of a set.
var Damages = []Damage{
	{"cut", func(s string) string { return s[:len(s)/2] }},
	{"flipped", func(s string) string {
		if s == "" {
			return "\x00"
		}
		b := []byte(s)
		b[len(b)/2] ^= 0x10
		return string(b)
	}},
	{"emptied", func(string) string { return "" }},
	{"of another type", nil},
}

// Damage is a way to damage a key.
type Damage struct {
	Name   string
	change func(string) string // nil for another type
}

// Do damages a key, which must exist.
func (d Damage) Do(tb testing.TB, rdb redis.UniversalClient, key string) {
	tb.Helper()
	ctx := tb.Context()
	kind, err := rdb.Type(ctx, key).Result()
	if err == nil {
		switch {
		case kind == "none":
			tb.Fatalf("key %s does not exist", key)
		case d.change == nil && kind == "string":
			err = rdb.Del(ctx, key).Err()
			rdb.RPush(ctx, key, "damaged")
		case d.change == nil:
			err = rdb.Set(ctx, key, "damaged", 0).Err()
		default:
			err = d.values(ctx, rdb, key, kind)
		}
	}
	if err != nil {
		tb.Fatalf("damage key %s: %v", key, err)
	}
}

// Field damages one value of a hash.
func (d Damage) Field(tb testing.TB, rdb redis.UniversalClient, key, field string) {
	tb.Helper()
	v, err := rdb.HGet(tb.Context(), key, field).Result()
	if err == nil {
		err = rdb.HSet(tb.Context(), key, field, d.change(v)).Err()
	}
	if err != nil {
		tb.Fatalf("damage %s of key %s: %v", field, key, err)
	}
}

func (d Damage) values(ctx context.Context, rdb redis.UniversalClient, key, kind string) error {
	switch kind {
	case "string":
		return rdb.Set(ctx, key, d.change(rdb.Get(ctx, key).Val()), redis.KeepTTL).Err()
	case "hash":
		for field, v := range rdb.HGetAll(ctx, key).Val() {
			if err := rdb.HSet(ctx, key, field, d.change(v)).Err(); err != nil {
				return err
			}
		}
	case "list":
		for i, v := range rdb.LRange(ctx, key, 0, -1).Val() {
			if err := rdb.LSet(ctx, key, int64(i), d.change(v)).Err(); err != nil {
				return err
			}
		}
	case "set":
		all := rdb.SMembers(ctx, key).Val()
		rdb.Del(ctx, key)
		for _, v := range all {
			if err := rdb.SAdd(ctx, key, d.change(v)).Err(); err != nil {
				return err
			}
		}
	case "zset":
		all := rdb.ZRangeWithScores(ctx, key, 0, -1).Val()
		rdb.Del(ctx, key)
		for _, z := range all {
			if err := rdb.ZAdd(ctx, key, redis.Z{Score: z.Score, Member: d.change(fmt.Sprint(z.Member))}).Err(); err != nil {
				return err
			}
		}
	case "stream":
		all := rdb.XRange(ctx, key, "-", "+").Val()
		rdb.Del(ctx, key)
		for _, m := range all {
			for field, v := range m.Values {
				m.Values[field] = d.change(fmt.Sprint(v))
			}
			if err := rdb.XAdd(ctx, &redis.XAddArgs{Stream: key, ID: m.ID, Values: m.Values}).Err(); err != nil {
				return err
			}
		}
	default:
		return fmt.Errorf("it is a %s", kind)
	}
	return nil
}

// KeyKinds returns the names of the declarations of a keys.go that make keys: its functions, methods and constants,
// and the fields of its structs, but not those whose name is in others.
func KeyKinds(tb testing.TB, file string, others ...string) []string {
	tb.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		tb.Fatal(err)
	}
	names := map[string]bool{}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			names[d.Name.Name] = true
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.ValueSpec:
					for _, n := range s.Names {
						names[n.Name] = true
					}
				case *ast.TypeSpec:
					if st, ok := s.Type.(*ast.StructType); ok {
						for _, field := range st.Fields.List {
							for _, n := range field.Names {
								names[n.Name] = true
							}
						}
					}
				}
			}
		}
	}
	for _, n := range others {
		if !names[n] {
			tb.Errorf("%s has no %s", file, n)
		}
		delete(names, n)
	}
	return slices.Sorted(maps.Keys(names))
}

// EachDamage damages the key of each kind that a keys.go has, in each way, as parallel subtests. Keys returns the kinds that
// a test damages; others are the names in the file that make no key of their own.
func EachDamage[K any](t *testing.T, file string, keys map[string]K, others []string, test func(t *testing.T, kind K, d Damage)) {
	t.Helper()
	kinds := KeyKinds(t, file, others...)
	if known := slices.Sorted(maps.Keys(keys)); !slices.Equal(kinds, known) {
		t.Errorf("%s has the keys %s; the test damages %s", file, strings.Join(kinds, ", "), strings.Join(known, ", "))
	}
	for kind, k := range keys {
		for _, d := range Damages {
			t.Run(kind+"/"+d.Name, func(t *testing.T) {
				t.Parallel()
				test(t, k, d)
			})
		}
	}
}
